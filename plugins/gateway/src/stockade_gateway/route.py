"""The route: checks who calls and what for, then forwards or rehearses."""

from __future__ import annotations

import hmac
import json
import logging
import os
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from stockade import Route, Settings
from stockade.contracts.route import Origin, Stream
from stockade_gateway import dialects
from stockade_gateway.config import Upstream, require, upstreams
from stockade_gateway.forward import Forwarder
from stockade_gateway.rehearsal.script import Script, load
from stockade_gateway.rehearsal.stage import Stage
from stockade_gateway.transport import StreamTransport

log = logging.getLogger("stockade.gateway")

MAX_BODY = 64 * 1024 * 1024
"""Bytes of one request's body."""


class ModelRoute(Route):
    """Answers the model calls of all sandboxes of a kernel, from vendors or from one script."""

    def __init__(self, found: Mapping[str, Upstream], script: Script | None = None) -> None:
        self._upstreams = found
        self._stage = Stage(script) if script is not None else None
        self._forwarder = Forwarder()
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
            self._server = web.Server(self._handle, access_log=None, handler_cancellation=True)
        await StreamTransport(stream, origin).run(self._server())

    async def aclose(self) -> None:
        if self._server is not None:
            await self._server.shutdown(timeout=1.0)
        await self._forwarder.aclose()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        origin: Origin = request.transport.get_extra_info("origin")
        dialect = dialects.dialect_of(request)
        refused = _refusal(request, dialect, origin)
        if refused is not None or dialect is None:
            return refused or dialects.error("anthropic", 404, "not a path of the model")
        body = b""
        if request.method == "POST":
            chunks: list[bytes] = []
            size = 0
            async for chunk in request.content.iter_any():
                size += len(chunk)
                if size > MAX_BODY:
                    return dialects.error(dialect, 413, f"the request is over {MAX_BODY} bytes")
                chunks.append(chunk)
            body = b"".join(chunks)
            if not isinstance(_json(body), dict):
                return dialects.error(dialect, 400, "the request's body is not a JSON object")
        if self._stage is not None:
            return await self._stage.perform(request, dialect, _json(body) if body else {}, origin)
        upstream = self._upstreams.get(dialect)
        if upstream is None:
            return dialects.error(dialect, 404, f"this host has no upstream for the {dialect} dialect")
        return await self._forwarder.forward(request, dialect, body, upstream)


def _refusal(request: web.BaseRequest, dialect: str | None, origin: Origin) -> web.Response | None:
    shown = dialect or "anthropic"
    authorization = request.headers.get("Authorization", "")
    keys = [request.headers.get("x-api-key", ""), authorization.removeprefix("Bearer ").strip()]
    if not origin.key or not any(hmac.compare_digest(k.encode(), origin.key.encode()) for k in keys):
        return dialects.error(shown, 401, "this is not the credential of this session's model route")
    host = request.headers.get("Host", "").rsplit(":", 1)[0]
    if host not in ("127.0.0.1", "localhost") or not request.raw_path.startswith("/"):
        return dialects.error(shown, 403, "only the model can be reached here")
    if dialect is None:
        return dialects.error(shown, 404, f"{request.method} {request.path} is not a path of the model")
    return None


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
