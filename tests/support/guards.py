"""Guards: nothing blocks the event loop, nothing outlives the tests."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path

BLOCKED = 1.0
"""Seconds that one callback may hold the event loop."""
SETTLE = 5.0
"""Seconds within which everything of a sandbox must be gone (issue 2, *Must hold*)."""

blocked: list[str] = []
"""The callbacks of the running test that held its loop for too long."""


def watch_event_loop() -> None:
    """Time every callback of every loop from now on."""
    run = asyncio.Handle._run  # type: ignore[attr-defined]

    def timed(self: asyncio.Handle) -> None:
        start = time.monotonic()
        try:
            run(self)
        finally:
            taken = time.monotonic() - start
            if taken > BLOCKED and threading.current_thread() is threading.main_thread():
                blocked.append(f"{taken:.1f} s in {self!r}")

    asyncio.Handle._run = timed  # type: ignore[attr-defined]


def leftovers(folders: Sequence[str]) -> list[str]:
    """Processes whose environment names one of ``folders`` and that do not end by themselves; killed."""
    deadline = time.monotonic() + SETTLE
    while (found := _find(folders)) and time.monotonic() < deadline:
        threading.Event().wait(0.05)
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return [f"{pid}: {command}" for pid, command in found.items()]


def _find(folders: Sequence[str]) -> dict[int, str]:
    found: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            environ = (entry / "environ").read_bytes()
            if any(folder.encode() in environ for folder in folders):
                found[int(entry.name)] = (
                    (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                )
    return found
