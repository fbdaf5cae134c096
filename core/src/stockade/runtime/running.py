"""Runs one turn: a sandbox, a slot, a token, the stream, one outcome."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from stockade.errors import Cancelled, EngineFailed, Revoked, SandboxLost, Stalled, StockadeError, TurnFailed
from stockade.model.authority import Claims, SandboxRequest
from stockade.model.events import Ended, Event, Notice
from stockade.model.turn import FileAccess, Outcome
from stockade.runtime import admitting
from stockade.runtime.entry import Entry, Session
from stockade.runtime.joining import join
from stockade.runtime.redact import Redactor
from stockade.runtime.runner import Runner
from stockade.runtime.turns import TurnHandle
from stockade.wire.mux import MuxStream, StreamReset
from stockade.wire.peer import events

log = logging.getLogger("stockade.turns")

CANCEL_TIME = 10.0
"""Seconds for the inside to end a cancelled turn; after that its sandbox is destroyed."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a turn needs besides its sandbox. ``args`` are those of the turn's stream; ``timeout`` in seconds."""

    request: SandboxRequest
    ephemeral: bool
    message: bytes
    entry_point: str
    args: Mapping[str, Any]
    routes: tuple[str, ...]
    timeout: float


class TurnRunner:
    """Runs turns on the sandboxes of a `Runner`."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    async def run(self, handle: TurnHandle, job: Job) -> None:
        """Run to the one outcome; never raises but for cancellation of the whole kernel."""
        cancel = asyncio.ensure_future(handle.cancelling.wait())
        work = asyncio.ensure_future(self._admitted(handle, job, cancel))
        try:
            await asyncio.wait({work, cancel}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done() and not handle.emitted and not handle.opened:
                # It waits for a sandbox or a slot: nothing has to be told to anyone (L73).
                work.cancel()
            await asyncio.wait({work})
            handle.finish(_outcome(work))
        except BaseException:
            work.cancel()
            handle.finish(Outcome("cancelled", "cancelled", "the kernel closed"))
            raise
        finally:
            cancel.cancel()
            await asyncio.wait({work, cancel})

    async def _admitted(self, handle: TurnHandle, job: Job, cancel: asyncio.Future[Any]) -> Outcome:
        shop = self._runner.shop
        async with admitting.turn(shop, handle.id, handle.session, job.request):
            return await self._attempts(handle, job, cancel)

    async def _attempts(self, handle: TurnHandle, job: Job, cancel: asyncio.Future[Any]) -> Outcome:
        """Once, and once more if the sandbox was lost before anything was emitted (L6)."""
        for last in (False, True):
            try:
                return await self._attempt(handle, job, cancel)
            except SandboxLost as error:
                if last or handle.emitted or handle.cancelling.is_set():
                    raise
                log.warning("turn %s: %s; trying once more", handle.id, error.message)
        raise AssertionError("unreachable")

    async def _attempt(self, handle: TurnHandle, job: Job, cancel: asyncio.Future[Any]) -> Outcome:
        runner = self._runner
        while True:
            entry = await runner.acquire(job.request, ephemeral=job.ephemeral, preload=job.entry_point)
            try:
                async with self._slot(entry, handle.session) as session:
                    if not entry.usable:  # L8: it ended while this turn waited
                        continue
                    access = await join(runner.shop, entry, job.request)
                    return await self._on(entry, session, handle, job, cancel, access)
            finally:
                await asyncio.shield(asyncio.ensure_future(runner.release(entry)))

    @contextlib.asynccontextmanager
    async def _slot(self, entry: Entry, name: str) -> AsyncIterator[Session]:
        """One turn a session at a time; one a sandbox where the peer cannot do more (L9, L10)."""
        session = entry.session(name)
        session.waiting += 1
        lock = session.lock if entry.peer is not None and entry.peer.concurrent else entry.slot
        try:
            async with lock:
                yield session
        finally:
            session.waiting -= 1

    async def _on(
        self,
        entry: Entry,
        session: Session,
        handle: TurnHandle,
        job: Job,
        cancel: asyncio.Future[Any],
        access: FileAccess,
    ) -> Outcome:
        runner, peer = self._runner, entry.peer
        assert peer is not None
        session.turn, session.user, session.engine = handle.id, job.request.user, job.request.engine
        session.refused = None
        if access != job.request.file_access:
            handle.add(Notice(f"file access is limited to {access} by a plugin", "warning"))
        args = {
            **job.args,
            "turn": handle.id,
            "session": handle.session,
            "entry": job.entry_point,
            "file_access": access,
            "routes": {name: {"key": session.key} for name in job.routes},
        }
        try:
            if entry.has_revoked(*job.routes):
                raise Revoked(
                    f"a route of sandbox {entry.key!r} that this turn needs was revoked",
                    sandbox=entry.id,
                    hint="Destroy the sandbox; a new one has its routes again.",
                )
            async with runner.tokens.of_turn(entry, session, _claims(entry, handle, job)):
                handle.opened = True
                stream = await peer.open("turn", args)
                await stream.send(job.message)
                await stream.send_end()
                return await self._follow(entry, session, stream, handle, job, cancel)
        except (StreamReset, SandboxLost) as error:
            handle.opened = handle.emitted
            if isinstance(error, StreamReset) and not peer.closed:
                raise EngineFailed(f"the turn was dropped: {error.message}", sandbox=entry.id) from error
            if entry.watch is not None:
                await asyncio.wait({entry.watch})
            raise runner.failure(entry, error) from error
        finally:
            session.turn = ""

    async def _follow(
        self,
        entry: Entry,
        session: Session,
        stream: MuxStream,
        handle: TurnHandle,
        job: Job,
        cancel: asyncio.Future[Any],
    ) -> Outcome:
        """Pass the events on until the outcome, the time limit or a cancel."""
        pump = asyncio.ensure_future(self._pump(entry, stream, handle, job))
        try:
            await asyncio.wait({pump, cancel}, timeout=job.timeout, return_when=asyncio.FIRST_COMPLETED)
            if pump.done():
                outcome = pump.result()
                if outcome.status == "failed" and entry.has_revoked(*job.routes):
                    raise Revoked("a route of this turn was revoked", sandbox=entry.id)
                return _as_refused(outcome, session.refused)
            ended = await self._stop(entry, pump, handle)
            if handle.cancelling.is_set():
                known = ended or Outcome("cancelled")
                return dataclasses.replace(
                    known, status="cancelled", code="cancelled", message="cancelled by the caller", hint=""
                )
            raise Stalled(
                f"the turn did not end within {job.timeout:g} s", sandbox=entry.id, hint="Allow more with --timeout."
            )
        finally:
            pump.cancel()
            await asyncio.wait({pump})
            await stream.reset("cancelled")

    async def _stop(self, entry: Entry, pump: asyncio.Future[Outcome], handle: TurnHandle) -> Outcome | None:
        """Ask the inside to end the turn; destroy the sandbox when it does not (L15 names the others)."""
        assert entry.peer is not None
        with contextlib.suppress(TimeoutError, StockadeError):
            await entry.peer.control("cancel", CANCEL_TIME, turn=handle.id)
        await asyncio.wait({pump}, timeout=CANCEL_TIME)
        if not pump.done():
            await self._runner.end(entry, "cancelled", f"turn {handle.id} did not end when it was cancelled")
            return None
        return pump.result() if not pump.cancelled() and pump.exception() is None else None

    async def _pump(self, entry: Entry, stream: MuxStream, handle: TurnHandle, job: Job) -> Outcome:
        redactor = Redactor(entry.secrets)
        async for batch in events(stream):
            for event in batch:
                for ready in redactor.feed(event):
                    if isinstance(ready, Ended):
                        return ready.outcome
                    handle.add(ready)
                    self._observe(entry, handle, ready)
        raise EngineFailed("the turn ended without an outcome", sandbox=entry.id)

    def _observe(self, entry: Entry, handle: TurnHandle, event: Event) -> None:
        hub = self._runner.shop.hub
        if hub.wanted:
            data = dataclasses.asdict(event)
            hub.publish(data.pop("kind"), sandbox=entry.id, session=handle.session, turn=handle.id, data=data)


def _claims(entry: Entry, handle: TurnHandle, job: Job) -> Claims:
    """What the turn may do on the model route, before any plugin narrows it.

    The model that the caller asked for is no limit: it may be an engine's own short name, and agents ask smaller
    models besides.
    """
    assert entry.sandbox is not None
    return Claims(
        sandbox=entry.id,
        session=handle.session,
        turn=handle.id,
        user=job.request.user,
        engine=job.request.engine,
        tier=entry.sandbox.isolation.tier,
        audience="model",
        expires=min(time.time() + job.timeout, entry.deadline),
        pack=job.request.pack,
    )


def _as_refused(outcome: Outcome, ending: TurnFailed | None) -> Outcome:
    """A failure after a route refused a call: what the route said is the reason, not what the engine made of it."""
    if outcome.status != "failed" or ending is None:
        return outcome
    return dataclasses.replace(outcome, code=ending.code, message=ending.message, hint=ending.hint)


def _outcome(work: asyncio.Future[Outcome]) -> Outcome:
    if work.cancelled():
        return Outcome("cancelled", "cancelled", "cancelled before it started")
    error = work.exception()
    if error is None:
        return work.result()
    if isinstance(error, Cancelled):
        return Outcome("cancelled", "cancelled", error.message, error.hint)
    if isinstance(error, StockadeError):
        return Outcome("failed", error.code, error.message, error.hint)
    log.error("a turn failed unexpectedly", exc_info=error)
    return Outcome(
        "failed", "engine_failed", f"unexpected {type(error).__name__}", "This is a fault in Stockade: see the log."
    )
