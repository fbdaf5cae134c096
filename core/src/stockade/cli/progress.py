"""A line that moves while nothing else is printed."""

from __future__ import annotations

import asyncio
import contextlib
import time

from stockade.cli.output import Output

FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
TICK = 0.125
"""Seconds between two frames."""
PATIENCE = 0.5
"""Seconds of silence before the line appears; `MID_LINE_PATIENCE` when text has not ended its line."""
MID_LINE_PATIENCE = 2.0
_ERASE = b"\r\x1b[K"


class Progress:
    """A spinner with what is going on and for how long. Use from one event loop.

    ``shares_line`` tells that the answer is printed on the same terminal; without ``draws`` nothing is
    ever shown. ``mid_line`` is set by the renderer: while the answer stands in the middle of a line,
    drawing there would erase it.
    """

    def __init__(self, out: Output, *, shares_line: bool, draws: bool = True) -> None:
        self._out = out
        self._shares_line = shares_line
        self._started = self._quiet_since = time.monotonic()
        self._drawn = False
        self.label = "starting the sandbox"
        self.mid_line = False
        self._task = asyncio.get_running_loop().create_task(self._run()) if draws else None

    def frame(self, now: float) -> bytes:
        """What to write at this moment: the next frame, or nothing."""
        silence = now - self._quiet_since
        lead = b""
        if self.mid_line:
            if not self._shares_line or silence < MID_LINE_PATIENCE:
                return b""
            # The rest of the line will start a new one; that is better than a terminal that looks dead.
            lead, self.mid_line = b"\n", False
        elif silence < PATIENCE:
            return b""
        self._drawn = True
        sign = FRAMES[int(now / TICK) % len(FRAMES)]
        return lead + _ERASE + f"{sign} {self.label}, {now - self._started:.0f} s".encode()

    def erase(self, now: float) -> None:
        """Something is about to be printed: queue the removal of the line."""
        self._quiet_since = now
        if self._drawn:
            self._drawn = False
            self._out.queue(_ERASE)

    async def aclose(self) -> None:
        """Stop and remove the line. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await self._task
            self._task = None
        self.erase(time.monotonic())

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            if frame := self.frame(time.monotonic()):
                await self._out.write(frame)
