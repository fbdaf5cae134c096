"""Forwarding: bytes as they come, the host's credential, status and dialect kept."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from stockade_gateway.config import Upstream
from stockade_gateway.route import ModelRoute
from stockade_gateway.testing import serve_tcp

from .conftest import CANARY, KEY, ORIGIN, Vendor, ask

PATHS = [("anthropic", "/v1/messages"), ("openai", "/v1/responses")]


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
    from pydantic import SecretStr

    nowhere = {dialect: Upstream(base_url="http://127.0.0.1:1", key=SecretStr(CANARY))}
    with caplog.at_level(logging.DEBUG):
        async with serve_tcp(ModelRoute(nowhere), ORIGIN) as url, client.post(url + path, json=ask()) as said:
            body: dict[str, Any] = await said.json()
    assert said.status == 502
    assert "upstream" in body["error"]["message"]
    assert CANARY not in caplog.text + str(body) + repr(nowhere)
