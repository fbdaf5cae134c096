"""The route: checks who calls and what for, then forwards or rehearses."""

from __future__ import annotations

import hmac
import json
import logging
import os
from collections.abc import Mapping
from typing import Any

import aiohttp
from aiohttp import web
from aiohttp.http import HttpProcessingError

from stockade import Route, Settings
from stockade.contracts.route import Origin, Stream
from stockade_gateway import dialects
from stockade_gateway.config import Upstream, require, upstreams
from stockade_gateway.forward import PING_TIME, Forwarder
from stockade_gateway.rehearsal.script import Script, load
from stockade_gateway.rehearsal.stage import Stage
from stockade_gateway.transport import StreamTransport

log = logging.getLogger("stockade.gateway")


class _NoQuotes(logging.Filter):
    """Drops the server's complaints about requests that are no HTTP.

    They quote what a sandbox sent, its credential included, and a sandbox could fill the log with them.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


http_log = logging.getLogger("stockade.gateway.http")
http_log.addFilter(_NoQuotes())

MAX_BODY = 64 * 1024 * 1024
"""Bytes of one request's body."""


class ModelRoute(Route):
    """Answers the model calls of all sandboxes of a kernel, from vendors or from one script."""

    def __init__(
        self, found: Mapping[str, Upstream], script: Script | None = None, *, ping_time: float = PING_TIME
    ) -> None:
        self._upstreams = found
        self._stage = Stage(script) if script is not None else None
        self._forwarder = Forwarder(ping_time)
        self._server: web.Server | None = None

    @classmethod
    def from_settings(cls, settings: Settings) -> ModelRoute:
        """As the settings and the host's variables say. Raises `SettingsError`, `UsageError` for a bad script."""
        found = upstreams(settings.options("gateway"), os.environ)
        return cls(found, load(settings.rehearse) if settings.rehearse else None)

    def preflight(self, dialect: str) -> None:
        if self._stage is None:
            require(self._upstreams, dialect)

    async def serve(self, stream: Stream, origin: Origin) -> None:
        if self._server is None:
            # A caller that leaves must not leave its call running upstream: somebody pays for it.
            self._server = web.Server(self._handle, access_log=None, handler_cancellation=True, logger=http_log)
        await StreamTransport(stream, origin).run(self._server())

    async def aclose(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.shutdown(timeout=1.0)
        await self._forwarder.aclose()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        origin: Origin = request.transport.get_extra_info("origin")
        try:
            return await self._answer(request, origin)
        except (web.RequestPayloadError, aiohttp.ClientPayloadError):
            return dialects.error(dialects.dialect_for_errors(request), 400, "the request's body is broken off")
        except ConnectionError:
            raise  # the caller has gone
        except Exception:
            log.exception("%s: a model call failed in the gateway", origin.sandbox)
            return dialects.error(dialects.dialect_for_errors(request), 500, "the gateway failed; its log says why")

    async def _answer(self, request: web.BaseRequest, origin: Origin) -> web.StreamResponse:
        dialect = dialects.dialect_of(request)
        refused = _refusal(request, dialect, origin)
        if refused is not None:
            return refused
        assert dialect is not None
        body, parsed = b"", {}
        if request.method == "POST":
            received = await _body(request)
            if received is None:
                return dialects.error(dialect, 413, f"the request is over {MAX_BODY} bytes")
            body, parsed = received, _json(received)
            if not isinstance(parsed, dict):
                return dialects.error(dialect, 400, "the request's body is not a JSON object")
        if self._stage is not None:
            return await self._stage.perform(request, dialect, parsed, origin)
        upstream = self._upstreams.get(dialect)
        if upstream is None:
            return dialects.error(dialect, 404, f"this host has no upstream for the {dialect} dialect")
        return await self._forwarder.forward(request, dialect, body, upstream)


async def _body(request: web.BaseRequest) -> bytes | None:
    """The body; ``None`` when it is, or says that it is, over the cap."""
    if (request.content_length or 0) > MAX_BODY:
        return None
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.content.iter_any():
        size += len(chunk)
        if size > MAX_BODY:
            return None
        chunks.append(chunk)
    return b"".join(chunks)


def _refusal(request: web.BaseRequest, dialect: str | None, origin: Origin) -> web.Response | None:
    """The answer to a caller who is not the engine, or wants what is not the model."""
    shown = dialects.dialect_for_errors(request)
    if not _presents(request, origin.key):
        return dialects.error(shown, 401, "this is not the credential of this session's model route")
    host = request.headers.get("Host", "").partition(":")[0]
    if host not in ("127.0.0.1", "localhost") or not request.raw_path.startswith("/"):
        return dialects.error(shown, 403, "only the model can be reached here")
    if dialect is None:
        return dialects.error(shown, 404, f"{request.method} {dialects.path_of(request)} is not a path of the model")
    return None


def _presents(request: web.BaseRequest, key: str) -> bool:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    shown = [request.headers.get("x-api-key", ""), token.strip() if scheme.lower() == "bearer" else ""]
    # A header's value may be any bytes; those that are no text are surrogates in it.
    return bool(key) and any(hmac.compare_digest(s.encode(errors="surrogateescape"), key.encode()) for s in shown)


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
