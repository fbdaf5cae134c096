"""Forwards one call to its upstream: bytes as they come, status and dialect kept, the host's credential."""

from __future__ import annotations

import asyncio
import logging

import aiohttp
from aiohttp import web
from multidict import CIMultiDict

from stockade_gateway import dialects
from stockade_gateway.config import Upstream

log = logging.getLogger("stockade.gateway")

CONNECT_TIME = 15.0
SILENCE = 600.0
"""Seconds between two chunks of an upstream's answer."""

_REQUEST_HEADERS = ("accept", "content-type", "user-agent", "openai-beta", "anthropic-version", "anthropic-beta")
_RESPONSE_HEADERS = ("content-type", "retry-after", "request-id", "x-request-id", "x-should-retry", "content-encoding")
_RESPONSE_PREFIXES = ("anthropic-", "x-ratelimit-", "openai-")


class Forwarder:
    """Keeps one client for all sandboxes. Redirects are not followed, proxies of the environment not used."""

    def __init__(self) -> None:
        self._client: aiohttp.ClientSession | None = None

    async def forward(
        self, request: web.BaseRequest, dialect: str, body: bytes, upstream: Upstream
    ) -> web.StreamResponse:
        """Answer ``request`` from ``upstream``. An upstream that breaks off mid-stream breaks the answer off too."""
        try:
            async with self._session().request(
                request.method,
                f"{upstream.base_url}{request.path_qs}",
                data=body or None,
                headers=_request_headers(request, dialect, upstream),
                allow_redirects=False,
            ) as answer:
                if 300 <= answer.status < 400:
                    return dialects.error(dialect, 502, "the upstream answered with a redirect, which is not followed")
                response = web.StreamResponse(status=answer.status, headers=_response_headers(answer))
                await response.prepare(request)
                try:
                    async for chunk in answer.content.iter_any():
                        await response.write(chunk)
                except (aiohttp.ClientError, TimeoutError) as error:
                    # Headers are out: the only honest ending is a broken connection, not a clean end.
                    log.warning("the upstream broke off: %s", type(error).__name__)
                    if request.transport is not None:
                        request.transport.abort()
                    raise asyncio.CancelledError from error
                await response.write_eof()
                return response
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            log.warning("the upstream for %s cannot be reached: %s", dialect, type(error).__name__)
            return dialects.error(dialect, 502, f"the upstream cannot be reached: {type(error).__name__}")

    def _session(self) -> aiohttp.ClientSession:
        if self._client is None:
            timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_TIME, sock_read=SILENCE)
            self._client = aiohttp.ClientSession(
                timeout=timeout, auto_decompress=False, trust_env=False, cookie_jar=aiohttp.DummyCookieJar()
            )
        return self._client

    async def aclose(self) -> None:
        """Close the client. Idempotent."""
        if self._client is not None:
            await self._client.close()
            self._client = None


def _request_headers(request: web.BaseRequest, dialect: str, upstream: Upstream) -> CIMultiDict[str]:
    headers = CIMultiDict((n, v) for n, v in request.headers.items() if n.lower() in _REQUEST_HEADERS)
    headers["Accept-Encoding"] = "identity"  # compressed event streams come late
    if upstream.key is not None:
        secret = upstream.key.get_secret_value()
        if upstream.bearer or dialect == "openai":
            headers["Authorization"] = f"Bearer {secret}"
        else:
            headers["x-api-key"] = secret
    return headers


def _response_headers(answer: aiohttp.ClientResponse) -> CIMultiDict[str]:
    return CIMultiDict(
        (name, value)
        for name, value in answer.headers.items()
        if name.lower() in _RESPONSE_HEADERS or name.lower().startswith(_RESPONSE_PREFIXES)
    )
