"""Cassettes: written whole and without secrets, played back event by event, and clear about what is different."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from pydantic import SecretStr

from stockade.contracts.route import Caller, Origin
from stockade.errors import SettingsError, UsageError
from stockade.model.authority import Token
from stockade.settings import Settings
from stockade_gateway.cassette import checks, tape
from stockade_gateway.cassette.recorder import Recorder
from stockade_gateway.cassette.replay import Replay
from stockade_gateway.cassette.secrets import Mask, of_environment
from stockade_gateway.config import Upstream
from stockade_gateway.route import ModelRoute
from stockade_gateway.testing import serve_tcp

from .conftest import BASH, CANARY, KEY, ORIGIN, WRITE, Vendor, ask

MESSAGES = "/v1/messages"


@contextlib.asynccontextmanager
async def recording(vendor: Vendor, path: Path, origin: Origin = ORIGIN, *secrets: str) -> AsyncIterator[str]:
    upstream = Upstream(base_url=vendor.url, key=SecretStr(CANARY))
    recorder = Recorder(path, secrets)
    async with serve_tcp(ModelRoute({"anthropic": upstream, "openai": upstream}, recorder=recorder), origin) as url:
        yield url


def replaying(path: Path, origin: Origin = ORIGIN) -> contextlib.AbstractAsyncContextManager[str]:
    return serve_tcp(ModelRoute({}, replay=Replay(tape.load(path))), origin)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def streams(*chunks: bytes, whole: bool = True) -> Any:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "request-id": "req-secret"})
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
            await asyncio.sleep(0.01)  # so that each is a chunk of its own
        if not whole:
            assert request.transport is not None
            request.transport.close()
        return response

    return answer


def echoes(status: int = 200, **headers: str) -> Any:
    async def answer(request: web.Request) -> web.StreamResponse:
        count = len((await request.json())["messages"])
        return web.json_response({"messages": count}, status=status, headers=headers)

    return answer


def talk(*texts: str, **more: Any) -> dict[str, Any]:
    """A conversation, one text a turn, the user's first."""
    roles = ("user", "assistant")
    said = [{"role": roles[place % 2], "content": text} for place, text in enumerate(texts)]
    return {"model": "m", "tools": [BASH], "messages": said, **more}


async def test_a_stream_is_kept_by_events_whatever_the_chunks_were_and_played_back_by_events(
    vendor: Vendor, client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    vendor.answer = streams(b"event: a\ndata: 1\n", b"\nevent: b\r\ndata: 2\r\n\r\nda", b"ta: \xc3", b"\xa4\n\n")
    path = tmp_path / "one.cassette"
    async with recording(vendor, path) as url, client.post(url + MESSAGES, json=ask(stream=True)) as said:
        first = await said.read()
    [head, call] = lines(path)
    assert head == {"kind": "stockade-cassette", "version": 1}
    assert call["events"] == ["event: a\ndata: 1\n\n", "event: b\r\ndata: 2\r\n\r\n", "data: ä\n\n"]
    async with replaying(path) as url, client.post(url + MESSAGES, json=ask(stream=True)) as said:
        assert (said.status, said.content_type) == (200, "text/event-stream")
        assert await said.read() == first


@pytest.mark.parametrize("path_of", ["/v1/messages", "/v1/chat/completions"])
async def test_status_body_and_what_to_do_next_are_the_same_again(
    vendor: Vendor, client: aiohttp.ClientSession, tmp_path: Path, path_of: str
) -> None:
    headers = {"Retry-After": "7", "request-id": "req-secret", "x-should-retry": "true"}
    file = tmp_path / "errors"
    async with recording(vendor, file) as url:
        for status in (529, 200):
            vendor.answer = echoes(status, **headers)
            async with client.post(url + path_of, json=ask()) as said:
                await said.read()
    async with replaying(file) as url:
        for status in (529, 200):
            async with client.post(url + path_of, json=ask()) as said:
                assert (said.status, await said.json()) == (status, {"messages": 1})
                assert (said.headers["Retry-After"], said.headers["x-should-retry"]) == ("7", "true")
    assert "req-secret" not in file.read_text()


async def test_what_is_no_text_comes_back_too(vendor: Vendor, client: aiohttp.ClientSession, tmp_path: Path) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(body=b"\xff\x00", content_type="application/octet-stream")

    vendor.answer = answer
    path = tmp_path / "bytes"
    async with recording(vendor, path) as url, client.post(url + MESSAGES, json=ask()) as said:
        await said.read()
    async with replaying(path) as url, client.post(url + MESSAGES, json=ask()) as said:
        assert await said.read() == b"\xff\x00"


async def test_a_stream_that_broke_off_breaks_off_again(
    vendor: Vendor, client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    vendor.answer = streams(b"data: 1\n\n", b"data: 2", whole=False)
    path = tmp_path / "broken"
    async with recording(vendor, path) as url:
        with pytest.raises(aiohttp.ClientError):
            async with client.post(url + MESSAGES, json=ask(stream=True)) as said:
                await said.read()
    assert lines(path)[1]["whole"] is False
    async with replaying(path) as url:
        with pytest.raises(aiohttp.ClientError):
            async with client.post(url + MESSAGES, json=ask(stream=True)) as said:
                assert await said.content.readexactly(9) == b"data: 1\n\n"
                await said.read()


async def test_nothing_is_there_until_the_run_has_ended_and_nobody_else_can_read_it(
    vendor: Vendor, client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    vendor.answer = echoes()
    path = tmp_path / "run"
    path.write_text(tape.head())
    async with recording(vendor, path) as url:
        async with client.post(url + MESSAGES, json=ask()) as said:
            await said.read()
        assert path.read_text() == tape.head()  # the old one, whole
    assert len(lines(path)) == 2
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["run"]


def test_a_file_that_is_no_cassette_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("precious")
    with pytest.raises(UsageError, match="no cassette"):
        ModelRoute({}, recorder=Recorder(path, ())).preflight("anthropic")
    with pytest.raises(UsageError, match="no cassette can be written"):
        Recorder(tmp_path / "none" / "x", ()).open()
    assert path.read_text() == "precious"
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]


async def test_a_run_without_a_call_leaves_no_file(tmp_path: Path) -> None:
    route = ModelRoute({}, recorder=Recorder(tmp_path / "x", ()))
    await route.aclose()
    assert list(tmp_path.iterdir()) == []


# -- secrets ----------------------------------------------------------------------------------------


@pytest.mark.requirement("S16")
@pytest.mark.parametrize("dialect", ["anthropic", "responses", "chat"])
async def test_no_secret_is_in_a_cassette_not_even_in_pieces(
    vendor: Vendor, client: aiohttp.ClientSession, tmp_path: Path, dialect: str
) -> None:
    warrant, password = "eyJ-canary-warrant-5512", 'canary-"pass\\word"-99'
    everything = [CANARY, KEY, warrant, password]
    caller = Caller(user="u", turn="t", token=Token("id", warrant))
    origin = Origin("sb", "s", "model", key=KEY, caller=caller)

    def event(piece: str, place: int) -> bytes:
        if dialect == "anthropic":
            inner = {"type": "input_json_delta", "partial_json": json.dumps(piece)[1:-1]}
            data: Any = {"type": "content_block_delta", "index": place, "delta": inner}
        elif dialect == "responses":
            data = {"type": "response.output_text.delta", "output_index": place, "item_id": "i", "delta": piece}
        else:
            data = {"choices": [{"index": 0, "delta": {"content": piece}}], "index": place}
        return f"event: x\ndata: {json.dumps(data)}\n\n".encode()

    chunks = [f"data: {json.dumps({'quoted': secret})}\n\n".encode() for secret in everything]
    for place, secret in enumerate(everything):
        chunks += [event(piece, place) for piece in ("before ", secret[:9], secret[9:12], secret[12:], " after")]
    vendor.answer = streams(*chunks)
    path = tmp_path / "secret"
    route = {"anthropic": MESSAGES, "responses": "/v1/responses", "chat": "/v1/chat/completions"}[dialect]
    body = ask(stream=True, metadata={"user_id": CANARY}, user=CANARY)
    body["messages"] = body["input"] = [{"role": "user", "content": f"use {password} and {warrant} and {KEY}"}]
    async with recording(vendor, path, origin, password) as url, client.post(url + route, json=body) as said:
        assert CANARY in (await said.read()).decode()  # the run itself is not changed
    text = path.read_text()
    for secret in everything:
        for form in (secret, secret[:9], secret[12:]):
            assert form.replace("\\", "") not in text.replace("\\", "")
    assert "before " in text
    assert " after" in text
    async with replaying(path, origin) as url, client.post(url + route, json=body) as said:
        assert (await said.text()).count("[redacted]") >= 8


def test_variables_that_say_that_they_are_secret_are_taken_out() -> None:
    host = {"MY_API_KEY": "a", "GH_TOKEN": "b", "DB_PASSWORD": "c", "KEYBOARD": "d", "PATH": "e", "X_SECRET_Y": "f"}
    assert of_environment(host) == {"a", "b", "c", "f"}


# -- what fits --------------------------------------------------------------------------------------


async def tape_of(vendor: Vendor, client: aiohttp.ClientSession, path: Path, *bodies: dict[str, Any]) -> None:
    """Record these calls, each answered with the number of its messages."""
    vendor.answer = echoes()
    async with recording(vendor, path) as url:
        for body in bodies:
            async with client.post(url + MESSAGES, json=body) as said:
                await said.read()


async def test_what_differs_from_run_to_run_does_not_matter(
    vendor: Vendor, client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    def body(folder: str, day: str, id: str, output: str) -> dict[str, Any]:
        told = [
            {"type": "text", "text": f"<system-reminder>\nToday is {day}, {folder}\n</system-reminder>"},
            {"type": "text", "text": f"Fix {folder}/a.py of {day} ({id})\n"},
        ]
        call = {"type": "tool_use", "id": id, "name": "Bash", "input": {}}
        result = {"type": "tool_result", "tool_use_id": id, "content": output}
        said = [{"role": "user", "content": told}, {"role": "assistant", "content": [call]}]
        messages = said if output == "" else [*said, {"role": "user", "content": [result]}]
        return ask(BASH, WRITE, messages=messages[: 1 if output == "" else 3], system=folder, metadata={"user_id": id})

    one = [body("/tmp/x1", "2026-01-31", "0a1b2c3d4e", out) for out in ("", "42 files")]
    two = [body("/home/u/y", "2027-12-01", "9f8e7d6c5b", out) for out in ("", "7 files")]
    await tape_of(vendor, client, tmp_path / "c", *one)
    async with replaying(tmp_path / "c") as url:
        for sent, count in zip(two, (1, 3), strict=True):
            async with client.post(url + MESSAGES, json=sent) as said:
                assert (said.status, await said.json()) == (200, {"messages": count})


async def test_what_was_masked_may_be_another_secret_now(
    vendor: Vendor, client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    vendor.answer = echoes()
    async with recording(vendor, tmp_path / "c", ORIGIN, "password-of-then") as url:
        async with client.post(url + MESSAGES, json=talk("Use password-of-then here")) as said:
            await said.read()
    async with replaying(tmp_path / "c") as url:
        async with client.post(url + MESSAGES, json=talk("Use password-of-now there")) as said:
            assert said.status == 400
        async with client.post(url + MESSAGES, json=talk("Use password-of-now here")) as said:
            assert said.status == 200


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"model": "n"}, "model: recorded m, asked for n"),
        ({"stream": True}, "stream: recorded False, asked for True"),
        ({"tools": [BASH, WRITE]}, "tools: recorded ['Bash'], asked for ['Bash', 'Write']"),
        (talk("Delete all"), "recorded user says: Create it, sent user says: Delete all"),
        (talk("Create it", "Yes", "Go"), "recorded user says: Create it, sent user says: Go"),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_result", "is_error": True}]}]},
            "recorded user says: Create it, sent the failure of a tool",
        ),
        ({"messages": []}, "recorded user says: Create it, sent nothing"),
    ],
)
async def test_a_call_that_does_not_fit_is_told_the_first_difference(
    vendor: Vendor,
    client: aiohttp.ClientSession,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    changed: dict[str, Any],
    said: str,
) -> None:
    await tape_of(vendor, client, tmp_path / "mine.cassette", talk("Create it"))
    async with replaying(tmp_path / "mine.cassette") as url:
        async with client.post(url + MESSAGES, json=talk("Create it") | changed) as answer:
            assert answer.status == 400  # no agent tries that again
            message = (await answer.json())["error"]["message"]
    assert "mine.cassette at call 1 of session 1" in message
    assert said in message
    assert message in caplog.text


async def test_more_calls_than_were_recorded_and_fewer_are_both_told(
    vendor: Vendor, client: aiohttp.ClientSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await tape_of(vendor, client, tmp_path / "c", talk("a"), talk("b"))
    with caplog.at_level(logging.WARNING):
        async with replaying(tmp_path / "c") as url, client.post(url + MESSAGES, json=talk("a")) as said:
            assert said.status == 200
    assert "1 calls of the cassette c were not asked for" in caplog.text
    async with replaying(tmp_path / "c") as url:
        for text, status in (("a", 200), ("b", 200), ("b", 400)):
            async with client.post(url + MESSAGES, json=talk(text)) as said:
                assert said.status == status
                last = await said.json()
        assert "at its end" in last["error"]["message"]


async def test_calls_at_the_same_time_may_come_in_another_order_and_equal_ones_keep_theirs(
    vendor: Vendor, client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    retried = talk("again")
    path = tmp_path / "c"
    async with recording(vendor, path) as url:
        for status, body in ((529, retried), (200, talk("aside", tools=[])), (200, retried)):
            vendor.answer = echoes(status)
            async with client.post(url + MESSAGES, json=body) as said:
                await said.read()
    async with replaying(path) as url:
        for body, status in ((talk("aside", tools=[]), 200), (retried, 529), (retried, 200)):
            async with client.post(url + MESSAGES, json=body) as said:
                assert said.status == status


async def test_each_session_plays_its_own_calls_whichever_comes_first(
    vendor: Vendor, client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    origins = [Origin("sb", name, "model", key=KEY) for name in ("one", "two")]
    path = tmp_path / "c"
    vendor.answer = echoes()
    upstream = Upstream(base_url=vendor.url)
    route = ModelRoute({"anthropic": upstream}, recorder=Recorder(path, ()))
    contents = {"one": [talk("1st of one"), talk("then")], "two": [talk("2nd of two"), talk("then", "x", "more")]}
    contents["one"][0]["messages"][0]["content"] = "first of one"
    contents["two"][0]["messages"][0]["content"] = "first of two"
    async with serve_tcp(route, origins[0]) as one:
        for body in contents["one"]:
            await (await client.post(one + MESSAGES, json=body)).read()
        async with serve_tcp(_Shared(route), origins[1]) as two:
            for body in contents["two"]:
                await (await client.post(two + MESSAGES, json=body)).read()
    assert [line["session"] for line in lines(path)[1:]] == [1, 1, 2, 2]
    again = ModelRoute({}, replay=Replay(tape.load(path)))
    async with serve_tcp(again, Origin("other", "zwei", "model", key=KEY)) as two:
        async with serve_tcp(_Shared(again), Origin("other", "eins", "model", key=KEY)) as one:
            for place in (0, 1):
                for url, name in ((two, "two"), (one, "one")):
                    async with client.post(url + MESSAGES, json=contents[name][place]) as said:
                        assert said.status == 200
                        assert (await said.json())["messages"] == len(contents[name][place]["messages"])


class _Shared(ModelRoute):
    """The same route for another caller; whoever made it closes it."""

    def __init__(self, route: ModelRoute) -> None:
        self.serve = route.serve  # type: ignore[method-assign]

    async def aclose(self) -> None:
        return None


@pytest.mark.parametrize(
    ("body", "new"),
    [
        ({"input": "Go 12"}, ["user says: Go 0"]),
        ({"input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}]}]}, ["user says: a"]),
        (
            {"input": [{"type": "function_call", "name": "x"}, {"type": "function_call_output", "output": "7"}]},
            ["the result of a tool"],
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": []}, {"role": "tool", "content": "7"}]},
            ["the result of a tool"],
        ),
        ({"messages": [{"role": "user", "content": [{"type": "image"}, 7, None]}]}, ["user gives: image"]),
        ({"messages": "nonsense"}, ["user says: nonsense"]),
        ({"messages": [7, {"role": "user", "content": 7}]}, []),
        ({}, []),
    ],
)
def test_what_is_new_is_found_in_every_dialect(body: dict[str, Any], new: list[str]) -> None:
    assert checks.check("/x", body, Mask(()))["new"] == new


# -- files ------------------------------------------------------------------------------------------

GOOD = '{"session":1,"call":1,"asked":{},"status":200,"headers":{},"events":[],"whole":true}'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no cassette of version 1"),
        ("hello", "no cassette of version 1"),
        ('{"kind":"stockade-cassette","version":2}\n', "no cassette of version 1"),
        (tape.head() + "{", "line 2"),
        (tape.head() + GOOD + "\n" + GOOD.replace('"call":1', '"call":"x"'), "line 3.*call"),
        (tape.head() + GOOD.replace("200", "99"), "line 2.*status"),
        (tape.head() + GOOD.replace('"events":[]', '"nonsense":[]'), "line 2.*nonsense"),
        (tape.head() + GOOD.replace('"events":[]', '"base64":"?"'), "line 2"),
    ],
)
def test_a_faulty_file_is_refused_with_the_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "c"
    path.write_text(text)
    with pytest.raises(UsageError, match=said) as error:
        tape.load(path)
    assert "c" in error.value.message
    assert error.value.hint


def test_a_missing_file_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        ModelRoute.from_settings(Settings.load(home=tmp_path, replay=tmp_path / "none"))


@pytest.mark.parametrize("pair", [("rehearse", "record"), ("record", "replay"), ("rehearse", "replay")])
def test_record_replay_and_rehearse_exclude_each_other(tmp_path: Path, pair: tuple[str, str]) -> None:
    with pytest.raises(SettingsError, match=f"{pair[0]} and {pair[1]}"):
        ModelRoute.from_settings(Settings.load(home=tmp_path, **dict.fromkeys(pair, "hello")))
