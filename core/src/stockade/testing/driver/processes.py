"""What still runs on this machine, by a mark that nothing else carries."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

from stockade.inside import proc


def marked(*marks: str) -> dict[int, str]:
    """The live processes whose command line or environment holds a mark: pids, and what each calls itself."""
    wanted = [mark.encode() for mark in marks]
    found = {}
    for pid in proc.snapshot():
        told = _read(pid, "cmdline") + _read(pid, "environ")
        if pid != os.getpid() and any(mark in told for mark in wanted):
            found[pid] = _read(pid, "comm").decode(errors="replace").strip()
    return found


def command_lines() -> dict[int, bytes]:
    """The command line of every process of this machine."""
    return {pid: _read(pid, "cmdline") for pid in proc.snapshot()}


async def nothing_of(mark: str, seconds: float) -> None:
    """Wait until nothing of ``mark`` runs. Fails with what does after so many seconds."""
    end = time.monotonic() + seconds
    while left := await asyncio.to_thread(marked, mark):
        assert time.monotonic() < end, f"still running after {seconds:g} s: {left}"
        await asyncio.sleep(0.02)


def send(number: signal.Signals, *marks: str) -> None:
    """Signal what carries one of the marks, as far as this user may."""
    for pid in marked(*marks):
        with contextlib.suppress(OSError):
            os.kill(pid, number)


@contextlib.contextmanager
def bystander(mark: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of this machine that has nothing to do with any sandbox."""
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import signal; signal.pause()", mark])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _read(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return b""
