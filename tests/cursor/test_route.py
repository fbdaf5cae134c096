"""The route over loopback: whom it lets in, what it passes on, and where to."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from stockade import Settings
from stockade.contracts.route import Caller, Origin
from stockade.errors import SettingsError
from stockade.model.authority import Token
from stockade_cursor import route as route_module
from stockade_cursor.route import CursorRoute
from stockade_gateway.testing import serve_tcp
from tests.cursor.backend import Backend, text
from tests.cursor.conftest import KEY, PLACEHOLDER, Session

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

ORIGIN = Origin("sandbox", "s", "cursor", key=PLACEHOLDER)


@asynccontextmanager
async def upstream(handler: Handler) -> AsyncIterator[str]:
    runner = web.ServerRunner(web.Server(handler, access_log=None), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def echo(request: web.BaseRequest) -> web.StreamResponse:
    body = (await request.content.read()).decode()
    return web.json_response({"path": request.raw_path, "headers": dict(request.headers), "body": body})


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        yield session


@pytest.mark.requirement("L70")
@pytest.mark.parametrize(
    "path",
    ["/", "/v1/models", "/wrong/v1/models", f"/{PLACEHOLDER}", f"//{PLACEHOLDER}/v1/models", "/%C3%A9/v1/models"],
)
async def test_who_does_not_show_the_placeholder_reaches_nobody(client: aiohttp.ClientSession, path: str) -> None:
    reached: list[str] = []

    async def note(request: web.BaseRequest) -> web.StreamResponse:
        reached.append(request.raw_path)
        return web.Response()

    async with upstream(note) as url, serve_tcp(CursorRoute(url), ORIGIN) as here:
        async with client.get(URL(here + path, encoded=True)) as answer:
            assert answer.status == 401
    assert reached == []


@pytest.mark.requirement("L70")
async def test_without_a_placeholder_of_the_kernels_nobody_is_let_in(client: aiohttp.ClientSession) -> None:
    async with serve_tcp(CursorRoute("http://127.0.0.1:9"), Origin("sandbox", "s", "cursor")) as here:
        async with client.get(f"{here}//v1/models") as answer:
            assert answer.status == 401


@pytest.mark.requirement("L45")
async def test_where_the_kernel_mints_tokens_a_request_without_one_is_refused(client: aiohttp.ClientSession) -> None:
    caller = Caller()
    origin = Origin("sandbox", "s", "cursor", key=PLACEHOLDER, warranted=True, caller=caller)
    async with upstream(echo) as url, serve_tcp(CursorRoute(url), origin) as here:
        statuses = []
        for token in (None, Token("t", "value"), None):
            caller.token = token
            async with client.get(f"{here}/{PLACEHOLDER}/v1/models") as answer:
                statuses.append(answer.status)
    assert statuses == [401, 200, 401]


async def test_another_host_in_the_request_is_refused(client: aiohttp.ClientSession) -> None:
    async with upstream(echo) as url, serve_tcp(CursorRoute(url), ORIGIN) as here:
        async with client.get(f"{here}/{PLACEHOLDER}/v1/models", headers={"Host": "evil.example"}) as answer:
            assert answer.status == 401


async def test_a_request_arrives_whole_and_without_the_placeholder(client: aiohttp.ClientSession) -> None:
    headers = {"Authorization": f"Bearer {KEY}", "X-Cursor-Odd": "1", "Connection": "X-Hop", "X-Hop": "2", "TE": "gzip"}
    async with upstream(echo) as url, serve_tcp(CursorRoute(url), ORIGIN) as here:
        path = "/a%2Fb/c?d=%20e"
        target = URL(f"{here}/{PLACEHOLDER}{path}", encoded=True)
        async with client.post(target, data="body", headers=headers) as answer:
            told = await answer.json()
    assert (told["path"], told["body"]) == (path, "body")
    assert told["headers"]["Host"] == url.removeprefix("http://")
    assert told["headers"]["Authorization"] == f"Bearer {KEY}"
    assert told["headers"]["X-Cursor-Odd"] == "1"
    assert not {"X-Hop", "TE"} & set(told["headers"])


async def test_an_answer_keeps_its_status_headers_and_encoding(client: aiohttp.ClientSession) -> None:
    async def answer_so(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=418, headers={"X-Odd": "1", "Content-Encoding": "gzip"}, body=b"as it is")

    async with upstream(answer_so) as url, serve_tcp(CursorRoute(url), ORIGIN) as here:
        async with client.get(f"{here}/{PLACEHOLDER}/x") as answer:
            assert (answer.status, answer.headers["X-Odd"]) == (418, "1")
            assert answer.headers["Content-Encoding"] == "gzip"
            assert await answer.read() == b"as it is"


@pytest.mark.requirement("F80")
async def test_a_stream_is_passed_on_as_it_comes_and_a_broken_one_breaks(client: aiohttp.ClientSession) -> None:
    seen = asyncio.Event()

    async def stream(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"first")
        await seen.wait()
        assert request.transport is not None
        request.transport.close()
        return response

    async with upstream(stream) as url, serve_tcp(CursorRoute(url), ORIGIN) as here:
        async with client.post(f"{here}/{PLACEHOLDER}/agent.v1.AgentService/RunSSE") as answer:
            assert await answer.content.readany() == b"first"
            seen.set()
            with pytest.raises(aiohttp.ClientPayloadError):
                await answer.content.readany()


async def test_a_caller_who_leaves_ends_the_request_upstream(client: aiohttp.ClientSession) -> None:
    gone, started = asyncio.Event(), asyncio.Event()

    async def hang(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"first")
        started.set()
        try:
            while True:
                await response.write(b".")
                await asyncio.sleep(0.01)
        except ConnectionError:
            gone.set()
            raise

    async with upstream(hang) as url, serve_tcp(CursorRoute(url), ORIGIN) as here:
        answer = await client.post(f"{here}/{PLACEHOLDER}/x")
        await started.wait()
        answer.close()
        await asyncio.wait_for(gone.wait(), 10)


async def test_redirects_and_absent_backends_are_said_and_not_followed(client: aiohttp.ClientSession) -> None:
    async def away(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=302, headers={"Location": "http://evil.example/"})

    async with upstream(away) as url:
        async with serve_tcp(CursorRoute(url), ORIGIN) as here, client.get(f"{here}/{PLACEHOLDER}/x") as answer:
            assert (answer.status, "redirect" in await answer.text()) == (502, True)
    async with serve_tcp(CursorRoute(url), ORIGIN) as here, client.get(f"{here}/{PLACEHOLDER}/x") as answer:
        assert (answer.status, "cannot be reached" in await answer.text()) == (502, True)


async def test_a_body_over_the_cap_is_refused(client: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route_module, "MAX_BODY", 10)
    async with upstream(echo) as url, serve_tcp(CursorRoute(url), ORIGIN) as here:
        async with client.post(f"{here}/{PLACEHOLDER}/x", data="x" * 11) as answer:
            assert answer.status == 413


@pytest.mark.parametrize(
    ("path", "host"),
    [("/v1/models", "https://api.cursor.com"), ("/agent.v1.AgentService/RunSSE", "https://api2.cursor.sh")],
)
async def test_without_settings_it_goes_to_the_vendors_hosts_and_nowhere_else(
    client: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch, path: str, host: str
) -> None:
    asked: list[str] = []

    async def refuse(self: Any, method: str, url: Any, **more: Any) -> None:
        asked.append(str(url))
        raise OSError("no network in tests")

    route = CursorRoute.from_settings(Settings.load())
    async with serve_tcp(route, ORIGIN) as here:
        with monkeypatch.context() as patched:
            patched.setattr(route, "_session", lambda: type("Client", (), {"request": refuse, "close": route.aclose})())
            async with client.get(f"{here}/{PLACEHOLDER}{path}") as answer:
                assert answer.status == 502
    assert asked == [host + path]


@pytest.mark.parametrize(
    "upstream_url",
    [
        "http://api.example",
        "ftp://127.0.0.1",
        "https://",
        "https://user:secret@host",
        "https://host/../x",
        "x",
        "https://h:p",
    ],
)
def test_an_upstream_that_would_leak_the_key_is_refused_and_not_repeated(upstream_url: str) -> None:
    settings = Settings.load(plugin={"cursor": {"upstream": upstream_url}})
    with pytest.raises(SettingsError) as caught:
        CursorRoute.from_settings(settings)
    assert "secret" not in str(caught.value)


def test_another_upstream_is_said_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        CursorRoute.from_settings(Settings.load(plugin={"cursor": {"upstream": "https://proxy.example/cursor/"}}))
    assert "https://proxy.example/cursor instead of its vendor" in caplog.text


@pytest.mark.needs("cursor", "namespaces")
@pytest.mark.slow
async def test_the_real_bridge_runs_a_turn_through_it(backend: Backend, open_session: Callable[..., Session]) -> None:
    backend.play([text("Hel"), text("lo")])
    async with serve_tcp(CursorRoute(backend.url), ORIGIN) as here:
        session = open_session(here)
        assert (await session.run()).status == "completed"
        await session.engine.aclose()
    assert session.text == "Hello"
    assert not [path for path in backend.paths if PLACEHOLDER in path]
    assert {headers["host"] for _, _, headers in backend.seen} == {backend.url.removeprefix("http://")}
