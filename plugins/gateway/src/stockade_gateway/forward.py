"""Forwards one call to its upstream: bytes as they come, status and dialect kept, the host's credential."""

from __future__ import annotations

import asyncio
import io
import logging

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from stockade_gateway import dialects
from stockade_gateway.config import Upstream
from stockade_gateway.transport import break_off

log = logging.getLogger("stockade.gateway")

CONNECT_TIME = 15.0
"""Seconds to reach an upstream."""
SILENCE = 600.0
"""Seconds between two chunks of an upstream's answer."""
PING_TIME = 15.0
"""Seconds of an event stream's silence before a comment is sent, so that nobody takes it for dead (F81)."""
MAX_ERROR = 1024 * 1024
"""Bytes of an upstream's error that are kept."""

PING = b": ping\n\n"
_BOUNDARIES = (b"\n\n", b"\r\r", b"\r\n\r\n")

_REQUEST_HEADERS = frozenset({"accept", "content-type", "user-agent", "openai-beta", "idempotency-key"})
_RESPONSE_HEADERS = frozenset(
    {
        "content-type",
        "content-encoding",
        "retry-after",
        "retry-after-ms",
        "request-id",
        "x-request-id",
        "x-should-retry",
    }
)
_RESPONSE_PREFIXES = ("anthropic-", "x-ratelimit-", "openai-")
_ACCOUNT_HEADERS = ("organization", "project")
"""Words in the names of headers that tell whose account it is: no business of a sandbox."""


class Forwarder:
    """Keeps one client for all sandboxes. Redirects are not followed, proxies of the environment not used."""

    def __init__(self, ping_time: float = PING_TIME) -> None:
        self._ping_time = ping_time
        self._client: aiohttp.ClientSession | None = None

    async def forward(
        self, request: web.BaseRequest, dialect: str, body: bytes, upstream: Upstream
    ) -> web.StreamResponse:
        """Answer ``request`` from ``upstream``. An upstream that breaks off mid-stream breaks the answer off too.

        Cancelling it, as the server does when the caller leaves, drops the connection to the upstream.
        """
        try:
            answer = await self._session().request(
                request.method,
                _target(request, upstream),
                data=io.BytesIO(body) if body else None,
                headers=_request_headers(request, dialect, upstream),
                allow_redirects=False,
            )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return _unreachable(dialect, error)
        try:
            if 300 <= answer.status < 400:
                return dialects.error(dialect, 502, "the upstream answered with a redirect, which is not followed")
            if answer.status >= 400:
                return await _error(dialect, answer, upstream)
            return await self._stream(request, answer, upstream)
        finally:
            answer.close()

    async def _stream(
        self, request: web.BaseRequest, answer: aiohttp.ClientResponse, upstream: Upstream
    ) -> web.StreamResponse:
        response = web.StreamResponse(status=answer.status, headers=_response_headers(answer, upstream))
        await response.prepare(request)
        pings = answer.content_type == "text/event-stream" and "Content-Encoding" not in answer.headers
        tail = b""
        reading = asyncio.ensure_future(answer.content.readany())
        try:
            while True:
                await asyncio.wait({reading}, timeout=self._ping_time if pings else None)
                if not reading.done():
                    if not tail or tail.endswith(_BOUNDARIES):
                        await response.write(PING)
                    continue
                try:
                    chunk = reading.result()
                except (aiohttp.ClientError, TimeoutError, OSError) as error:
                    # Headers are out: the only honest ending is a broken connection, not a clean end.
                    log.warning("the upstream broke off: %s", type(error).__name__)
                    break_off(request)
                    return response
                if not chunk:
                    await response.write_eof()
                    return response
                await response.write(chunk)
                tail = (tail + chunk[-4:])[-4:]
                reading = asyncio.ensure_future(answer.content.readany())
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    def _session(self) -> aiohttp.ClientSession:
        if self._client is None:
            timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_TIME, sock_read=SILENCE)
            self._client = aiohttp.ClientSession(
                timeout=timeout,
                # The number of sandboxes is the limit; waiting for a free connection would look like an outage.
                connector=aiohttp.TCPConnector(limit=0),
                auto_decompress=False,
                trust_env=False,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._client

    async def aclose(self) -> None:
        """Close the client. Idempotent."""
        if self._client is not None:
            await self._client.close()
            self._client = None


def _target(request: web.BaseRequest, upstream: Upstream) -> URL:
    query = request.rel_url.raw_query_string
    return URL(upstream.base_url + dialects.path_of(request) + (f"?{query}" if query else ""), encoded=True)


def _unreachable(dialect: str, error: Exception) -> web.Response:
    log.warning("the upstream for %s cannot be reached: %s", dialect, type(error).__name__)
    said = f"the model's upstream cannot be reached: {type(error).__name__}; the host's network or base URL is at fault"
    return dialects.error(dialect, 502, said)


async def _error(dialect: str, answer: aiohttp.ClientResponse, upstream: Upstream) -> web.Response:
    """An upstream's refusal, read whole: vendors and proxies like to quote the credential that they refuse."""
    body = b""
    try:
        while len(body) < MAX_ERROR and (chunk := await answer.content.readany()):
            body += chunk
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        return _unreachable(dialect, error)
    if upstream.key is not None:
        body = body.replace(upstream.key.get_secret_value().encode(), b"[credential]")
    return web.Response(status=answer.status, body=body[:MAX_ERROR], headers=_response_headers(answer, upstream))


def _request_headers(request: web.BaseRequest, dialect: str, upstream: Upstream) -> CIMultiDict[str]:
    headers = CIMultiDict(
        (name, value)
        for name, value in request.headers.items()
        if name.lower() in _REQUEST_HEADERS or name.lower().startswith("anthropic-")
    )
    headers["Accept-Encoding"] = "identity"  # compressed event streams come late
    if upstream.key is not None:
        secret = upstream.key.get_secret_value()
        if upstream.bearer or dialect == "openai":
            headers["Authorization"] = f"Bearer {secret}"
        else:
            headers["x-api-key"] = secret
    return headers


def _response_headers(answer: aiohttp.ClientResponse, upstream: Upstream) -> CIMultiDict[str]:
    secret = upstream.key.get_secret_value() if upstream.key is not None else None
    kept: CIMultiDict[str] = CIMultiDict()
    for name, value in answer.headers.items():
        lower = name.lower()
        useful = lower in _RESPONSE_HEADERS or lower.startswith(_RESPONSE_PREFIXES)
        if useful and not any(word in lower for word in _ACCOUNT_HEADERS) and not (secret and secret in value):
            kept.add(name, value)
    return kept
