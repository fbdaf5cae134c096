"""Sends records to observers, each through its own bounded queue and task (F88, F89)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from stockade.contracts.lifecycle import Observer, Record

log = logging.getLogger("stockade.observers")

BACKLOG = 10_000
"""Records that wait for one observer; older ones are dropped and counted in a ``gap`` record."""
TIME_LIMIT = 30.0
"""Seconds for one ``on_event``."""


class Hub:
    """All observers of a kernel."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._feeds = [_Feed(observer) for observer in observers]
        self._seq = 0

    def publish(
        self, kind: str, *, sandbox: str = "", session: str = "", turn: str = "", data: Mapping[str, Any] | None = None
    ) -> None:
        """Hand a record to every observer; never waits, never raises."""
        self._seq += 1
        if self._feeds:
            record = Record(self._seq, time.time(), kind, sandbox, session, turn, data or {})
            for feed in self._feeds:
                feed.put(record)

    @property
    def wanted(self) -> bool:
        """Whether anyone watches."""
        return bool(self._feeds)

    async def aclose(self, timeout: float) -> None:
        """Deliver what waits, for at most ``timeout`` seconds, and stop."""
        await asyncio.gather(*(feed.aclose(timeout) for feed in self._feeds))


class _Feed:
    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._queue: deque[Record] = deque()
        self._missed = 0
        self._wake = asyncio.Event()
        self._closing = False
        self._task = asyncio.create_task(self._run(), name=f"stockade-observer-{type(observer).__name__}")

    def put(self, record: Record) -> None:
        if len(self._queue) >= BACKLOG:
            self._queue.popleft()
            self._missed += 1
        self._queue.append(record)
        self._wake.set()

    async def _run(self) -> None:
        while True:
            while self._queue:
                record = self._queue.popleft()
                if self._missed:
                    missed, self._missed = self._missed, 0
                    await self._deliver(Record(record.seq - 1, record.time, "gap", data={"missed": missed}))
                await self._deliver(record)
            if self._closing:
                return
            self._wake.clear()
            await self._wake.wait()

    async def _deliver(self, record: Record) -> None:
        try:
            async with asyncio.timeout(TIME_LIMIT):
                await self._observer.on_event(record)
        except Exception:
            log.exception("observer %s failed on %s", type(self._observer).__name__, record.kind)

    async def aclose(self, timeout: float) -> None:
        self._closing = True
        self._wake.set()
        done, _ = await asyncio.wait({self._task}, timeout=timeout)
        if not done:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=timeout)
