"""The route: checks who calls and what for, then forwards or rehearses."""

from __future__ import annotations

import hmac
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import web
from aiohttp.http import HttpProcessingError

from stockade import Route, Settings
from stockade.contracts.route import Origin, Stream
from stockade.errors import SettingsError
from stockade_gateway import bodies, dialects, models, prices
from stockade_gateway.accounts import Accounts, Call
from stockade_gateway.cassette import secrets, tape
from stockade_gateway.cassette.recorder import Recorder
from stockade_gateway.cassette.replay import Replay
from stockade_gateway.config import Named, Routing, Upstream, read, upstreams
from stockade_gateway.forward import PING_TIME, Forwarder
from stockade_gateway.metering import Meter
from stockade_gateway.refusals import Refused
from stockade_gateway.rehearsal.script import Script, load
from stockade_gateway.rehearsal.stage import Stage
from stockade_gateway.taps import Tap
from stockade_gateway.transport import StreamTransport
from stockade_gateway.warrants import Warrants

if TYPE_CHECKING:
    from stockade_authority.verify import Warrant

log = logging.getLogger("stockade.gateway")


class _NoQuotes(logging.Filter):
    """Drops the server's complaints about requests that are no HTTP, and about callers who leave.

    The first quote what a sandbox sent, its credential included, and a sandbox could fill the log with both.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], (HttpProcessingError, ConnectionError)))


http_log = logging.getLogger("stockade.gateway.http")
http_log.addFilter(_NoQuotes())

MAX_BODY = 64 * 1024 * 1024
"""Bytes of one request's body."""


class ModelRoute(Route):
    """Answers the model calls of all sandboxes of a kernel, from vendors or from one script."""

    def __init__(
        self,
        found: Mapping[str, Upstream],
        script: Script | None = None,
        *,
        named: Iterable[Named] = (),
        replay: Replay | None = None,
        recorder: Recorder | None = None,
        warrants: Warrants | None = None,
        accounts: Accounts | None = None,
        ping_time: float = PING_TIME,
    ) -> None:
        self._routing = Routing(found, named)
        self._stage: Stage | Replay | None = replay or (Stage(script) if script is not None else None)
        self._recorder = recorder
        self._warrants = warrants or Warrants()
        self._accounts = accounts or Accounts()
        self._forwarder = Forwarder(ping_time)
        self._server: web.Server | None = None

    @classmethod
    def from_settings(cls, settings: Settings) -> ModelRoute:
        """As the settings and the host's variables say.

        Raises `SettingsError`, and `UsageError` for a bad script or cassette.
        """
        chosen = [name for name in ("rehearse", "record", "replay") if getattr(settings, name)]
        if len(chosen) > 1:
            raise SettingsError(f"{' and '.join(chosen)} exclude each other", hint="Give one of them.")
        options = settings.options("gateway")
        table = read(options)
        hidden = secrets.of_environment(os.environ)
        return cls(
            upstreams(options, os.environ),
            load(settings.rehearse) if settings.rehearse else None,
            named=table.upstreams.values(),
            replay=Replay(tape.load(settings.replay), hidden) if settings.replay else None,
            recorder=Recorder(settings.record, hidden) if settings.record else None,
            warrants=Warrants.from_settings(settings, table),
            accounts=Accounts(prices.read(table.prices), Meter(settings.home)),
        )

    @property
    def warrants(self) -> Warrants:
        """What checks the warrants of its calls."""
        return self._warrants

    def preflight(self, dialect: str) -> None:
        if self._recorder is not None:
            self._recorder.open()
        if self._stage is None:
            self._routing.require(dialect)

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
        await self._accounts.aclose()
        await self._warrants.aclose()
        if self._recorder is not None:
            self._recorder.close()
        if isinstance(self._stage, Replay):
            self._stage.close()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        origin: Origin = request.transport.get_extra_info("origin")
        return _refusal(request, origin) or await self.answer(request, origin)

    async def answer(
        self, request: web.BaseRequest, origin: Origin, warrant: Warrant | None = None
    ) -> web.StreamResponse:
        """Answer a caller who has shown that it is ``origin``. Whatever fails is an error in its dialect.

        ``warrant`` is the caller's where it was checked already; else the turn's token is checked here.
        """
        dialect = dialects.dialect_of(request)
        shown = dialects.dialect_for_errors(request)
        if dialect is None:
            said = f"{request.method} {dialects.path_of(request)} is not a path of the model"
            return dialects.error(shown, 404, said)
        rehearsed = self._stage is not None
        with self._accounts.call(request, dialect, origin, rehearsed=rehearsed) as call:
            call.warrant = warrant
            response = await self._answered(request, dialect, origin, call)
            call.answered(response)
            return response

    async def _answered(self, request: web.BaseRequest, dialect: str, origin: Origin, call: Call) -> web.StreamResponse:
        try:
            return await self._answer(request, dialect, origin, call)
        except Refused as refused:
            call.refused(refused)
            return refused.answer(dialect)
        except bodies.BadBody as error:
            return dialects.error(dialect, 400, str(error))
        except (web.RequestPayloadError, aiohttp.ClientPayloadError):
            return dialects.error(dialect, 400, "the request's body is broken off")
        except ConnectionError:
            raise  # the caller has gone
        except Exception:
            log.exception("%s: a model call failed in the gateway", origin.sandbox)
            return dialects.error(dialect, 500, "the gateway failed; its log says why")

    async def _answer(self, request: web.BaseRequest, dialect: str, origin: Origin, call: Call) -> web.StreamResponse:
        body, parsed = b"", {}
        if request.method == "POST":
            received = await _body(request)
            if received is None:
                return dialects.error(dialect, 413, f"the request is over {MAX_BODY} bytes")
            body, parsed = received, bodies.read(received)
        call.warrant = call.warrant or await self._warrants.of(origin)
        if self._stage is not None:
            bodies.refuse_remote(body, parsed)
            call.begin(parsed, len(body))
            return await self._stage.perform(request, dialect, parsed, origin, (call,))
        if request.method == "GET" and len(self._routing.all(dialect)) > 1:
            return await models.merged(self._forwarder, request, dialect, self._routing)
        model = bodies.model_of(parsed) if request.method == "POST" else ""
        upstream = self._routing.of(dialect, model)
        if upstream is None:
            return dialects.error(dialect, 404, f"this host has no upstream for this model in the {dialect} dialect")
        if not upstream.remote_content:
            bodies.refuse_remote(body, parsed)
        call.begin(parsed, len(body))
        taps = (call, *self._taps(request, parsed, origin, upstream))
        return await self._forwarder.forward(request, dialect, body, upstream, taps)

    def _taps(
        self, request: web.BaseRequest, parsed: dict[str, Any], origin: Origin, upstream: Upstream
    ) -> Sequence[Tap]:
        if self._recorder is None:
            return ()
        key = {upstream.key.get_secret_value()} if upstream.key is not None else set()
        return (self._recorder.tap(dialects.path_of(request), parsed, origin, key),)


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


def _refusal(request: web.BaseRequest, origin: Origin) -> web.Response | None:
    """The answer to a caller who is not the engine, or takes this for a way to elsewhere."""
    shown = dialects.dialect_for_errors(request)
    if not _presents(request, origin.key):
        return dialects.error(shown, 401, "this is not the credential of this session's model route")
    host = request.headers.get("Host", "").partition(":")[0]
    if host not in ("127.0.0.1", "localhost") or not request.raw_path.startswith("/"):
        return dialects.error(shown, 403, "only the model can be reached here")
    return None


def _presents(request: web.BaseRequest, key: str) -> bool:
    # A header's value may be any bytes; those that are no text are surrogates in it.
    shown = [value.encode(errors="surrogateescape") for value in presented(request)]
    return bool(key) and any(hmac.compare_digest(value, key.encode()) for value in shown)


def presented(request: web.BaseRequest) -> list[str]:
    """The credentials that a caller shows, in the two ways of the vendors' clients."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    shown = [token.strip() if scheme.lower() == "bearer" else "", request.headers.get("x-api-key", "")]
    return [value for value in shown if value]
