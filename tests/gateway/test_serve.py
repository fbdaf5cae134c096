"""``stockade gateway serve``: warrants as credentials, over TCP, with an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from pydantic import SecretStr

from stockade.cli.app import main
from stockade.model.authority import Claims
from stockade_gateway.config import Upstream
from stockade_gateway.route import ModelRoute
from stockade_gateway.serve import Gateway
from stockade_gateway.warrants import Warrants

from .conftest import CANARY, Vendor, ask

pytest.importorskip("stockade_authority", reason="needs stockade-authority")

from stockade_authority.denylist import Denylist
from stockade_authority.keys import Keyring
from stockade_authority.minter import WarrantMinter


@pytest.fixture
async def warrant(tmp_path: Path) -> str:
    return await mint(tmp_path / "home")


async def mint(home: Path, **more: Any) -> str:
    minter = WarrantMinter({"home": home})
    try:
        # A session of tests may take longer than a warrant lives: its times are of now.
        claims = Claims("sb-1", "s", "t", "ann", "claude", 0, "model", time.time() + 600)
        return (await minter.mint(dataclasses.replace(claims, **more))).value
    finally:
        await minter.aclose()


@contextlib.asynccontextmanager
async def serving(vendor: Vendor, warrants: Warrants, **options: Any) -> AsyncIterator[str]:
    upstream = Upstream(base_url=vendor.url, key=SecretStr(CANARY))
    gateway = Gateway(ModelRoute({"anthropic": upstream, "openai": upstream}, warrants=warrants), **options)
    url = await gateway.start("127.0.0.1", 0)
    try:
        yield url
    finally:
        await gateway.stop(1.0)


async def status(url: str, headers: dict[str, str], path: str = "/v1/messages") -> int:
    async with aiohttp.ClientSession() as caller, caller.post(url + path, json=ask(), headers=headers) as said:
        await said.read()
        return said.status


@pytest.fixture
def answering(vendor: Vendor) -> Vendor:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response({"ok": True})

    vendor.answer = answer
    return vendor


@pytest.mark.requirement("L45")
async def test_a_warrant_is_taken_in_both_headers_and_replaced_by_the_hosts_key(
    answering: Vendor, warrant: str, tmp_path: Path
) -> None:
    async with serving(answering, Warrants(tmp_path / "home")) as url:
        assert await status(url, {"Authorization": f"Bearer {warrant}"}) == 200
        assert await status(url, {"x-api-key": warrant}) == 200
        assert await status(url, {"x-api-key": warrant}, "/v1/chat/completions") == 200
    for request in answering.seen:
        assert warrant not in str(request.headers)
        assert CANARY in str(request.headers)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-api-key": "guess"},
        {"Authorization": "Basic dTpw"},
        {"x-api-key": "a.b.c"},
        {"x-api-key": "x" * 7000},
        {"Authorization": "Bearer "},
    ],
)
async def test_without_a_warrant_nothing_is_forwarded(
    answering: Vendor, warrant: str, tmp_path: Path, headers: dict[str, str]
) -> None:
    async with serving(answering, Warrants(tmp_path / "home")) as url:
        assert await status(url, headers) == 401
    assert answering.seen == []


async def test_a_credential_that_is_no_text_is_refused(answering: Vendor, warrant: str, tmp_path: Path) -> None:
    async with serving(answering, Warrants(tmp_path / "home")) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rsplit(":", 1)[1]))
        writer.write(b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nx-api-key: \xff\r\nContent-Length: 2\r\n\r\n{}")
        assert b" 401 " in await reader.readline()
        writer.close()


@pytest.mark.requirement("L45")
async def test_a_warrant_of_another_route_or_a_revoked_one_is_refused(answering: Vendor, tmp_path: Path) -> None:
    home = tmp_path / "home"
    other, gone = await mint(home, audience="data"), await mint(home)
    async with serving(answering, Warrants(home)) as url:
        assert await status(url, {"x-api-key": other}) == 403
        assert await status(url, {"x-api-key": gone}) == 200
        minter = WarrantMinter({"home": home})
        denylist = Denylist(home)
        body = gone.split(".")[1]
        import base64

        jti = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))["jti"]
        denylist.deny({jti: time.time() + 600}, "test")
        assert await status(url, {"x-api-key": gone}) == 401
        denylist.close()
        await minter.aclose()


@pytest.mark.requirement("L45")
async def test_where_the_origin_is_seen_a_warrant_of_another_sandbox_is_refused(
    answering: Vendor, warrant: str, tmp_path: Path
) -> None:
    async with serving(answering, Warrants(tmp_path / "home"), origin_header="X-Sandbox") as url:
        assert await status(url, {"x-api-key": warrant, "X-Sandbox": "sb-1"}) == 200
        assert await status(url, {"x-api-key": warrant, "X-Sandbox": "sb-2"}) == 403
        assert await status(url, {"x-api-key": warrant}) == 403
    assert len(answering.seen) == 1


@pytest.mark.parametrize("published", ["file", "url"])
async def test_the_keys_may_be_a_jwk_set_elsewhere(
    answering: Vendor, warrant: str, tmp_path: Path, published: str
) -> None:
    keys = Keyring(tmp_path / "home" / "keys").jwks()
    place = tmp_path / "jwks.json"
    place.write_text(json.dumps(keys))

    async def give(request: web.BaseRequest) -> web.StreamResponse:
        return web.json_response(keys)

    server = await asyncio.get_running_loop().create_server(web.Server(give), "127.0.0.1", 0)
    where = str(place) if published == "file" else f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/jwks.json"
    async with serving(answering, Warrants(jwks=where)) as url:
        assert await status(url, {"x-api-key": warrant}) == 200
        assert await status(url, {"x-api-key": await mint(tmp_path / "another")}) == 401
    server.close()


@pytest.mark.requirement("L46")
async def test_keys_that_cannot_be_had_are_a_503_and_no_refusal(
    answering: Vendor, warrant: str, tmp_path: Path
) -> None:
    async with serving(answering, Warrants(jwks=str(tmp_path / "none.json"))) as url:
        assert await status(url, {"x-api-key": warrant}) == 503
    assert answering.seen == []


async def test_a_stop_waits_for_running_calls_and_takes_no_more(vendor: Vendor, warrant: str, tmp_path: Path) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        begun.set()
        await go.wait()
        return web.json_response({"ok": True})

    vendor.answer = answer
    gateway = Gateway(ModelRoute({"anthropic": Upstream(base_url=vendor.url)}, warrants=Warrants(tmp_path / "home")))
    url = await gateway.start("127.0.0.1", 0)
    running = asyncio.ensure_future(status(url, {"x-api-key": warrant}))
    await begun.wait()
    stopping = asyncio.ensure_future(gateway.stop(30.0))
    await asyncio.sleep(0)
    with pytest.raises(aiohttp.ClientConnectorError):
        await status(url, {"x-api-key": warrant})
    assert not (await asyncio.wait({running, stopping}, timeout=0.2))[0]
    go.set()
    assert await running == 200
    await stopping
    await gateway.stop(30.0)


async def test_a_call_that_outlasts_the_grace_is_cut_off(vendor: Vendor, warrant: str, tmp_path: Path) -> None:
    begun = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    vendor.answer = answer
    gateway = Gateway(ModelRoute({"anthropic": Upstream(base_url=vendor.url)}, warrants=Warrants(tmp_path / "home")))
    url = await gateway.start("127.0.0.1", 0)
    running = asyncio.ensure_future(status(url, {"x-api-key": warrant}))
    await begun.wait()
    await gateway.stop(0.05)
    with pytest.raises(aiohttp.ClientError):
        await running
    await vendor.gone.wait()


def environment(home: Path, **more: str) -> dict[str, str]:
    hidden = ("STOCKADE_", "ANTHROPIC_", "OPENAI_")
    return {n: v for n, v in os.environ.items() if not n.startswith(hidden)} | {"STOCKADE_HOME": str(home)} | more


@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
async def test_the_command_serves_until_it_is_told_to_stop(
    answering: Vendor, warrant: str, tmp_path: Path, signum: signal.Signals
) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "stockade", "gateway", "serve", "--port", "0"),
        env=environment(tmp_path / "home", ANTHROPIC_BASE_URL=answering.url, ANTHROPIC_API_KEY=CANARY),
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        line = (await process.stdout.readline()).decode()
        assert line.startswith("listening on http://127.0.0.1:"), line
        assert await status(line.split()[-1], {"x-api-key": warrant}) == 200
        process.send_signal(signum)
        out, err = await process.communicate()
        assert process.returncode == 0, err
        assert CANARY not in (out + err).decode()
        assert warrant not in (out + err).decode()
    finally:
        if process.returncode is None:
            process.kill()


def test_the_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        main(["gateway", "serve", "--help"])
    assert done.value.code == 0
    shown = capsys.readouterr().out
    for option in ("--host", "--port", "--jwks", "--origin-header", "--grace"):
        assert option in shown


@pytest.mark.parametrize(
    "argv", [["--port", "70000"], ["--port", "x"], ["--grace", "soon"], ["--jwks", "http://far.example/x"]]
)
def test_a_wrong_option_is_a_usage_error(
    argv: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STOCKADE_HOME", str(tmp_path))
    assert main(["gateway", "serve", *argv]) == 2
    assert capsys.readouterr().err


def test_an_address_in_use_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import socket

    monkeypatch.setenv("STOCKADE_HOME", str(tmp_path))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert main(["gateway", "serve", "--port", str(taken.getsockname()[1])]) == 1
    assert "cannot listen on 127.0.0.1" in capsys.readouterr().err
