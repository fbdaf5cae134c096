"""Ctrl-C and its relatives: the first one asks, the second one ends the process."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GRACE = 10.0
"""Seconds that a polite request may take before the task is cancelled."""


class Interrupts:
    """Turns the first signal into an orderly end of one task.

    By default that is its cancellation; within `politely`, a coroutine of the caller's choice. The
    second signal ends the process at once: the sandbox sees its channel close and ends itself.
    """

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._task = task
        self._ask: Callable[[], Awaitable[object]] | None = None
        self._asking: asyncio.Task[None] | None = None
        self.signum = 0

    @contextmanager
    def politely(self, ask: Callable[[], Awaitable[object]]) -> Iterator[None]:
        """While this is open, the first signal awaits ``ask`` (for example, to cancel the turn)."""
        self._ask = ask
        try:
            yield
        finally:
            self.finish()

    def finish(self) -> None:
        """Only cleaning up is left: the first signal changes the exit status, and interrupts nothing."""
        self._ask = _nothing
        if self._asking is not None:
            self._asking.cancel()

    def on_signal(self, signum: int) -> None:
        """Handle one signal; called on the event loop."""
        if self.signum:
            os._exit(128 + signum)
        self.signum = signum
        if os.isatty(2):
            with suppress(OSError):  # the terminal may be what went away
                os.write(2, b"\r\x1b[KStopping. Once more to leave at once.\n")
        if self._ask is None:
            self._task.cancel()
        else:
            self._asking = asyncio.get_running_loop().create_task(self._politely(self._ask))

    async def _politely(self, ask: Callable[[], Awaitable[object]]) -> None:
        """``ask``, then the task is expected to end by itself; after `GRACE` it is cancelled."""
        try:
            async with asyncio.timeout(GRACE):
                await ask()
                await asyncio.wait([self._task])
        except Exception:
            logging.getLogger(__name__).warning("the request to stop failed; stopping harder", exc_info=True)
            self._task.cancel()


async def _nothing() -> None:
    return None


def run_interruptible(work: Callable[[Interrupts], Coroutine[Any, Any, int]]) -> int:
    """Run ``work`` on a new event loop; return its exit status, or 128 + the signal that ended it.

    A signal that this process was told to ignore (``nohup``, a background job) stays ignored.
    """

    async def guarded() -> int:
        task = asyncio.current_task()
        assert task is not None
        interrupts = Interrupts(task)
        loop = asyncio.get_running_loop()
        for signum in _SIGNALS:
            if signal.getsignal(signum) is not signal.SIG_IGN:
                loop.add_signal_handler(signum, interrupts.on_signal, signum)
        try:
            code = await work(interrupts)
        except asyncio.CancelledError:
            if not interrupts.signum:
                raise
            code = 1
        return 128 + interrupts.signum if interrupts.signum else code

    return asyncio.run(guarded())
