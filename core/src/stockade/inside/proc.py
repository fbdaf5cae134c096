"""What runs here, read from ``/proc``. Used by the inside program and by drivers on the host."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Process(NamedTuple):
    """A process. ``start`` (clock ticks since boot) with ``pid`` identifies it; a pid alone may be reused."""

    pid: int
    parent: int
    start: int


def read(pid: int) -> Process | None:
    """The process, or None when it has ended. A zombie has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name in brackets may itself hold brackets and spaces.
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    if fields[0] in (b"Z", b"X"):
        return None
    return Process(pid, int(fields[1]), int(fields[19]))


def snapshot() -> dict[int, Process]:
    """All live processes by pid."""
    found = (read(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return {process.pid: process for process in found if process is not None}


def descendants(roots: Iterable[int], table: Mapping[int, Process]) -> set[int]:
    """Pids of the children of ``roots``, their children and so on; without the roots."""
    children: dict[int, list[int]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process.pid)
    found: set[int] = set()
    queue = list(roots)
    while queue:
        for child in children.get(queue.pop(), ()):
            if child not in found:
                found.add(child)
                queue.append(child)
    return found


def carries(pid: int, entry: bytes) -> bool:
    """Whether the process was started with ``NAME=value`` in its environment.

    It survives ``setsid`` and double forks. A process that is not ours to read does not carry it.
    """
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return entry in file.read().split(b"\0")
    except OSError:
        return False


def marked(entry: bytes, table: Mapping[int, Process], roots: Iterable[int] = ()) -> dict[int, Process]:
    """The processes that carry ``entry``, ``roots``, and all their descendants."""
    found = {pid for pid in table if carries(pid, entry)}
    found.update(pid for pid in roots if pid in table)
    found |= descendants(found, table)
    return {pid: table[pid] for pid in found}


def send(process: Process, number: int) -> None:
    """Signal exactly this process.

    One that has ended or whose pid was reused gets nothing; one that may not be signalled shows up in the
    next snapshot.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        try:
            descriptor = os.pidfd_open(process.pid)
        except ProcessLookupError:
            return
        except OSError:
            # No pidfds here (an old kernel or a strict filter): the check and the signal are two steps then.
            if _same(process):
                os.kill(process.pid, number)
            return
        try:
            if _same(process):
                signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)


def _same(process: Process) -> bool:
    now = read(process.pid)
    return now is not None and now.start == process.start
