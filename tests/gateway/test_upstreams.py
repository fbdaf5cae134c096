"""Several upstreams: which one gets a call, when a call is tried again, and how long it may take."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Sequence
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from stockade.errors import NotConfigured, SettingsError
from stockade.settings import Settings
from stockade_gateway.config import Named, Routing, Upstream, read
from stockade_gateway.forward import Forwarder
from stockade_gateway.route import ModelRoute
from stockade_gateway.testing import serve_tcp

from .conftest import CANARY, KEY, ORIGIN, Vendor, ask


def named(url: str, *models: str, dialect: str = "anthropic", **more: Any) -> Named:
    return Named.model_validate({"base_url": url, "models": models, "dialect": dialect, **more})


OWN = Upstream(base_url="http://own")
EXACT = named("http://exact", "big-1")
SHORT = named("http://short", "big*")
LONG = named("http://long", "big-*", "other")
ELSEWHERE = named("http://elsewhere", "*", dialect="openai")


@pytest.mark.parametrize("order", [(EXACT, SHORT, LONG, ELSEWHERE), (ELSEWHERE, LONG, SHORT, EXACT)])
@pytest.mark.parametrize(
    ("model", "wanted"),
    [("big-1", EXACT), ("big-2", LONG), ("bigger", SHORT), ("other", LONG), ("otherwise", OWN), ("small", OWN)],
)
def test_the_most_precise_pattern_decides_whatever_the_order(
    order: Sequence[Named], model: str, wanted: Upstream
) -> None:
    assert Routing({"anthropic": OWN}, order).of("anthropic", model) is wanted


def test_a_dialect_keeps_to_its_own_upstreams() -> None:
    routing = Routing({}, [ELSEWHERE])
    assert routing.of("anthropic", "x") is None
    assert routing.of("openai", "x") is ELSEWHERE
    routing.require("openai")
    with pytest.raises(NotConfigured):
        routing.require("anthropic")


def test_upstreams_come_from_the_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    (tmp_path / "stockade.toml").write_text(
        '[plugin.gateway.upstreams.local]\nbase_url = "http://127.0.0.1:8000/v1"\ndialect = "openai"\n'
        'models = ["qwen-*"]\nsilence_timeout = 30\n'
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STOCKADE_PLUGIN__GATEWAY__UPSTREAMS__LOCAL__KEY", CANARY)
    local = read(Settings.load().options("gateway")).upstreams["local"]
    assert (local.base_url, local.silence_timeout) == ("http://127.0.0.1:8000", 30)
    assert local.key is not None
    assert local.key.get_secret_value() == CANARY
    assert CANARY not in repr(local)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"dialect": "latin"}, "dialect"),
        ({"models": []}, "models"),
        ({"models": ["a*b"]}, "models.0"),
        ({"models": ["a b"]}, "models.0"),
        ({"base_url": f"ftp://{CANARY}"}, "base_url"),
        ({"connect_timeout": 0}, "connect_timeout"),
        ({"silence_timeout": "soon"}, "silence_timeout"),
        ({"nonsense": CANARY}, "nonsense"),
    ],
)
def test_a_wrong_upstream_is_named_and_never_repeated(table: dict[str, Any], said: str) -> None:
    good = {"base_url": "http://x", "dialect": "openai", "models": ["a"]}
    with pytest.raises(SettingsError) as error:
        read({"upstreams": {"mine": good | table}})
    assert f"upstreams.mine.{said}" in str(error.value)
    assert CANARY not in str(error.value)


def test_two_upstreams_with_the_same_model_are_refused() -> None:
    one = {"base_url": "http://x", "dialect": "openai", "models": ["a", "b*"]}
    with pytest.raises(SettingsError, match=r"mine and yours both have the model b\*"):
        read({"upstreams": {"mine": one, "yours": one | {"models": ["b*"]}}})
    read({"upstreams": {"mine": one, "yours": one | {"dialect": "anthropic"}}})


@contextlib.asynccontextmanager
async def second_vendor() -> AsyncIterator[Vendor]:
    fake = Vendor()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", fake.handle)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield fake
    finally:
        await runner.cleanup()


async def test_a_call_goes_to_the_upstream_of_its_model_with_that_ones_key(
    vendor: Vendor, client: aiohttp.ClientSession
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response({"to": str(request.url.port)})

    async with second_vendor() as other:
        vendor.answer = other.answer = answer
        mine = Upstream.model_validate({"base_url": vendor.url, "key": "key-of-the-first"})
        route = ModelRoute({"anthropic": mine}, named=[named(other.url, "big-*", key="key-of-the-second")])
        async with serve_tcp(route, ORIGIN) as url:
            for model, to in (("big-1", other), ("small", vendor)):
                async with client.post(url + "/v1/messages", json=ask() | {"model": model}) as said:
                    assert (await said.json())["to"] in to.url
    assert [request.headers["x-api-key"] for request in vendor.seen] == ["key-of-the-first"]
    assert [request.headers["x-api-key"] for request in other.seen] == ["key-of-the-second"]


@pytest.mark.parametrize("dialect", ["anthropic", "openai"])
async def test_the_list_of_models_has_those_that_calls_are_sent_to(vendor: Vendor, dialect: str) -> None:
    def listing(*names: str) -> Any:
        async def answer(request: web.Request) -> web.StreamResponse:
            return web.json_response({"data": [{"id": name} for name in names]})

        return answer

    headers = {"x-api-key": KEY} if dialect == "anthropic" else {"Authorization": f"Bearer {KEY}"}
    async with second_vendor() as other, aiohttp.ClientSession(headers=headers) as client:
        vendor.answer, other.answer = listing("small", "big-1"), listing("big-1", "big-2", "small")
        route = ModelRoute(
            {dialect: Upstream(base_url=vendor.url)},
            named=[named(other.url, "big-*", dialect=dialect), named("http://127.0.0.1:1", "gone", dialect=dialect)],
        )
        async with serve_tcp(route, ORIGIN) as url, client.get(url + "/v1/models") as said:
            assert [model["id"] for model in (await said.json())["data"]] == ["small", "big-1", "big-2"]


async def test_no_list_of_models_is_a_502(client: aiohttp.ClientSession) -> None:
    nowhere = [named("http://127.0.0.1:1", name) for name in ("a", "b")]
    async with serve_tcp(ModelRoute({}, named=nowhere), ORIGIN) as url, client.get(url + "/v1/models") as said:
        assert said.status == 502


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def test_a_connection_that_cannot_be_made_is_tried_again(client: aiohttp.ClientSession, free_port: int) -> None:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        return web.json_response({"late": True})

    route = ModelRoute({"anthropic": Upstream(base_url=f"http://127.0.0.1:{free_port}")})
    route._forwarder = Forwarder(pauses=[0.05] * 100)
    loop = asyncio.get_running_loop()
    async with serve_tcp(route, ORIGIN) as url:
        call = asyncio.ensure_future(client.post(url + "/v1/messages", json=ask()))
        await asyncio.sleep(0.1)  # some attempts fail first; that they do is the point, not how many
        server = await loop.create_server(web.Server(answer), "127.0.0.1", free_port)
        async with await call as said:
            assert (said.status, await said.json()) == (200, {"late": True})
        server.close()


@pytest.mark.parametrize("byte", [b"", b"H", b"HTTP/1.1 200 OK\r\n"])
async def test_a_call_that_may_have_been_processed_is_never_made_again(
    client: aiohttp.ClientSession, byte: bytes
) -> None:
    calls = 0

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal calls
        calls += 1
        await reader.readuntil(b"}")  # the call has come
        writer.write(byte)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    route = ModelRoute({"anthropic": Upstream(base_url=f"http://127.0.0.1:{port}")})
    async with serve_tcp(route, ORIGIN) as url, client.post(url + "/v1/messages", json={"model": "m"}) as said:
        assert said.status == 502
    assert calls == 1
    server.close()


async def test_a_kept_connection_that_breaks_is_not_taken_for_one_that_was_never_made(
    client: aiohttp.ClientSession,
) -> None:
    calls = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"}"):
            calls.append(head)
            if len(calls) == 2:
                writer.close()
                return
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    route = ModelRoute({"anthropic": Upstream(base_url=f"http://127.0.0.1:{port}")})
    statuses = []
    async with serve_tcp(route, ORIGIN) as url:
        for _ in range(2):
            async with client.post(url + "/v1/messages", json={"model": "m"}) as said:
                statuses.append(said.status)
    assert statuses == [200, 502]
    assert len(calls) == 2
    server.close()


@pytest.mark.parametrize(("path", "dialect"), [("/v1/messages", "anthropic"), ("/v1/responses", "openai")])
async def test_an_upstream_that_does_not_answer_in_time_is_a_504(
    vendor: Vendor, client: aiohttp.ClientSession, path: str, dialect: str
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    vendor.answer = answer
    slow = Upstream(base_url=vendor.url, silence_timeout=0.05)
    async with serve_tcp(ModelRoute({dialect: slow}), ORIGIN) as url, client.post(url + path, json=ask()) as said:
        assert said.status == 504
        assert "in time" in (await said.json())["error"]["message"]


async def test_an_upstream_that_falls_silent_breaks_the_answer_off(
    vendor: Vendor, client: aiohttp.ClientSession
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: 1\n\n")
        await asyncio.Event().wait()
        return response

    vendor.answer = answer
    route = ModelRoute({"anthropic": Upstream(base_url=vendor.url, silence_timeout=0.1)})
    async with serve_tcp(route, ORIGIN) as url, client.post(url + "/v1/messages", json=ask(stream=True)) as said:
        assert await said.content.readexactly(9) == b"data: 1\n\n"
        with pytest.raises(aiohttp.ClientError):
            await said.content.read()


async def test_a_whole_answer_keeps_its_length_so_that_half_of_it_shows(
    vendor: Vendor, client: aiohttp.ClientSession
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response({"a": 1})

    vendor.answer = answer
    async with serve_tcp(ModelRoute({"anthropic": Upstream(base_url=vendor.url)}), ORIGIN) as url:
        async with client.post(url + "/v1/messages", json=ask()) as said:
            assert said.content_length == len(await said.read())
