"""One turn inside: its request, its events, and exactly one outcome."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from stockade.errors import ENDINGS, EngineFailed, ProtocolError, StockadeError, TurnFailed
from stockade.inside.engines import Loader
from stockade.inside.sessions import Session
from stockade.model.events import Ended, Event, encode
from stockade.model.turn import FILE_ACCESS, FileAccess, Outcome, Turn
from stockade.wire.mux import Mux, MuxStream

MAX_MESSAGE = 64 * 1024 * 1024
HIGH_WATER = 128 * 1024
"""Bytes of events waiting for the kernel at which `Outbox.emit` waits."""
INTERRUPT = 2.0
"""Seconds that an engine has to interrupt itself and to return. All of a cancellation takes less than 8."""

log = logging.getLogger("stockade.inside")


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """The arguments of a ``turn`` stream."""

    turn: str
    session: str
    engine: str
    entry: str
    home: str
    model: str | None
    file_access: FileAccess
    add_dirs: tuple[str, ...]
    mcp_servers: Mapping[str, Mapping[str, Any]]
    routes: Mapping[str, str]

    @classmethod
    def parse(cls, args: Mapping[str, Any]) -> TurnRequest:
        """Raises `ProtocolError` for malformed arguments."""
        texts = {name: args.get(name) for name in ("turn", "session", "engine", "entry", "home")}
        for name, value in texts.items():
            if not isinstance(value, str) or not value:
                raise ProtocolError(f"turn without {name}")
        access = args.get("file_access", "read-only")
        if access not in FILE_ACCESS:
            raise ProtocolError(f"turn with file access {access!r}")
        try:
            routes = {str(name): str(route["key"]) for name, route in (args.get("routes") or {}).items()}
        except (AttributeError, KeyError, TypeError) as error:
            raise ProtocolError("turn with malformed routes") from error
        return cls(
            **texts,  # type: ignore[arg-type]
            model=args.get("model") or None,
            file_access=access,
            add_dirs=tuple(args.get("add_dirs") or ()),
            mcp_servers=args.get("mcp_servers") or {},
            routes=routes,
        )


class Outbox:
    """The events of one turn on their way to the kernel: many small ones share a frame."""

    def __init__(self, stream: MuxStream) -> None:
        self._stream = stream
        self._buffer = bytearray()
        self._filled = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._closed = False
        self._failure: StockadeError | None = None
        self._sender = asyncio.create_task(self._send(), name="stockade-outbox")

    async def emit(self, event: Event) -> None:
        """Send one event; wait while the kernel does not keep up.

        After the outcome nothing goes out any more, whatever the engine does (and an engine does not
        send the outcome itself).
        """
        if self._closed or isinstance(event, Ended):
            log.warning("an engine emitted a %s event after its outcome", event.kind)
            return
        if self._failure is not None:
            raise self._failure
        self._buffer += encode(event)
        self._filled.set()
        if len(self._buffer) >= HIGH_WATER:
            self._room.clear()
            await self._room.wait()

    async def finish(self, outcome: Outcome) -> None:
        """Send the outcome as the last event and close the stream. Raises when the kernel is gone."""
        self._closed = True
        self._buffer += encode(Ended(outcome))
        self._filled.set()
        await self._sender
        if self._failure is not None:
            raise self._failure

    def abandon(self) -> None:
        """Nobody listens any more. Idempotent."""
        self._closed = True
        self._sender.cancel()
        self._room.set()

    async def _send(self) -> None:
        try:
            while True:
                await self._filled.wait()
                self._filled.clear()
                data, self._buffer = self._buffer, bytearray()
                last = self._closed
                self._room.set()
                await self._stream.send(data)
                if last:
                    await self._stream.send_end()
                    return
        except StockadeError as error:
            self._failure = error
            self._room.set()


class RunningTurn:
    """A turn from its arrival to its outcome; what ``cancel`` acts on."""

    def __init__(self, request: TurnRequest, session: Session) -> None:
        self.request = request
        self.session = session
        self.cancelled = asyncio.Event()
        self.ended = asyncio.Event()

    async def run(self, stream: MuxStream, mux: Mux, loader: Loader) -> None:
        """Read the message, wait for the session, run the engine, send the outcome."""
        outbox = Outbox(stream)
        dropped = asyncio.create_task(_then(stream.wait_reset(), self.cancelled.set))
        try:
            outcome = await self._outcome(stream, mux, loader, outbox)
            await outbox.finish(outcome)
        finally:
            outbox.abandon()
            dropped.cancel()
            self.ended.set()

    async def _outcome(self, stream: MuxStream, mux: Mux, loader: Loader, outbox: Outbox) -> Outcome:
        try:
            message = await _message(stream)
        except TurnFailed as error:
            return _failed(error)
        if not await _acquire(self.session.lock, self.cancelled):
            return _CANCELLED
        try:
            work = asyncio.create_task(self._work(message, mux, loader, outbox))
            return await self._watch(work)
        finally:
            self.session.lock.release()

    async def _work(self, message: str, mux: Mux, loader: Loader, outbox: Outbox) -> Outcome:
        request, session = self.request, self.session
        engine_class = await loader.load(request.entry)
        endpoints = await session.endpoints(mux, request.routes)
        engine, resume = await session.ensure_engine(engine_class, session.home(request.engine, request.home))
        turn = Turn(
            id=request.turn,
            session=request.session,
            message=message,
            model=request.model,
            file_access=request.file_access,
            routes=endpoints,
            mcp_servers=request.mcp_servers,
            add_dirs=request.add_dirs,
            resume=resume,
        )
        try:
            outcome = await engine.run_turn(turn, outbox.emit)
        except (SystemExit, KeyboardInterrupt) as error:
            raise EngineFailed(f"the engine raised {type(error).__name__}") from error
        if not isinstance(outcome, Outcome):
            raise EngineFailed(f"the engine returned {type(outcome).__name__}, not an Outcome")
        session.remember(outcome.native_session)
        if outcome.status == "failed" and outcome.code not in ENDINGS:
            log.warning("outcome with unknown code %r", outcome.code)
            return dataclasses.replace(outcome, code=EngineFailed.code)
        return outcome

    async def _watch(self, work: asyncio.Task[Outcome]) -> Outcome:
        """The outcome of ``work``, or of cancelling it. An engine that raised is replaced."""
        cancelling = asyncio.create_task(self.cancelled.wait())
        try:
            await asyncio.wait({work, cancelling}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                return await self._interrupt(work)
        except BaseException:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            raise
        finally:
            cancelling.cancel()
        outcome = _result(work)
        if work.cancelled() or work.exception() is not None:
            await self.session.drop_engine()
        return outcome

    async def _interrupt(self, work: asyncio.Task[Outcome]) -> Outcome:
        """Ask the engine, then end its processes, then end the task: each bounded (L61)."""
        engine = self.session.engine
        if engine is not None:
            limit = time.monotonic() + INTERRUPT
            try:
                async with asyncio.timeout(INTERRUPT):
                    await engine.interrupt()
            except Exception:
                log.warning("the engine could not be interrupted", exc_info=True)
            await asyncio.wait({work}, timeout=max(0.0, limit - time.monotonic()))
        await self.session.kill(grace=0.5)
        if not work.done():
            await asyncio.wait({work}, timeout=0.5 if engine is not None else 0)
        if not work.done():
            work.cancel()
            await asyncio.wait({work}, timeout=1)
        await self.session.drop_engine()
        if not work.done() or work.cancelled() or work.exception() is not None:
            return _CANCELLED
        return dataclasses.replace(work.result(), status="cancelled", code="cancelled")


_CANCELLED = Outcome("cancelled", code="cancelled", message="the turn was cancelled")


def _result(work: asyncio.Task[Outcome]) -> Outcome:
    if work.cancelled():
        return _failed(EngineFailed("the engine cancelled its own turn"))
    error = work.exception()
    if error is None:
        return work.result()
    if not isinstance(error, TurnFailed):
        log.error("the engine failed", exc_info=error)
    return _failed(error)


def _failed(error: BaseException) -> Outcome:
    """The outcome for an exception."""
    if isinstance(error, TurnFailed):
        status = "cancelled" if error.code == "cancelled" else "failed"
        return Outcome(status, code=error.code, message=error.message, hint=error.hint)  # type: ignore[arg-type]
    return Outcome(
        "failed",
        code=EngineFailed.code,
        message=f"{type(error).__name__}: {error}",
        hint="The sandbox's log has the traceback.",
    )


async def _message(stream: MuxStream) -> str:
    parts, size = [], 0
    while data := await stream.receive():
        parts.append(data)
        size += len(data)
        if size > MAX_MESSAGE:
            raise ProtocolError(f"a message of more than {MAX_MESSAGE} bytes")
    try:
        return b"".join(parts).decode()
    except UnicodeDecodeError as error:
        raise ProtocolError("the message is not UTF-8") from error


async def _acquire(lock: asyncio.Lock, cancelled: asyncio.Event) -> bool:
    """Take the lock, unless ``cancelled`` is set while waiting (L73)."""
    acquiring = asyncio.create_task(lock.acquire())
    cancelling = asyncio.create_task(cancelled.wait())
    try:
        await asyncio.wait({acquiring, cancelling}, return_when=asyncio.FIRST_COMPLETED)
        taken = acquiring.done() and not cancelled.is_set()
        if not taken:
            await _give_back(lock, acquiring)
        return taken
    except BaseException:
        await _give_back(lock, acquiring)
        raise
    finally:
        cancelling.cancel()


async def _give_back(lock: asyncio.Lock, acquiring: asyncio.Task[bool]) -> None:
    acquiring.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        if await acquiring:
            lock.release()


async def _then(first: Any, after: Callable[[], None]) -> None:
    await first
    after()
