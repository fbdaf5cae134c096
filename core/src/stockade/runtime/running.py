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

from stockade.errors import AuthFailed, Cancelled, EngineFailed, Revoked, SandboxLost, Stalled, StockadeError
from stockade.model.authority import Claims, SandboxRequest, Token
from stockade.model.events import Ended, Event, Notice
from stockade.model.turn import FileAccess, Outcome
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
    model: str | None = None


class TurnRunner:
    """Runs turns on the sandboxes of a `Runner`."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    async def run(self, handle: TurnHandle, job: Job) -> None:
        """Run to the one outcome; never raises but for cancellation of the whole kernel."""
        cancel = asyncio.ensure_future(handle.cancelling.wait())
        work = asyncio.ensure_future(self._attempts(handle, job, cancel))
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
        token: Token | None = None
        if access != job.request.file_access:
            handle.add(Notice(f"file access is limited to {access} by a plugin", "warning"))
        try:
            session.token = token = await self._mint(entry, handle, job)
            args = {
                **job.args,
                "turn": handle.id,
                "session": handle.session,
                "entry": job.entry_point,
                "file_access": access,
                "routes": {name: {"key": session.key} for name in job.routes},
            }
            try:
                handle.opened = True
                stream = await peer.open("turn", args)
                await stream.send(job.message)
                await stream.send_end()
                return await self._follow(entry, stream, handle, job, cancel)
            except (StreamReset, SandboxLost) as error:
                handle.opened = handle.emitted
                if isinstance(error, StreamReset) and not peer.closed:
                    raise EngineFailed(f"the turn was dropped: {error.message}", sandbox=entry.id) from error
                if entry.watch is not None:
                    await asyncio.wait({entry.watch})
                raise runner.failure(entry, error) from error
        finally:
            session.turn = ""
            if token is not None and session.token is token:
                session.token = None
                await asyncio.shield(asyncio.ensure_future(self._revoke(token)))

    async def _follow(
        self, entry: Entry, stream: MuxStream, handle: TurnHandle, job: Job, cancel: asyncio.Future[Any]
    ) -> Outcome:
        """Pass the events on until the outcome, the time limit or a cancel."""
        pump = asyncio.ensure_future(self._pump(entry, stream, handle, job))
        try:
            await asyncio.wait({pump, cancel}, timeout=job.timeout, return_when=asyncio.FIRST_COMPLETED)
            if pump.done():
                outcome = pump.result()
                if outcome.status == "failed" and entry.revoked & {"all", *job.routes}:
                    raise Revoked("a route of this turn was revoked", sandbox=entry.id)
                return outcome
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

    async def _mint(self, entry: Entry, handle: TurnHandle, job: Job) -> Token | None:
        minter = self._runner.minter
        if minter is None:
            return None
        assert entry.sandbox is not None
        claims = Claims(
            sandbox=entry.id,
            session=handle.session,
            turn=handle.id,
            user=job.request.user,
            engine=job.request.engine,
            tier=entry.sandbox.isolation.tier,
            audience="model",
            expires=min(time.time() + job.timeout, entry.deadline),
            models=None if job.model is None else (job.model,),
        )
        try:
            token = await minter.mint(self._runner.shop.boot.hooks.token_claims(claims))
        except StockadeError:
            raise
        except Exception as error:
            raise AuthFailed(f"no token could be minted: {type(error).__name__}", sandbox=entry.id) from error
        self._runner.shop.hub.publish("token_minted", sandbox=entry.id, turn=handle.id, data={"id": token.id})
        return token

    async def _revoke(self, token: Token) -> None:
        assert self._runner.minter is not None
        try:
            await self._runner.minter.revoke([token.id], "the turn is over")
        except Exception:
            log.exception("token %s could not be revoked", token.id)
        self._runner.shop.hub.publish("tokens_revoked", data={"ids": [token.id]})


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
