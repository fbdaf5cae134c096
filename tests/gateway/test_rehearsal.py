"""Scripts: validated with a fix, played in order in both dialects."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from stockade.contracts.route import Origin
from stockade.errors import UsageError
from stockade_gateway.rehearsal import script
from stockade_gateway.rehearsal.script import load, names, parse
from stockade_gateway.route import ModelRoute
from stockade_gateway.testing import serve_tcp

from .conftest import BASH, KEY, WRITE, ask


async def post(client: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> dict[str, Any]:
    async with client.post(url, json=body) as said:
        answer: dict[str, Any] = await said.json()
        return answer


async def events(client: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    async with client.post(url, json={**body, "stream": True}) as said:
        lines = (await said.text()).splitlines()
    return [json.loads(line[6:]) for line in lines if line.startswith("data: ")]


def test_every_shipped_script_is_valid() -> None:
    assert {"hello", "tools", "thinking", "error", "slow", "disconnect", "read-only"} <= set(names())
    for name in names():
        assert load(name).replies


async def test_items_are_played_in_order_and_the_end_repeats(rehearse: Any, client: aiohttp.ClientSession) -> None:
    script = "- write: {path: a/b.txt, content: hi}\n- shell: ls\n- text: Done."
    async with rehearse(script) as url:
        url += "/v1/messages"
        body = ask(BASH, WRITE, system="Primary working directory: /work space\nmore")
        replies = [await post(client, url, body) for _ in range(4)]
    write, shell, done, again = (r["content"][-1] for r in replies)
    assert write["input"] == {"file_path": "/work space/a/b.txt", "content": "hi"}
    assert (write["name"], shell["name"], shell["input"]["command"]) == ("Write", "Bash", "ls")
    assert [r["stop_reason"] for r in replies] == ["tool_use", "tool_use", "end_turn", "end_turn"]
    assert done["text"] == again["text"] == "Done."


async def test_a_request_without_tools_takes_no_item(rehearse: Any, client: aiohttp.ClientSession) -> None:
    async with rehearse("- shell: ls\n- text: Done.") as url:
        await post(client, url + "/v1/messages", ask())
        counted = await post(client, url + "/v1/messages/count_tokens", ask(BASH))
        assert counted == {"input_tokens": pytest.approx(60, abs=60)}
        assert (await post(client, url + "/v1/messages", ask(BASH)))["stop_reason"] == "tool_use"


async def test_several_tools_in_one_reply_have_ids_of_their_own(rehearse: Any, client: aiohttp.ClientSession) -> None:
    async with rehearse("tools") as url:
        blocks = (await post(client, url + "/v1/messages", ask(BASH)))["content"]
    assert [b["input"]["command"] for b in blocks] == ["echo first", "echo second"]
    assert len({b["id"] for b in blocks}) == 2


async def test_a_write_goes_through_the_shell_where_there_is_no_write_tool(
    rehearse: Any, client: aiohttp.ClientSession
) -> None:
    async with rehearse('- write: {path: "it\'s", content: "a\'b"}') as url:
        [block] = (await post(client, url + "/v1/messages", ask(BASH)))["content"]
    assert block["input"]["command"] == """mkdir -p -- . && printf %s 'a'"'"'b' > 'it'"'"'s'"""


async def test_a_missing_tool_is_said_in_the_answer(rehearse: Any, client: aiohttp.ClientSession) -> None:
    async with rehearse("hello") as url:
        [_, text] = (await post(client, url + "/v1/messages", ask({"name": "Read"})))["content"]
    assert "not offered" in text["text"]
    assert "Read" in text["text"]


async def test_a_streamed_message_adds_up_to_the_whole_one(rehearse: Any, client: aiohttp.ClientSession) -> None:
    async with rehearse("- thinking: Hmm.\n- text: A sentence of some length.") as url:
        got = await events(client, url + "/v1/messages", ask(BASH))
    assert got[0]["type"] == "message_start"
    assert [e["type"] for e in got][-2:] == ["message_delta", "message_stop"]
    deltas = [e["delta"] for e in got if e["type"] == "content_block_delta"]
    assert "".join(d.get("text", "") for d in deltas) == "A sentence of some length."
    assert "".join(d.get("thinking", "") for d in deltas) == "Hmm."
    assert got[-2]["usage"]["output_tokens"] > 0


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ({"type": "function", "name": "exec_command"}, {"cmd": "ls"}),
        ({"type": "function", "name": "shell"}, {"command": ["bash", "-lc", "ls"]}),
        ({"type": "function", "name": "shell_command"}, {"command": "ls"}),
    ],
)
@pytest.mark.parametrize("hidden", [False, True])
async def test_the_responses_dialect_is_spoken_too(
    rehearse: Any, client: aiohttp.ClientSession, tool: dict[str, Any], arguments: dict[str, Any], hidden: bool
) -> None:
    body: dict[str, Any] = {"model": "gpt-5", "input": [{"role": "user", "content": "go"}], "tools": [tool]}
    if hidden:
        body = {"model": "gpt-5", "input": [{"type": "additional_tools", "tools": body["tools"]}]}
    async with rehearse("- shell: ls\n- text: Done.") as url:
        called = await events(client, url + "/v1/responses", body)
        said = await events(client, url + "/v1/responses", body)
    [call] = called[-1]["response"]["output"]
    assert (call["type"], json.loads(call["arguments"])) == ("function_call", arguments)
    assert "".join(e["delta"] for e in said if e["type"] == "response.output_text.delta") == "Done."
    assert [e["sequence_number"] for e in said] == list(range(len(said)))
    assert said[-1]["response"]["usage"]["total_tokens"] > 0


@pytest.mark.parametrize(
    ("tool", "kind", "part"),
    [
        ({"type": "local_shell"}, "local_shell_call", ("action", ["bash", "-lc", "ls"])),
        ({"type": "custom", "name": "exec"}, "custom_tool_call", ("input", '{"cmd": "ls"}')),
    ],
)
async def test_codex_own_kinds_of_tools_are_called_as_it_wants(
    rehearse: Any, client: aiohttp.ClientSession, tool: dict[str, Any], kind: str, part: tuple[str, Any]
) -> None:
    body = {"model": "m", "input": [{"type": "additional_tools", "tools": [tool]}]}
    async with rehearse("- shell: ls\n- text: Done.") as url:
        [call] = (await events(client, url + "/v1/responses", body))[-1]["response"]["output"]
    assert call["type"] == kind
    key, wanted = part
    assert wanted == call[key]["command"] if key == "action" else wanted in call[key]


async def test_a_tool_in_a_namespace_is_found(rehearse: Any, client: aiohttp.ClientSession) -> None:
    """As Codex sends them with its default model."""
    namespace = {"type": "namespace", "name": "functions", "tools": [{"type": "custom", "name": "exec"}]}
    body = {"model": "m", "input": [{"type": "additional_tools", "role": "developer", "tools": [namespace]}]}
    async with rehearse("- shell: ls\n- text: Done.") as url:
        [call] = (await events(client, url + "/v1/responses", body))[-1]["response"]["output"]
    assert (call["type"], call["name"]) == ("custom_tool_call", "exec")


async def test_sessions_and_sandboxes_have_places_of_their_own(client: aiohttp.ClientSession) -> None:
    served = ModelRoute({}, parse("test", "- shell: ls\n- text: Done."))
    origins = [Origin(sandbox=b, session=s, route="model", key=KEY) for b, s in (("1", "a"), ("1", "b"), ("2", "a"))]
    for origin in origins:
        async with serve_tcp(served, origin) as url:
            reasons = [(await post(client, url + "/v1/messages", ask(BASH)))["stop_reason"] for _ in range(3)]
        assert reasons == ["tool_use", "end_turn", "end_turn"]


async def test_a_delay_comes_before_the_next_reply_and_ends_with_its_caller(
    rehearse: Any, client: aiohttp.ClientSession
) -> None:
    async with rehearse("- delay: 0.05\n- text: Late.\n- delay: 3600\n- text: Never.") as url:
        begun = asyncio.get_running_loop().time()
        assert (await post(client, url + "/v1/messages", ask(BASH)))["content"][-1]["text"] == "Late."
        assert asyncio.get_running_loop().time() - begun >= 0.05
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await post(client, url + "/v1/messages", ask(BASH))


async def test_a_working_directory_is_found_wherever_the_prompt_has_it(
    rehearse: Any, client: aiohttp.ClientSession
) -> None:
    prompt = [{"type": "text", "text": 'Environment:\n - Primary working directory: /w "x" é\n - Platform: linux'}]
    body = ask(WRITE, messages=[{"role": "user", "content": prompt}])
    async with rehearse("- write: {path: a.txt, content: hi}") as url:
        [block] = (await post(client, url + "/v1/messages", body))["content"]
    assert block["input"]["file_path"] == '/w "x" é/a.txt'


async def test_a_scripted_error_has_its_status_in_the_callers_dialect(
    rehearse: Any, client: aiohttp.ClientSession
) -> None:
    async with rehearse("overloaded") as url:
        async with client.post(url + "/v1/messages", json=ask(BASH)) as said:
            assert (said.status, (await said.json())["error"]["type"]) == (529, "overloaded_error")
        assert (await post(client, url + "/v1/messages", ask(BASH)))["stop_reason"] == "end_turn"


async def test_a_scripted_disconnect_breaks_the_stream(rehearse: Any, client: aiohttp.ClientSession) -> None:
    async with rehearse("disconnect") as url:
        with pytest.raises(aiohttp.ClientError):
            await events(client, url + "/v1/messages", ask(BASH))
        assert (await events(client, url + "/v1/messages", ask(BASH)))[-1]["type"] == "message_stop"


async def test_a_scripted_disconnect_breaks_an_answer_that_is_not_streamed_too(
    rehearse: Any, client: aiohttp.ClientSession
) -> None:
    async with rehearse("disconnect") as url:
        with pytest.raises(aiohttp.ClientError):
            await post(client, url + "/v1/messages", ask(BASH))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("text: x", "not a list"),
        ("- sing: x", "item 1 .* none of: text"),
        ("- text: x\n- tools: [{shell: a}]", "item 2 .*tools"),
        ("- error: {status: 200}", "item 1 .*status"),
        ("- write: {path: a}", "item 1 .*content"),
        ("- delay: soon", "item 1 .*delay"),
        ("- [", "not YAML"),
    ],
)
def test_a_faulty_script_is_refused_with_the_item(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as error:
        parse("./mine.yaml", text)
    assert "./mine.yaml" in error.value.message
    assert error.value.hint


def test_the_example_in_each_hint_is_valid() -> None:
    for example in script._EXAMPLES.values():
        assert parse("example", example).replies


def test_an_unknown_script_is_refused_with_those_there_are() -> None:
    with pytest.raises(UsageError, match="hello"):
        load("helo")
    with pytest.raises(UsageError, match="cannot be read"):
        load("./no-such.yaml")
