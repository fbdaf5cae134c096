"""Forwarding: bytes as they come, the host's credential, status and dialect kept."""

from __future__ import annotations

import asyncio
import io
import logging
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from pydantic import SecretStr

from stockade_gateway.config import Upstream
from stockade_gateway.route import ModelRoute
from stockade_gateway.testing import serve_tcp

from .conftest import CANARY, KEY, ORIGIN, Vendor, ask

PATHS = [("anthropic", "/v1/messages"), ("openai", "/v1/responses")]


@pytest.mark.requirement("F84")
@pytest.mark.parametrize(("dialect", "path"), PATHS)
async def test_the_callers_credential_is_replaced_by_the_hosts(
    vendor: Vendor, forwarding: str, client: aiohttp.ClientSession, dialect: str, path: str
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response({"ok": True}, headers={"request-id": "r1", "x-internal": "no"})

    vendor.answer = answer
    async with client.post(forwarding + path, json=ask(), headers={"Cookie": "a=b", "anthropic-version": "1"}) as said:
        assert (said.status, await said.json()) == (200, {"ok": True})
        assert said.headers["request-id"] == "r1"
        assert "x-internal" not in said.headers
        assert CANARY not in str(said.headers)
    [request] = vendor.seen
    assert request.path == path
    assert CANARY in (request.headers.get("x-api-key", "") + request.headers.get("Authorization", ""))
    assert KEY not in str(request.headers)
    assert "Cookie" not in request.headers


@pytest.mark.requirement("F80")
async def test_a_stream_is_forwarded_as_it_comes(
    vendor: Vendor, forwarding: str, client: aiohttp.ClientSession
) -> None:
    step = asyncio.Queue[bytes | None]()

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        while chunk := await step.get():
            await response.write(chunk)
        return response

    vendor.answer = answer
    step.put_nowait(b"event: one\n\n")
    async with client.post(forwarding + "/v1/messages", json=ask(stream=True)) as said:
        for chunk in (b"event: one\n\n", b": ping\n\n", b"x" * 20000):
            if chunk != b"event: one\n\n":
                step.put_nowait(chunk)
            assert await said.content.readexactly(len(chunk)) == chunk  # before the next one is even made
        step.put_nowait(None)
        assert await said.content.read() == b""


@pytest.mark.requirement("F82")
@pytest.mark.parametrize("status", [400, 401, 402, 429, 500, 529])
async def test_an_upstreams_status_and_body_are_kept(
    vendor: Vendor, forwarding: str, client: aiohttp.ClientSession, status: int
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response({"type": "error"}, status=status, headers={"Retry-After": "7"})

    vendor.answer = answer
    async with client.post(forwarding + "/v1/messages", json=ask()) as said:
        assert (said.status, await said.json(), said.headers["Retry-After"]) == (status, {"type": "error"}, "7")


@pytest.mark.requirement("F81")
async def test_a_silent_stream_gets_comments_at_event_boundaries_only(
    vendor: Vendor, client: aiohttp.ClientSession
) -> None:
    whole = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: half")
        await whole.wait()
        await response.write(b" and half\n\n")
        await asyncio.Event().wait()
        return response

    vendor.answer = answer
    served = ModelRoute({"anthropic": Upstream(base_url=vendor.url)}, ping_time=0.01)
    async with serve_tcp(served, ORIGIN) as url, client.post(url + "/v1/messages", json=ask(stream=True)) as said:
        assert await said.content.readexactly(10) == b"data: half"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):  # ten times the silence that a ping would need
                await said.content.readany()
        whole.set()
        wanted = b" and half\n\n: ping\n\n: ping\n\n"
        assert await said.content.readexactly(len(wanted)) == wanted


async def test_a_silent_answer_that_is_no_stream_gets_no_comments(
    vendor: Vendor, client: aiohttp.ClientSession
) -> None:
    go = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        await response.write(b"{}\n\n")
        await go.wait()
        return response

    vendor.answer = answer
    served = ModelRoute({"anthropic": Upstream(base_url=vendor.url)}, ping_time=0.01)
    async with serve_tcp(served, ORIGIN) as url, client.post(url + "/v1/messages", json=ask()) as said:
        assert await said.content.readexactly(4) == b"{}\n\n"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await said.content.readany()
        go.set()
        assert await said.content.read() == b""


async def test_a_vendor_that_quotes_the_credential_does_not_get_it_into_the_sandbox(
    vendor: Vendor, forwarding: str, client: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        headers = {"anthropic-note": f"key {CANARY}", "anthropic-organization-id": "org", "request-id": "r1"}
        return web.json_response({"error": f"not valid: {CANARY}"}, status=401, headers=headers)

    vendor.answer = answer
    with caplog.at_level(logging.DEBUG):
        async with client.post(forwarding + "/v1/messages", json=ask()) as said:
            assert (said.status, await said.json()) == (401, {"error": "not valid: [credential]"})
            assert said.headers["request-id"] == "r1"
            assert not {"anthropic-note", "anthropic-organization-id"} & {n.lower() for n in said.headers}
    assert CANARY not in caplog.text


async def test_the_query_and_the_body_arrive_as_they_were_sent(
    vendor: Vendor, forwarding: str, client: aiohttp.ClientSession
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response({})

    vendor.answer = answer
    body = b'{ "model": "m",  "a": "\\u00e9" , "big": "' + b"x" * 2_000_000 + b'"}'
    async with client.post(forwarding + "/v1/messages?beta=true", data=io.BytesIO(body)) as said:
        assert said.status == 200
    assert vendor.seen[0].raw_path == "/v1/messages?beta=true"
    assert vendor.bodies == [body]


@pytest.mark.parametrize(
    ("headers", "sent"),
    [({"anthropic-version": "1"}, "x-api-key"), ({}, "Authorization")],
)
async def test_models_are_listed_in_the_callers_dialect(
    vendor: Vendor, forwarding: str, headers: dict[str, str], sent: str
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response({"data": []})

    vendor.answer = answer
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {KEY}"}) as engine:
        async with engine.get(forwarding + "/v1/models", headers=headers) as said:
            assert said.status == 200
    assert CANARY in vendor.seen[0].headers[sent]


async def test_a_proxy_of_the_environment_is_not_used(
    vendor: Vendor, forwarding: str, client: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response({})

    vendor.answer = answer
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with client.post(forwarding + "/v1/messages", json=ask()) as said:
        assert said.status == 200


async def test_a_caller_that_leaves_before_the_first_byte_cancels_the_upstreams_work(
    vendor: Vendor, forwarding: str, client: aiohttp.ClientSession
) -> None:
    begun = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    vendor.answer = answer
    call = asyncio.ensure_future(client.post(forwarding + "/v1/messages", json=ask()))
    await begun.wait()
    call.cancel()
    await vendor.gone.wait()


@pytest.mark.slow
async def test_more_calls_than_a_clients_usual_pool_run_at_once(vendor: Vendor, forwarding: str) -> None:
    here = asyncio.Barrier(120)

    async def answer(request: web.Request) -> web.StreamResponse:
        await here.wait()
        return web.json_response({})

    vendor.answer = answer
    connector = aiohttp.TCPConnector(limit=0)

    async def call(engine: aiohttp.ClientSession) -> int:
        async with engine.post(forwarding + "/v1/messages", json=ask()) as said:
            return said.status

    async with aiohttp.ClientSession(headers={"x-api-key": KEY}, connector=connector) as engine:
        assert await asyncio.gather(*(call(engine) for _ in range(120))) == [200] * 120


async def test_a_redirect_is_not_followed(vendor: Vendor, forwarding: str, client: aiohttp.ClientSession) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        raise web.HTTPTemporaryRedirect(vendor.url + "/elsewhere")

    vendor.answer = answer
    async with client.post(forwarding + "/v1/messages", json=ask()) as said:
        assert said.status == 502
    assert len(vendor.seen) == 1


async def test_a_client_that_leaves_cancels_the_upstreams_work(
    vendor: Vendor, forwarding: str, client: aiohttp.ClientSession
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"first")
        await asyncio.Event().wait()
        return response

    vendor.answer = answer
    async with client.post(forwarding + "/v1/messages", json=ask()) as said:
        assert await said.content.readexactly(5) == b"first"
        said.close()
    await vendor.gone.wait()


async def test_an_upstream_that_breaks_off_is_no_clean_end(
    vendor: Vendor, forwarding: str, client: aiohttp.ClientSession
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"half")
        assert request.transport is not None
        request.transport.close()
        return response

    vendor.answer = answer
    with pytest.raises(aiohttp.ClientError):
        async with client.post(forwarding + "/v1/messages", json=ask()) as said:
            await said.read()


@pytest.mark.parametrize(("dialect", "path"), PATHS)
async def test_an_upstream_out_of_reach_is_a_502_in_the_callers_dialect_without_secrets(
    client: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture, dialect: str, path: str
) -> None:
    nowhere = {dialect: Upstream(base_url="http://127.0.0.1:1", key=SecretStr(CANARY))}
    with caplog.at_level(logging.DEBUG):
        async with serve_tcp(ModelRoute(nowhere), ORIGIN) as url, client.post(url + path, json=ask()) as said:
            body: dict[str, Any] = await said.json()
    assert said.status == 502
    assert "upstream" in body["error"]["message"]
    assert CANARY not in caplog.text + str(body) + repr(nowhere)
