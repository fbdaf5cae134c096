"""Ending process trees for sure: ask, wait, kill, and look again until nothing is left."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Mapping

from stockade.inside import proc
from stockade.inside.proc import Process

SCOPE = "STOCKADE_SCOPE"
"""Variable in the environment of everything that one engine session or one exec starts."""

STUBBORN = 5.0
"""Seconds that SIGKILL may take (a process in an uninterruptible call)."""


def new_scope() -> str:
    """A value of `SCOPE` that nobody else has."""
    return secrets.token_hex(8)


def scope_finder(scope: str, root: Process | None = None) -> Callable[[], Mapping[int, Process]]:
    """Finds what belongs to a scope: what carries its mark, ``root``, and all descendants."""
    entry = f"{SCOPE}={scope}".encode()

    def find() -> Mapping[int, Process]:
        table = proc.snapshot()
        alive = root is not None and root.pid in table and table[root.pid].start == root.start
        return proc.marked(entry, table, (root.pid,) if root is not None and alive else ())

    return find


async def end(find: Callable[[], Mapping[int, Process]], *, grace: float) -> list[Process]:
    """SIGTERM to what ``find`` finds, ``grace`` seconds, then SIGKILL until it finds nothing (L74, F7).

    ``find`` is called in a thread, again and again, so that what forks meanwhile is found too. Returns
    what could not be killed: an empty list, unless a process is stuck in the operating system.
    """
    if not (found := await _look(find)):
        return []
    _send(found, signal.SIGTERM)
    limit = time.monotonic() + grace
    pause = 0.005
    while time.monotonic() < limit:
        await asyncio.sleep(min(pause, max(0.0, limit - time.monotonic())))
        pause = min(pause * 2, 0.1)
        if not (found := await _look(find)):
            return []
    limit = time.monotonic() + STUBBORN
    pause = 0.005
    while found and time.monotonic() < limit:
        _send(found, signal.SIGKILL)
        await asyncio.sleep(pause)
        pause = min(pause * 2, 0.1)
        found = await _look(find)
    return list(found.values())


async def _look(find: Callable[[], Mapping[int, Process]]) -> Mapping[int, Process]:
    found = dict(await asyncio.to_thread(find))
    found.pop(os.getpid(), None)
    return found


def _send(found: Mapping[int, Process], number: int) -> None:
    for process in found.values():
        proc.send(process, number)


async def exit_code(process: subprocess.Popen[bytes]) -> int:
    """The exit code once the process itself has ended, whoever holds its pipes; negative for a signal."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:
        return await asyncio.to_thread(process.wait)
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
    return process.wait()
