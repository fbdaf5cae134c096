"""Forwards one call to its upstream: bytes as they come, status and dialect kept, the host's credential."""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import Sequence
from functools import lru_cache

import aiohttp
from aiohttp import web
from yarl import URL

from stockade_gateway import dialects, headers
from stockade_gateway.config import Upstream
from stockade_gateway.taps import Tap
from stockade_gateway.transport import break_off

log = logging.getLogger("stockade.gateway")

PING_TIME = 15.0
"""Seconds of an event stream's silence before a comment is sent, so that nobody takes it for dead (F81)."""
MAX_ERROR = 1024 * 1024
"""Bytes of an upstream's error that are kept."""
PAUSES = (0.2, 1.0)
"""Seconds before each further attempt to connect."""
LARGE = 256 * 1024
"""Bytes of a body that are sent in pieces, so that other calls get their turn."""

PING = b": ping\n\n"
_BOUNDARIES = (b"\n\n", b"\r\r", b"\r\n\r\n")
_BROKEN = (aiohttp.ClientError, TimeoutError, OSError)
_CONNECTING = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
"""Raised before the first byte of a request is sent. Nothing else is tried again: the vendor may be at work on it."""
_HOPELESS = (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError)


class Forwarder:
    """Keeps one client for all sandboxes. Redirects are not followed, proxies of the environment not used."""

    def __init__(self, ping_time: float = PING_TIME, pauses: Sequence[float] = PAUSES) -> None:
        self._ping_time = ping_time
        self._pauses = pauses
        self._client: aiohttp.ClientSession | None = None

    async def forward(
        self,
        request: web.BaseRequest,
        dialect: str,
        body: bytes,
        upstream: Upstream,
        taps: Sequence[Tap] = (),
    ) -> web.StreamResponse:
        """Answer ``request`` from ``upstream``. An upstream that breaks off mid-stream breaks the answer off too.

        Cancelling it, as the server does when the caller leaves, drops the connection to the upstream.
        """
        try:
            answer = await self.ask(request, dialect, body, upstream)
        except _BROKEN as error:
            return _unreachable(dialect, error)
        try:
            if 300 <= answer.status < 400:
                return dialects.error(dialect, 502, "the upstream answered with a redirect, which is not followed")
            if answer.status >= 400:
                return await _error(dialect, answer, upstream, taps)
            return await self._pass_on(request, dialect, answer, upstream, taps)
        finally:
            answer.close()

    async def ask(
        self, request: web.BaseRequest, dialect: str, body: bytes, upstream: Upstream
    ) -> aiohttp.ClientResponse:
        """The upstream's answer, of which only the head has come. The caller closes it.

        Tries again only when no connection could be made. Raises what aiohttp raises.
        """
        query = request.rel_url.raw_query_string
        target = URL(upstream.base_url + dialects.path_of(request) + (f"?{query}" if query else ""), encoded=True)
        sent = headers.of_request(request, dialect, upstream)
        for pause in (*self._pauses, None):
            try:
                return await self._session().request(
                    request.method,
                    target,
                    data=body if 0 < len(body) < LARGE else io.BytesIO(body) if body else None,
                    headers=sent,
                    allow_redirects=False,
                    timeout=_timeout(upstream.connect_timeout, upstream.silence_timeout),
                )
            except _CONNECTING as error:
                if pause is None or isinstance(error, _HOPELESS):
                    raise
                log.info("no connection to the upstream for %s (%s): trying again", dialect, type(error).__name__)
                await asyncio.sleep(pause)
        raise AssertionError("unreachable")

    async def _pass_on(
        self,
        request: web.BaseRequest,
        dialect: str,
        answer: aiohttp.ClientResponse,
        upstream: Upstream,
        taps: Sequence[Tap],
    ) -> web.StreamResponse:
        kept = headers.of_answer(answer, upstream)
        if answer.content_type == "text/event-stream":
            response = web.StreamResponse(status=answer.status, headers=kept)
            # What a comment would do in the middle of compressed data nobody knows.
            ping_time = self._ping_time if "Content-Encoding" not in answer.headers else None
            return await self._stream(request, answer, response, b"", ping_time, taps)
        try:
            first = await answer.content.readany()
        except _BROKEN as error:
            return _unreachable(dialect, error)
        if answer.content.at_eof():  # small, as most are: one write instead of three
            for tap in taps:
                tap.head(answer.status, kept)
                tap.data(first)
                tap.end(True)
            return web.Response(status=answer.status, headers=kept, body=first)
        response = web.StreamResponse(status=answer.status, headers=kept)
        response.content_length = answer.content_length
        return await self._stream(request, answer, response, first, None, taps)

    async def _stream(
        self,
        request: web.BaseRequest,
        answer: aiohttp.ClientResponse,
        response: web.StreamResponse,
        chunk: bytes,
        ping_time: float | None,
        taps: Sequence[Tap],
    ) -> web.StreamResponse:
        """Chunks as they come, after ``chunk``, which has."""
        for tap in taps:
            tap.head(answer.status, response.headers)
        silence: _Silence | None = None
        whole = False
        try:
            await response.prepare(request)
            silence = _Silence(response, ping_time) if ping_time is not None else None
            while True:
                if chunk:
                    for tap in taps:
                        tap.data(chunk)
                    if silence is not None:
                        silence.broken_by(chunk)
                    await response.write(chunk)
                try:
                    chunk = await answer.content.readany()
                except _BROKEN as error:
                    # Headers are out: the only honest ending is a broken connection, not a clean end.
                    log.warning("the upstream broke off: %s", type(error).__name__)
                    break_off(request)
                    return response
                if not chunk:
                    break
            whole = True
        finally:
            if silence is not None:
                silence.stop()
            for tap in taps:
                tap.end(whole)
        await response.write_eof()
        return response

    def _session(self) -> aiohttp.ClientSession:
        if self._client is None:
            self._client = aiohttp.ClientSession(
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


class _Silence:
    """Sends a comment whenever an event stream has been silent for a while, between two events only."""

    def __init__(self, response: web.StreamResponse, ping_time: float) -> None:
        self._response = response
        self._time = ping_time
        self._tail = b""
        self._loop = asyncio.get_running_loop()
        self._heard = self._loop.time()
        self._timer: asyncio.TimerHandle | None = self._loop.call_later(ping_time, self._look)
        self._ping: asyncio.Task[None] | None = None

    def broken_by(self, chunk: bytes) -> None:
        """Before a chunk is written."""
        self._tail = chunk[-4:] if len(chunk) >= 4 else (self._tail + chunk)[-4:]
        self._heard = self._loop.time()

    def stop(self) -> None:
        """No more comments. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        now = self._loop.time()
        if now - self._heard >= self._time:
            self._heard = now
            stuck = self._ping is not None and not self._ping.done()  # the caller takes nothing
            if not stuck and (not self._tail or self._tail.endswith(_BOUNDARIES)):
                self._ping = asyncio.ensure_future(self._send())
        self._timer = self._loop.call_later(self._heard + self._time - now, self._look)

    async def _send(self) -> None:
        try:
            await self._response.write(PING)
        except (ConnectionError, RuntimeError):
            log.debug("the caller left, or the answer ended, before a comment")


@lru_cache
def _timeout(connect: float, silence: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=None, connect=connect, sock_read=silence)


def _unreachable(dialect: str, error: Exception) -> web.Response:
    log.warning("the upstream for %s cannot be reached: %s", dialect, type(error).__name__)
    if isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ConnectionTimeoutError):
        return dialects.error(dialect, 504, "the model's upstream did not answer in time")
    said = f"the model's upstream cannot be reached: {type(error).__name__}; the host's network or base URL is at fault"
    return dialects.error(dialect, 502, said)


async def _error(dialect: str, answer: aiohttp.ClientResponse, upstream: Upstream, taps: Sequence[Tap]) -> web.Response:
    """An upstream's refusal, read whole: vendors and proxies like to quote the credential that they refuse."""
    body = b""
    try:
        while len(body) < MAX_ERROR and (chunk := await answer.content.readany()):
            body += chunk
    except _BROKEN as error:
        return _unreachable(dialect, error)
    if upstream.key is not None:
        body = body.replace(upstream.key.get_secret_value().encode(), b"[credential]")
    body, kept = body[:MAX_ERROR], headers.of_answer(answer, upstream)
    for tap in taps:
        tap.head(answer.status, kept)
        tap.data(body)
        tap.end(True)
    return web.Response(status=answer.status, body=body, headers=kept)
