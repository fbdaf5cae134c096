"""One line a call in ``$STOCKADE_HOME/evidence/model-calls.jsonl``: who used how much, and never what was said.

In a file of its own: an agent can make calls without end, and must not be able to push out other evidence.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stockade.runtime.evidence import EvidenceLog

log = logging.getLogger("stockade.gateway")

PAUSE = 0.05
"""Seconds in which lines gather: a thread and a lock for each of them would cost more than the call."""
BACKLOG = 10_000
"""Lines that wait for the disk; older ones are dropped and counted in a line of kind ``gap``."""


class Meter:
    """Writes the lines of one gateway, in the order of the calls' ends, without holding up a call."""

    def __init__(self, home: Path) -> None:
        self._log = EvidenceLog(home, name="model-calls")
        self._waiting: deque[Mapping[str, Any]] = deque()
        self._missed = 0
        self._writing: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()

    def add(self, line: Mapping[str, Any]) -> None:
        """Have a line written soon. To be called in the event loop."""
        if len(self._waiting) >= BACKLOG:
            self._waiting.popleft()
            self._missed += 1
        self._waiting.append(line)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.ensure_future(self._write())

    async def aclose(self) -> None:
        """Wait until everything is written. Idempotent."""
        self._hurry.set()
        if self._writing is not None:
            await asyncio.wait({self._writing})

    async def _write(self) -> None:
        while self._waiting:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), PAUSE)
            lines = list(self._waiting)
            self._waiting.clear()
            if self._missed:
                lines.insert(0, {"time": round(time.time(), 3), "kind": "gap", "missed": self._missed})
                self._missed = 0
            try:
                await asyncio.to_thread(self._log.extend, lines)
            except OSError:
                log.exception("%d lines of the meter could not be written", len(lines))
