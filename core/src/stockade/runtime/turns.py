"""A turn as its caller holds it: events for any number of readers, one outcome, cancel."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections import deque
from collections.abc import AsyncIterator

from stockade.model.events import Ended, Event, Gap
from stockade.model.turn import Outcome

BACKLOG = 50_000
"""Events kept for readers; a reader that is further behind gets a `Gap` (F87)."""


class TurnHandle:
    """Returned by `Kernel.turn`. Iterate for the events; `outcome` for the end.

    Every iterator sees all events from the first (F88). Nobody has to read: the turn runs on, and only
    the newest events are kept.
    """

    def __init__(self, *, id: str, session: str, sandbox: str) -> None:
        self.id = id
        self.session = session
        self.sandbox = sandbox
        self._events: deque[Event] = deque()
        self._first = 0
        self._changed = asyncio.Event()
        self._outcome: Outcome | None = None
        self._started = time.monotonic()
        self.cancelling = asyncio.Event()
        self.opened = False
        self.task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        state = self._outcome.status if self._outcome else "running"
        return f"<Turn {self.id} session={self.session!r} {state}>"

    @property
    def emitted(self) -> bool:
        """Whether any event was seen (L6)."""
        return bool(self._events) or self._first > 0

    async def outcome(self) -> Outcome:
        """Wait for the end. Never raises for a failed turn: look at ``status`` and ``code``."""
        while self._outcome is None:
            await self._wait()
        if self.task is not None and self.task is not asyncio.current_task():
            # The turn has released its sandbox and its token when this returns.
            await asyncio.wait({self.task})
        return self._outcome

    async def cancel(self) -> Outcome:
        """End the turn and wait for its outcome. Idempotent; a finished turn keeps its outcome."""
        self.cancelling.set()
        return await self.outcome()

    async def __aiter__(self) -> AsyncIterator[Event]:
        position = 0
        while True:
            if position < self._first:
                missed, position = self._first - position, self._first
                yield Gap(missed)
            elif position - self._first < len(self._events):
                event = self._events[position - self._first]
                position += 1
                yield event
                if isinstance(event, Ended):
                    return
            else:
                await self._wait()

    # -- used by the kernel ---------------------------------------------------------------------------

    def add(self, event: Event) -> None:
        """One more event. Events after the end are dropped: there is one outcome."""
        if self._outcome is None:
            self._events.append(event)
            if len(self._events) > BACKLOG:
                self._events.popleft()
                self._first += 1
            self._notify()

    def finish(self, outcome: Outcome) -> Outcome:
        """The one outcome, with its seconds; the first stays."""
        if self._outcome is None:
            outcome = dataclasses.replace(outcome, seconds=round(time.monotonic() - self._started, 3))
            self.add(Ended(outcome))
            self._outcome = outcome
            self._notify()
        return self._outcome

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _wait(self) -> None:
        await self._changed.wait()
