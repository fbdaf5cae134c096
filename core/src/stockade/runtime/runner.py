"""Sandboxes by key: one shared creation, one end, and nothing live that is not registered.

Every decision is made in synchronous code, with no await between the look and the change (L2).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from stockade.contracts.authority import TokenMinter
from stockade.contracts.driver import Driver, Ending
from stockade.errors import (
    ENDINGS,
    Cancelled,
    Denied,
    DestroyFailed,
    SandboxInUse,
    SandboxLost,
    StockadeError,
    TurnFailed,
)
from stockade.model.authority import SandboxRequest
from stockade.runtime import reaper, tunnels
from stockade.runtime.creation import Workshop, create, forget
from stockade.runtime.entry import Entry, Reason
from stockade.runtime.tokens import Tokens

log = logging.getLogger("stockade.runner")

_SAID = {
    "ttl": "reached its time to live",
    "cancelled": "was ended",
    "oom": "ran out of memory",
    "revoked": "was revoked",
}
EVIDENCE_TIME = 1.0
"""Seconds to wait for the driver's word when a channel closed."""


class Runner:
    """The sandboxes of one kernel. ``driver_of`` gives the driver of a name."""

    def __init__(self, shop: Workshop, driver_of: Callable[[str], Driver], minter: TokenMinter | None) -> None:
        self.shop = shop
        self.tokens = Tokens(minter, shop.boot.hooks, shop.hub)
        self._driver_of = driver_of
        self._entries: dict[str, Entry] = {}
        self._closing = False

    # -- getting one -------------------------------------------------------------------------------

    async def acquire(self, request: SandboxRequest, *, ephemeral: bool, preload: str) -> Entry:
        """The live sandbox of ``request.key``, or a shared creation of it (L1).

        The caller counts as a user of the entry until `release`. A cancelled caller leaves the
        creation to the others. Raises what the creation raises; a failed one is not remembered (L3).
        """
        while True:
            if self._closing:
                raise Cancelled("the kernel is closing", sandbox=request.sandbox)
            entry = self._entries.get(request.key)
            if entry is not None and not entry.usable:
                await self._gone(entry)
                continue
            if entry is None:
                entry = self._begin(request, ephemeral=ephemeral, preload=preload)
            assert entry.creation is not None
            entry.users += 1
            try:
                await asyncio.shield(entry.creation)
            except BaseException:
                entry.users -= 1
                raise
            if entry.usable:
                return entry
            entry.users -= 1

    def _begin(self, request: SandboxRequest, *, ephemeral: bool, preload: str) -> Entry:
        limit = self.shop.settings.max_sandboxes
        if len(self._entries) >= limit:
            raise Denied(
                f"this kernel has {len(self._entries)} sandboxes, its limit is {limit}",
                hint="End some (`stockade sandboxes list`), or raise the setting max_sandboxes.",
            )
        entry = self._entries[request.key] = Entry(request, ephemeral=ephemeral)
        entry.creation = asyncio.create_task(self._create(entry, preload), name=f"stockade-create-{entry.id}")
        entry.creation.add_done_callback(lambda task: task.cancelled() or task.exception())
        return entry

    async def _create(self, entry: Entry, preload: str) -> None:
        driver = self._driver_of(entry.request.driver)
        try:
            try:
                await create(self.shop, entry, driver, preload)
            except SandboxInUse:
                other = self.shop.registry.find(entry.key)
                if other is not None and not self.shop.registry.is_orphan(other):
                    raise
                await reaper.reap_now(self.shop.registry, self._driver_of)
                await create(self.shop, entry, driver, preload)
        except BaseException:
            self._evict(entry)
            raise
        entry.watch = asyncio.create_task(self._watch(entry), name=f"stockade-watch-{entry.id}")

    async def release(self, entry: Entry) -> None:
        """One user less; a sandbox that nobody can name again ends with its last user."""
        entry.users -= 1
        if entry.ephemeral and entry.users == 0 and entry.usable:
            await self.end(entry, "cancelled", "its only turn is over")

    def _evict(self, entry: Entry) -> None:
        if self._entries.get(entry.key) is entry:  # L7: never a successor
            del self._entries[entry.key]

    async def _gone(self, entry: Entry) -> None:
        if entry.creation is not None:
            await asyncio.wait({entry.creation})
        if entry.ending is None and entry.peer is not None and self._entries.get(entry.key) is entry:
            self.begin_end(entry, entry.tombstone or "lost", "")
        if entry.ending is not None:
            await asyncio.shield(entry.ending)

    # -- ending one ----------------------------------------------------------------------------------

    async def _watch(self, entry: Entry) -> None:
        """Notice the end: the sandbox, its channel (L4, L5), or its deadline (L14), whichever is first."""
        assert entry.sandbox is not None and entry.peer is not None
        ended = asyncio.ensure_future(entry.sandbox.wait())
        closed = asyncio.ensure_future(entry.peer.wait_closed())
        try:
            left = max(0.0, entry.deadline - time.time())
            done, _ = await asyncio.wait({ended, closed}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                self.begin_end(entry, "ttl", "its time to live is over")
                return
            if not ended.done():
                await asyncio.wait({ended}, timeout=EVIDENCE_TIME)
            reason, evidence = self._reason(entry, ended, closed)
            self.begin_end(entry, reason, evidence)
        finally:
            for task in (ended, closed):
                task.cancel()
            await asyncio.wait({ended, closed})

    @staticmethod
    def _reason(
        entry: Entry, ended: asyncio.Future[Ending], closed: asyncio.Future[StockadeError | None]
    ) -> tuple[Reason, str]:
        evidence = ""
        if ended.done() and ended.exception() is None:
            ending = ended.result()
            evidence = ending.evidence
            if ending.reason in ("oom", "ttl"):
                return ending.reason, evidence
        elif closed.done() and closed.exception() is None:
            evidence = str(closed.result() or "")
        if time.time() >= entry.deadline - 0.25:
            return "ttl", evidence
        return "lost", evidence

    def begin_end(self, entry: Entry, reason: Reason, evidence: str) -> asyncio.Task[Ending]:
        """Start the one end of a live sandbox (L75); the first reason stays."""
        if entry.ending is None:
            entry.reason, entry.evidence = reason, evidence
            others = entry.busy()
            if others:  # L15
                log.warning("%s ends (%s) with turns of sessions %s", entry.id, reason, ", ".join(others))
            entry.ending = asyncio.create_task(self._end(entry), name=f"stockade-end-{entry.id}")
            entry.ending.add_done_callback(lambda task: task.cancelled() or task.exception())
        return entry.ending

    async def end(self, entry: Entry, reason: Reason, evidence: str) -> Ending:
        """End a sandbox in any state and wait for it. A creation finds a tombstone (L72)."""
        if entry.creation is not None and not entry.creation.done():
            entry.tombstone = reason
            await asyncio.wait({entry.creation})
        if entry.peer is None or (entry.creation is not None and entry.creation.done() and entry.watch is None):
            return Ending("destroyed", evidence)
        return await asyncio.shield(self.begin_end(entry, reason, evidence))

    async def _end(self, entry: Entry) -> Ending:
        assert entry.sandbox is not None and entry.peer is not None
        registry = self.shop.registry
        registry.update(entry.id, state="ending")
        await self.cut(entry, "all", entry.reason or "ended")
        try:
            ending = await entry.sandbox.destroy(self.shop.settings.grace)
        except Exception as error:
            # It stays registered; the reaper of this or any later process tries again.
            log.error("%s could not be destroyed: %s", entry.id, error)
            registry.update(entry.id, owner="")
            if isinstance(error, StockadeError):
                raise
            raise DestroyFailed(
                f"sandbox {entry.key!r} could not be destroyed: {error}",
                sandbox=entry.id,
                hint="`stockade sandboxes reap` tries again.",
            ) from error
        finally:
            await entry.peer.aclose()
            self._evict(entry)
        forget(registry, entry)
        self.shop.hub.publish(
            "sandbox_ended", sandbox=entry.id, data={"reason": entry.reason, "evidence": entry.evidence}
        )
        return ending

    async def cut(self, entry: Entry, route: str, reason: str) -> int:
        """Close ``route`` (``"all"``) for good and revoke the tokens of the sandbox; returns how many streams were cut.

        Streams are dropped and routes see no token any more when this first awaits.
        """
        revoking = asyncio.ensure_future(self.tokens.revoke(entry.take_tokens(), reason))
        count = await tunnels.cut(entry, route)
        await revoking
        return count

    async def revoke(self, entry: Entry, route: str) -> int:
        """As `cut`, and what the driver itself has open. A sandbox in creation comes up without the route."""
        count = await self.cut(entry, route, f"route {route} revoked")
        if entry.creation is not None:
            await asyncio.wait({entry.creation})
        if entry.sandbox is not None and entry.usable:
            await entry.sandbox.revoke(route)
        return count

    def failure(self, entry: Entry, error: StockadeError) -> TurnFailed:
        """The typed ending of a turn whose sandbox went away with ``error``."""
        kind = ENDINGS.get(entry.reason or "", SandboxLost)
        message = f"sandbox {entry.key!r} {_SAID.get(entry.reason or '', 'was lost')}"
        detail = entry.evidence or (error.message if kind is SandboxLost else "")
        hint = "Ask for a longer --ttl." if entry.reason == "ttl" else ""
        return kind(f"{message}: {detail}" if detail else message, sandbox=entry.id, hint=hint)

    # -- all of them ----------------------------------------------------------------------------------

    def find(self, name: str) -> Entry | None:
        """The entry with this key or id."""
        found = self._entries.get(name)
        return found or next((e for e in self._entries.values() if e.id == name), None)

    async def end_all(self, reason: Reason, evidence: str) -> None:
        """End every sandbox, those in creation too, and wait. Raises nothing; failures are logged."""
        entries = list(self._entries.values())
        results = await asyncio.gather(*(self.end(e, reason, evidence) for e in entries), return_exceptions=True)
        for entry, result in zip(entries, results, strict=True):
            if isinstance(result, BaseException):
                log.error("%s: %s", entry.id, result)
        watches = [e.watch for e in entries if e.watch is not None]
        if watches:
            await asyncio.wait(watches)

    async def aclose(self) -> None:
        """Make no more sandboxes, and end all as `end_all` does."""
        self._closing = True
        await self.end_all("cancelled", "the kernel closed")
