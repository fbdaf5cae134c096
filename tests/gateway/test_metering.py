"""One line a call: who used how much, and nothing of what was said."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web

from stockade.contracts.route import Origin
from stockade.settings import Settings
from stockade_gateway import metering
from stockade_gateway.accounts import Accounts
from stockade_gateway.metering import Meter
from stockade_gateway.rehearsal.script import load
from stockade_gateway.route import ModelRoute
from stockade_gateway.testing import serve_tcp

from .conftest import BASH, CANARY, KEY, ORIGIN, Vendor, ask
from .test_budgets import DELTA, START, answering, said

if TYPE_CHECKING:
    from .warranted import Authority

SPOKEN = "canary-of-the-conversation-5512"


async def call(url: str, path: str = "/v1/messages", **body: Any) -> bytes:
    async with aiohttp.ClientSession(headers={"x-api-key": KEY}) as client:
        async with client.post(url + path, json={**ask(), **body}) as answer:
            return await answer.read()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.requirement("L32")
async def test_a_call_leaves_one_line_with_who_what_and_how_much(authority: Authority, vendor: Vendor) -> None:
    vendor.answer = answering(said(100, 7))
    origin = await authority.origin()
    async with serve_tcp(authority.route(vendor), origin) as url:
        await call(url)
    [line] = lines(authority.evidence)
    assert origin.token is not None
    seconds, first = line.pop("seconds"), line.pop("first_byte_seconds")
    assert 0 < first <= seconds < 30
    assert line.pop("time") > 0 and line.pop("process") > 0
    assert line == {
        "kind": "model_call",
        "sandbox": "sb-1",
        "session": "s",
        "turn": "turn-1",
        "user": "ann",
        "engine": "claude",
        "warrant": origin.token.id,
        "dialect": "anthropic",
        "path": "/v1/messages",
        "model": "m",
        "rehearsed": False,
        "refused": "",
        "status": 200,
        "input_tokens": 100,
        "output_tokens": 7,
        "cache_read_tokens": 0,
        "cache_write_tokens": 0,
        "cost_microdollars": 170,
        "estimated": False,
    }
    assert authority.evidence.stat().st_mode & 0o777 == 0o600


async def test_a_rehearsal_is_metered_and_budgeted_as_the_real_thing(authority: Authority) -> None:
    from stockade_gateway.rehearsal.script import load

    origin = await authority.origin(requests=4)
    route = authority.route()
    assert load("talk").replies
    async with serve_tcp(route, origin) as url:
        for path, more in (
            ("/v1/messages", {}),
            ("/v1/messages", {"stream": True}),
            ("/v1/responses", {"input": "go"}),
            ("/v1/responses", {"input": "go", "stream": True}),
            ("/v1/messages", {}),
        ):
            await call(url, path, tools=[BASH], **more)
    found = lines(authority.evidence)
    assert [line["status"] for line in found] == [200, 200, 200, 200, 429]
    assert all(line["rehearsed"] and not line["estimated"] for line in found)
    assert all(
        line["input_tokens"] > 0 and line["output_tokens"] > 0 and line["cost_microdollars"] for line in found[:4]
    )
    assert (found[4]["refused"], found[4]["input_tokens"], found[4]["cost_microdollars"]) == ("budget", 0, 0)


async def test_a_stream_has_its_first_byte_before_its_end(authority: Authority, vendor: Vendor) -> None:
    go_on = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(START)
        await go_on.wait()
        await response.write(DELTA)
        return response

    vendor.answer = answer
    async with serve_tcp(authority.route(vendor), await authority.origin()) as url:
        async with aiohttp.ClientSession(headers={"x-api-key": KEY}) as client:
            async with client.post(url + "/v1/messages", json=ask(stream=True)) as answered:
                await answered.content.readexactly(len(START))
                assert not authority.evidence.exists()
                go_on.set()
                await answered.read()
    [line] = lines(authority.evidence)
    assert (line["input_tokens"], line["output_tokens"], line["estimated"]) == (100, 40, False)
    assert line["first_byte_seconds"] < line["seconds"]


async def test_a_caller_that_leaves_leaves_a_line(authority: Authority, vendor: Vendor) -> None:
    asked = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    vendor.answer = answer
    async with serve_tcp(authority.route(vendor), await authority.origin()) as url:
        async with aiohttp.ClientSession(headers={"x-api-key": KEY}) as client:
            calling = asyncio.ensure_future(client.post(url + "/v1/messages", json=ask()))
            await asked.wait()
            calling.cancel()
            await vendor.gone.wait()
    [line] = lines(authority.evidence)
    assert (line["status"], line["estimated"], line["output_tokens"], line["first_byte_seconds"]) == (
        None,
        True,
        10,
        None,
    )


@pytest.mark.parametrize("status", [400, 529])
async def test_an_upstreams_error_has_its_status_and_no_tokens(
    authority: Authority, vendor: Vendor, status: int
) -> None:
    vendor.answer = answering({"type": "error"}, status)
    async with serve_tcp(authority.route(vendor), await authority.origin()) as url:
        await call(url)
    [line] = lines(authority.evidence)
    assert (line["status"], line["input_tokens"], line["cost_microdollars"], line["estimated"]) == (status, 0, 0, False)


async def test_a_model_without_a_price_has_no_cost(authority: Authority, vendor: Vendor) -> None:
    vendor.answer = answering(said(5, 5))
    async with serve_tcp(authority.route(vendor), await authority.origin()) as url:
        await call(url, model="unheard-of")
    [line] = lines(authority.evidence)
    assert (line["model"], line["input_tokens"], line["cost_microdollars"]) == ("unheard-of", 5, None)


async def test_without_a_minter_calls_are_metered_as_well(tmp_path: Path) -> None:
    settings = Settings.load(rehearse="talk", home=tmp_path)
    async with serve_tcp(ModelRoute.from_settings(settings), ORIGIN) as url:
        await call(url, model="claude-sonnet-4-5")
    [line] = lines(tmp_path / "evidence" / "model-calls.jsonl")
    assert line["cost_microdollars"] > 0
    assert (line["warrant"], line["turn"]) == ("", "")


@pytest.mark.requirement("L62")
async def test_no_secret_and_nothing_that_was_said_is_in_a_line_or_the_log(
    authority: Authority, vendor: Vendor, caplog: pytest.LogCaptureFixture
) -> None:
    vendor.answer = answering({**said(1, 1), "content": [{"type": "text", "text": SPOKEN}]})
    origin = await authority.origin(requests=2, models=("m",))
    assert origin.token is not None
    with caplog.at_level(logging.DEBUG):
        async with serve_tcp(authority.route(vendor), origin) as url:
            assert SPOKEN.encode() in await call(url, system=SPOKEN)
            await call(url, model="x" * 200 + SPOKEN)
            await call(url)
            await call(url)
            await authority.minter.revoke([origin.token.id], "lost")
            await call(url)
    found = authority.evidence.read_text()
    assert [line["refused"] for line in lines(authority.evidence)] == ["", "denied", "", "budget", "revoked"]
    for secret in (SPOKEN, CANARY, KEY, origin.token.value):
        assert secret not in found
    for secret in (SPOKEN, CANARY, KEY, origin.token.value):
        assert secret not in "".join(r.getMessage() for r in caplog.records if r.name.startswith("stockade"))
    assert SPOKEN not in str(origin.caller.refused)


async def test_strangers_leave_no_lines(tmp_path: Path) -> None:
    route = ModelRoute({}, load("talk"), accounts=Accounts(meter=Meter(tmp_path)))
    stranger = Origin("sb-1", "s", "model", key="another")
    async with serve_tcp(route, stranger) as url:
        await call(url)
    assert not (tmp_path / "evidence").exists()


async def test_lines_that_a_disk_is_too_slow_for_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metering, "BACKLOG", 5)
    meter = Meter(tmp_path)
    for number in range(8):
        meter.add({"kind": "model_call", "number": number})
    await meter.aclose()
    found = lines(tmp_path / "evidence" / "model-calls.jsonl")
    assert (found[0]["kind"], found[0]["missed"]) == ("gap", 3)
    assert [line["number"] for line in found[1:]] == [3, 4, 5, 6, 7]


async def test_a_disk_that_cannot_be_written_stops_no_call(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "evidence").write_text("in the way")
    route = ModelRoute({}, load("talk"), accounts=Accounts(meter=Meter(tmp_path)))
    async with serve_tcp(route, ORIGIN) as url:
        assert b"message" in await call(url)
    assert "could not be written" in caplog.text
