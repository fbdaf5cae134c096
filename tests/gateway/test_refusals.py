"""What the route does not do: other callers, other paths, other hosts, garbage."""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from yarl import URL

from stockade.contracts.route import Origin
from stockade.errors import NotConfigured, SettingsError
from stockade.settings import Settings
from stockade_gateway import plugin, route
from stockade_gateway.config import upstreams
from stockade_gateway.rehearsal.script import load
from stockade_gateway.route import MAX_BODY, ModelRoute
from stockade_gateway.testing import serve_tcp

from .conftest import CANARY, ORIGIN, ask


@pytest.mark.requirement("L70")
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-api-key": "guess"},
        {"Authorization": "Bearer guess"},
        {"Authorization": f"Basic {ORIGIN.key}"},
    ],
)
async def test_a_caller_without_the_sessions_placeholder_is_refused(rehearse: Any, headers: dict[str, str]) -> None:
    async with rehearse("talk") as url, aiohttp.ClientSession() as stranger:
        for path, kind in (("/v1/messages", "authentication_error"), ("/v1/responses", "invalid_request_error")):
            async with stranger.post(url + path, json=ask(), headers=headers) as said:
                assert said.status == 401
                assert (await said.json())["error"]["type"] == kind


async def test_a_credential_that_is_no_text_is_refused(rehearse: Any) -> None:
    async with rehearse("talk") as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rsplit(":", 1)[1]))
        writer.write(b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nx-api-key: \xff\r\nContent-Length: 0\r\n\r\n")
        assert b" 401 " in await reader.readline()
        writer.close()


@pytest.mark.requirement("L70")
async def test_a_session_without_a_placeholder_is_served_to_nobody() -> None:
    keyless = Origin(sandbox="sb-1", session="s", route="model")
    async with serve_tcp(ModelRoute({}, load("talk")), keyless) as url, aiohttp.ClientSession() as stranger:
        for headers in ({}, {"x-api-key": ""}, {"Authorization": "Bearer "}):
            async with stranger.post(url + "/v1/messages", json=ask(), headers=headers) as said:
                assert said.status == 401


@pytest.mark.parametrize("headers", [{"x-api-key": ORIGIN.key}, {"Authorization": f"bearer {ORIGIN.key}"}])
async def test_the_placeholder_is_taken_in_both_headers(rehearse: Any, headers: dict[str, str]) -> None:
    async with rehearse("talk") as url, aiohttp.ClientSession() as engine:
        async with engine.post(url + "/v1/messages", json=ask(), headers=headers) as said:
            assert said.status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/v1/files",
        "/v1/messages/../files",
        "/v1/messages/%2e%2e/files",
        "/v1/messages%2f..%2ffiles",
        "/v1/mess%61ges",
        "/v1/x/../messages",
        "//v1/messages",
        "/v1/messages//",
        "/v1/messages/batches",
        "/v1/messages;x",
    ],
)
async def test_paths_that_are_not_the_models_are_refused(
    rehearse: Any, client: aiohttp.ClientSession, path: str
) -> None:
    async with rehearse("talk") as url, client.post(URL(url + path, encoded=True), json=ask()) as said:
        assert said.status == 404


@pytest.mark.parametrize(
    "line",
    [
        b"POST http://169.254.169.254/v1/messages HTTP/1.1\r\nHost: 169.254.169.254",
        b"POST /v1/messages HTTP/1.1\r\nHost: evil.example",
        b"POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1.evil.example",
        b"POST http://127.0.0.1/v1/messages HTTP/1.1\r\nHost: 127.0.0.1",
        b"POST /v1/messages HTTP/1.0\r\nX: no host",
        b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443",
        b"CONNECT 127.0.0.1:443 HTTP/1.1\r\nHost: 127.0.0.1:443",
    ],
)
async def test_hosts_that_are_not_the_models_are_refused(rehearse: Any, line: bytes) -> None:
    async with rehearse("talk") as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rsplit(":", 1)[1]))
        writer.write(line + b"\r\nx-api-key: " + ORIGIN.key.encode() + b"\r\nContent-Length: 2\r\n\r\n{}")
        status = (await reader.readline()).split()[1]
        writer.close()
    assert status in (b"403", b"404", b"400")


@pytest.mark.requirement("F82")
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000])
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses", "/v1/messages/count_tokens"])
async def test_a_malformed_body_is_a_400(rehearse: Any, client: aiohttp.ClientSession, path: str, body: bytes) -> None:
    async with rehearse("talk") as url, client.post(url + path, data=body) as said:
        assert said.status == 400
        assert "JSON" in (await said.json())["error"]["message"]


async def test_a_body_over_the_cap_is_a_413(rehearse: Any, client: aiohttp.ClientSession) -> None:
    over = io.BytesIO(b" " * (MAX_BODY + 1))
    async with rehearse("talk") as url, client.post(url + "/v1/messages", data=over) as said:
        assert said.status == 413


async def test_a_body_that_grows_over_the_cap_is_a_413(
    rehearse: Any, client: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def grow() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b" " * 100

    monkeypatch.setattr(route, "MAX_BODY", 1000)
    async with rehearse("talk") as url, client.post(url + "/v1/messages", data=grow()) as said:
        assert said.status == 413


async def test_a_request_that_is_no_http_is_not_quoted_in_the_log(
    rehearse: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        async with rehearse("talk") as url:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rsplit(":", 1)[1]))
            writer.write(b"POST /v1/messages HTTP/1.1\r\nx api key: " + CANARY.encode() + b"\r\n\r\n")
            assert b" 400 " in await reader.readline()
            writer.close()
    assert CANARY not in caplog.text


PARTS = (
    *(b"POST ", b"GET ", b"/v1/messages", b" HTTP/1.1", b"\r\n", b"\r\n\r\n", b"Host: 127.0.0.1", b"x-api-key: "),
    *(ORIGIN.key.encode(), b"Content-Length: 5", b"Transfer-Encoding: chunked", b"5\r\n", b"Upgrade: h2c", b"{}"),
    *(b"Connection: upgrade", b"Expect: 100-continue", b"Content-Encoding: gzip", b"-1", b"\x00", b"\xff"),
)
HTTP = st.lists(st.sampled_from(PARTS), max_size=40).map(b"".join)


@given(st.binary(max_size=2000) | HTTP)
@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
def test_garbage_never_crashes_the_route(data: bytes) -> None:
    async def send() -> int:
        async with serve_tcp(ModelRoute({}, load("talk")), ORIGIN) as url:
            port = int(url.rsplit(":", 1)[1])
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(data)
            writer.write_eof()
            await reader.read()
            writer.close()
            headers = {"x-api-key": ORIGIN.key}
            async with aiohttp.ClientSession(headers=headers) as ok, ok.post(url + "/v1/messages", json=ask()) as said:
                return said.status

    assert asyncio.run(send()) == 200


def test_without_a_key_both_ways_on_are_shown() -> None:
    route = ModelRoute(upstreams({}, {}))
    with pytest.raises(NotConfigured) as error:
        route.preflight("anthropic")
    assert "ANTHROPIC_API_KEY" in error.value.hint
    assert "--rehearse hello" in error.value.hint
    ModelRoute({}, load("hello")).preflight("anthropic")


@pytest.mark.parametrize(
    ("host", "bearer"), [({"ANTHROPIC_API_KEY": CANARY}, False), ({"ANTHROPIC_AUTH_TOKEN": CANARY}, True)]
)
def test_the_vendors_own_variables_configure_it(host: dict[str, str], bearer: bool) -> None:
    found = upstreams({}, {**host, "ANTHROPIC_BASE_URL": "https://proxy.example/anthropic/"})["anthropic"]
    assert (found.base_url, found.bearer) == ("https://proxy.example/anthropic", bearer)
    assert CANARY not in repr(found)


@pytest.mark.parametrize(
    "options",
    [
        {"anthropic": {"base_url": f"ftp://{CANARY}"}},
        {"anthropic": {"base_url": f"http://user:{CANARY}@vendor.example"}},
        {"anthropic": {"base_url": f"http://vendor.example:{CANARY}"}},
        {"anthropic": {"base_url": f"http://vendor.example/\r\n{CANARY}"}},
        {"anthropic": {"base_url": f"http://vendor.example/../{CANARY}"}},
        {"anthropic": {"base_url": "http://vendor.example", "key": f"{CANARY}\r\nX: y"}},
        {"anthropic": {"key": CANARY}},
        {"nonsense": CANARY},
    ],
)
def test_wrong_settings_are_named_and_never_repeated(options: dict[str, Any]) -> None:
    with pytest.raises(SettingsError) as error:
        upstreams(options, {})
    assert CANARY not in str(error.value)
    assert "plugin.gateway" in str(error.value)


@pytest.mark.requirement("L62")
def test_the_operators_key_is_never_sent_to_an_address_from_a_settings_file() -> None:
    options = {"anthropic": {"base_url": "https://elsewhere.example"}}
    found = upstreams(options, {"ANTHROPIC_API_KEY": CANARY, "OPENAI_API_KEY": CANARY})
    assert found["anthropic"].key is None
    assert found["openai"].base_url == "https://api.openai.com"


def test_the_hook_module_offers_one_route() -> None:
    offered = plugin.routes(Settings.load(rehearse="hello"))
    assert list(offered) == ["model"]
    offered["model"].preflight("anthropic")
