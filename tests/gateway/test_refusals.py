"""What the route does not do: other callers, other paths, other hosts, garbage."""

from __future__ import annotations

import asyncio
import io
from typing import Any

import aiohttp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stockade.errors import NotConfigured, SettingsError
from stockade_gateway.config import upstreams
from stockade_gateway.rehearsal.script import load
from stockade_gateway.route import MAX_BODY, ModelRoute
from stockade_gateway.testing import serve_tcp

from .conftest import CANARY, ORIGIN, ask


@pytest.mark.requirement("L70")
@pytest.mark.parametrize("headers", [{}, {"x-api-key": "guess"}, {"Authorization": "Bearer guess"}])
async def test_a_caller_without_the_sessions_placeholder_is_refused(rehearse: Any, headers: dict[str, str]) -> None:
    async with rehearse("talk") as url, aiohttp.ClientSession() as stranger:
        for path, kind in (("/v1/messages", "authentication_error"), ("/v1/responses", "invalid_request_error")):
            async with stranger.post(url + path, json=ask(), headers=headers) as said:
                assert said.status == 401
                assert (await said.json())["error"]["type"] == kind


@pytest.mark.parametrize(
    "path",
    ["/", "/v1/files", "/v1/messages/../files", "/v1/messages/%2e%2e/files", "/v1/messages//", "/v1/messages/batches"],
)
async def test_paths_that_are_not_the_models_are_refused(
    rehearse: Any, client: aiohttp.ClientSession, path: str
) -> None:
    from yarl import URL

    async with rehearse("talk") as url, client.post(URL(url + path, encoded=True), json=ask()) as said:
        assert said.status == 404


@pytest.mark.parametrize(
    "line",
    [
        b"POST http://169.254.169.254/v1/messages HTTP/1.1\r\nHost: 169.254.169.254",
        b"POST /v1/messages HTTP/1.1\r\nHost: evil.example",
        b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443",
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
    async with rehearse("talk") as url, client.post(url + "/v1/messages", data=io.BytesIO(b" " * (MAX_BODY + 1))) as said:
        assert said.status == 413


@given(st.binary(max_size=2000))
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
    [{"anthropic": {"base_url": f"ftp://{CANARY}"}}, {"anthropic": {"key": CANARY}}, {"nonsense": CANARY}],
)
def test_wrong_settings_are_named_and_never_repeated(options: dict[str, Any]) -> None:
    with pytest.raises(SettingsError) as error:
        upstreams(options, {})
    assert CANARY not in str(error.value)
    assert "plugin.gateway" in str(error.value)
