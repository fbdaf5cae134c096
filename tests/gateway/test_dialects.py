"""What every dialect gets alike: clear refusals, its own words for errors, and nothing fetched on its behalf."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from stockade_gateway import bodies
from stockade_gateway.config import Upstream
from stockade_gateway.route import ModelRoute
from stockade_gateway.testing import serve_tcp

from .conftest import ORIGIN, Vendor, ask

CALLS = ["/v1/messages", "/v1/messages/count_tokens", "/v1/responses", "/v1/chat/completions"]
MESSAGES, RESPONSES, CHAT = CALLS[0], CALLS[2], CALLS[3]


async def ok(request: web.Request) -> web.StreamResponse:
    return web.json_response({"ok": True})


def message_of(path: str, body: dict[str, Any]) -> str:
    """The message of an error, after a look at its form: each vendor's client reads only its own."""
    error = body["error"]
    if path.startswith("/v1/messages"):
        assert body["type"] == "error"
        assert set(error) == {"type", "message"}
    else:
        assert set(error) == {"message", "type", "code", "param"}
    return str(error["message"])


@pytest.mark.parametrize("path", CALLS)
async def test_a_call_of_each_dialect_reaches_the_vendor(
    vendor: Vendor, forwarding: str, client: aiohttp.ClientSession, path: str
) -> None:
    vendor.answer = ok
    async with client.post(forwarding + path, json=ask()) as said:
        assert (said.status, await said.json()) == (200, {"ok": True})
    assert vendor.seen[0].path == path


@pytest.mark.requirement("F82")
@pytest.mark.parametrize("path", CALLS)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"m"',
        b"\xff\xfe",
        b'{"model": NaN}',
        b"[" * 100_000,
        '{"model": "m"}'.encode("utf-16"),
        b'{"model": "m", "model": "n"}',
        b'{"model": "m", "messages": [{"role": "user", "role": "assistant"}]}',
    ],
    ids=lambda body: repr(body[:20]),
)
async def test_a_body_that_two_might_read_differently_is_a_400(
    vendor: Vendor, forwarding: str, client: aiohttp.ClientSession, path: str, body: bytes
) -> None:
    async with client.post(forwarding + path, data=body) as said:
        assert said.status == 400
        assert "JSON" in message_of(path, await said.json())
    assert vendor.seen == []


@pytest.mark.parametrize("path", CALLS)
@pytest.mark.parametrize("model", [None, 7, "", ["m"], {"name": "m"}])
async def test_a_call_without_a_model_is_a_400(
    vendor: Vendor, forwarding: str, client: aiohttp.ClientSession, path: str, model: object
) -> None:
    async with client.post(forwarding + path, json=ask() | {"model": model}) as said:
        assert said.status == 400
        assert "model" in message_of(path, await said.json())
    assert vendor.seen == []


@pytest.mark.parametrize("path", CALLS)
async def test_a_model_that_no_upstream_has_is_a_404(client: aiohttp.ClientSession, path: str) -> None:
    async with serve_tcp(ModelRoute({}), ORIGIN) as url, client.post(url + path, json=ask()) as said:
        assert said.status == 404
        assert "upstream" in message_of(path, await said.json())


@pytest.mark.parametrize("path", CALLS)
async def test_a_body_over_the_cap_is_a_413_in_each_dialect(
    forwarding: str, client: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    async def grow() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b" " * 100

    monkeypatch.setattr("stockade_gateway.route.MAX_BODY", 1000)
    async with client.post(forwarding + path, data=grow()) as said:
        assert said.status == 413
        assert "1000 bytes" in message_of(path, await said.json())


@pytest.mark.parametrize("path", ["/v1/messages/batches", "/v1/responses/abc", "/v1/chat/other"])
async def test_a_path_that_is_not_the_models_is_refused_in_the_nearest_dialect(
    forwarding: str, client: aiohttp.ClientSession, path: str
) -> None:
    async with client.post(forwarding + path, json=ask()) as said:
        assert said.status == 404
        message_of(path, await said.json())


def part(path: str, content: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A call whose user gives one part."""
    said = [{"role": "user", "content": [content]}]
    return {"model": "m", ("input" if path == RESPONSES else "messages"): said, **more}


METADATA = "http://169.254.169.254/latest"
REMOTE = [
    (MESSAGES, part(MESSAGES, {"type": "image", "source": {"type": "url", "url": METADATA}})),
    (MESSAGES, part(MESSAGES, {"type": "document", "source": {"type": "url", "url": "file:///etc/passwd"}})),
    (
        MESSAGES,
        part(
            MESSAGES,
            {
                "type": "tool_result",
                "tool_use_id": "t",
                "content": [{"type": "image", "source": {"type": "url", "url": METADATA}}],
            },
        ),
    ),
    (MESSAGES, ask(mcp_servers=[{"type": "url", "url": METADATA, "name": "x"}])),
    (RESPONSES, part(RESPONSES, {"type": "input_image", "image_url": METADATA})),
    (RESPONSES, part(RESPONSES, {"type": "input_file", "file_url": METADATA})),
    (RESPONSES, ask({"type": "mcp", "server_label": "x", "server_url": METADATA}, input="go")),
    (
        RESPONSES,
        {
            "model": "m",
            "input": [{"type": "computer_call_output", "output": {"type": "x", "image_url": METADATA}}],
        },
    ),
    (CHAT, part(CHAT, {"type": "image_url", "image_url": {"url": METADATA}})),
    (CHAT, part(CHAT, {"type": "image_url", "image_url": METADATA})),
    (CHAT, part(CHAT, {"type": "video_url", "video_url": {"url": METADATA}})),
]


@pytest.mark.parametrize(("path", "body"), REMOTE)
async def test_an_address_that_the_upstream_would_fetch_is_a_400(
    vendor: Vendor, forwarding: str, client: aiohttp.ClientSession, path: str, body: dict[str, Any]
) -> None:
    escaped = json.dumps(body).replace("url", "\\u0075\\u0072\\u006C")  # the same to whoever reads it
    for sent in (json.dumps(body), escaped):
        async with client.post(forwarding + path, data=sent) as said:
            assert said.status == 400
            text = message_of(path, await said.json())
            assert "address" in text
            assert "169.254" not in text
    assert vendor.seen == []


@pytest.mark.parametrize(("path", "body"), REMOTE)
async def test_an_upstream_may_be_allowed_to_fetch(
    vendor: Vendor, client: aiohttp.ClientSession, path: str, body: dict[str, Any]
) -> None:
    vendor.answer = ok
    upstream = Upstream(base_url=vendor.url, remote_content=True)
    route = ModelRoute({"anthropic": upstream, "openai": upstream})
    async with serve_tcp(route, ORIGIN) as url, client.post(url + path, json=body) as said:
        assert said.status == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (MESSAGES, part(MESSAGES, {"type": "text", "text": "fetch image_url http://x"})),
        (MESSAGES, part(MESSAGES, {"type": "image", "source": {"type": "base64", "data": "aGk="}})),
        (MESSAGES, part(MESSAGES, {"type": "tool_use", "input": {"url": METADATA, "image_url": METADATA}})),
        (MESSAGES, ask({"name": "Fetch", "input_schema": {"properties": {"image_url": {"type": "string"}}}})),
        (RESPONSES, part(RESPONSES, {"type": "input_image", "image_url": "data:image/png;base64,aGk="})),
        (CHAT, part(CHAT, {"type": "image_url", "image_url": {"url": "DATA:image/png;base64,aGk="}})),
        (RESPONSES, {"model": "m", "input": [{"type": "function_call", "arguments": '{"image_url": "http://x"}'}]}),
    ],
)
async def test_an_address_that_is_only_spoken_of_is_passed_on(
    vendor: Vendor, forwarding: str, client: aiohttp.ClientSession, path: str, body: dict[str, Any]
) -> None:
    vendor.answer = ok
    async with client.post(forwarding + path, json=body) as said:
        assert said.status == 200


def test_a_body_may_nest_as_deep_as_it_likes() -> None:
    deep = '[{"content": ' * 300 + '""' + "}]" * 300
    data = f'{{"model": "m", "url": "", "messages": {deep}}}'.encode()
    bodies.refuse_remote(data, bodies.read(data))


async def test_a_rehearsal_answers_a_whole_completion(rehearse: Any, client: aiohttp.ClientSession) -> None:
    tool = {"type": "function", "function": {"name": "shell", "parameters": {}}}
    body = {"model": "gpt", "messages": [{"role": "user", "content": "go"}], "tools": [tool]}
    async with rehearse("- shell: ls\n- thinking: Hm.\n- text: Done.") as url:
        async with client.post(url + CHAT, json=body) as said:
            called = await said.json()
        async with client.post(url + CHAT, json=body) as said:
            told = await said.json()
    [choice] = called["choices"]
    [call] = choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "tool_calls"
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == (
        "shell",
        {"command": ["bash", "-lc", "ls"]},
    )
    assert told["choices"][0]["message"]["content"] == "Done."
    assert told["choices"][0]["finish_reason"] == "stop"
    assert told["usage"]["total_tokens"] == told["usage"]["prompt_tokens"] + told["usage"]["completion_tokens"]


@pytest.mark.parametrize("usage", [False, True])
async def test_a_rehearsal_streams_a_completion_that_adds_up(
    rehearse: Any, client: aiohttp.ClientSession, usage: bool
) -> None:
    tool = {"type": "function", "function": {"name": "shell_command", "parameters": {}}}
    body = {"model": "gpt", "messages": [], "tools": [tool], "stream": True}
    body |= {"stream_options": {"include_usage": True}} if usage else {}
    async with rehearse("- tools: [{shell: ls}, {shell: pwd}]\n- text: A sentence of some length.") as url:
        replies = []
        for _ in range(2):
            async with client.post(url + CHAT, json=body) as said:
                assert said.content_type == "text/event-stream"
                lines = [line for line in (await said.text()).split("\n\n") if line]
            assert lines.pop() == "data: [DONE]"
            replies.append([json.loads(line.removeprefix("data: ")) for line in lines])
    calls: dict[int, str] = {}
    for chunk in replies[0]:
        for choice in chunk["choices"]:
            for call in choice["delta"].get("tool_calls", []):
                calls[call["index"]] = calls.get(call["index"], "") + call["function"]["arguments"]
    assert [json.loads(arguments) for arguments in calls.values()] == [{"command": "ls"}, {"command": "pwd"}]
    choices = [choice for chunk in replies[1] for choice in chunk["choices"]]
    assert "".join(choice["delta"].get("content", "") for choice in choices) == "A sentence of some length."
    assert choices[-1]["finish_reason"] == "stop"
    assert bool(replies[1][-1]["usage"]) is usage


async def test_a_rehearsal_lists_its_model_in_both_dialects(rehearse: Any, client: aiohttp.ClientSession) -> None:
    async with rehearse("talk") as url:
        async with client.get(url + "/v1/models") as said:
            assert (await said.json())["data"][0]["type"] == "model"
        headers = {"Authorization": f"Bearer {ORIGIN.key}"}
        async with aiohttp.ClientSession(headers=headers) as other, other.get(url + "/v1/models") as said:
            assert (await said.json())["object"] == "list"
