"""Finding and ending everything of one sandbox on this host.

A sandbox's processes are known by what the system says about them now, never by what a record says: the
init and its wrapper by ``--id ID`` on their command line, everything else by ``STOCKADE_SANDBOX=ID`` in
its environment, and all their descendants.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from stockade.inside import proc, tree
from stockade.inside.proc import Process

ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")


def find(sandbox: str, *, tops: bool = True) -> dict[int, Process]:
    """The live processes of a sandbox, never this process or one it descends from.

    Without ``tops`` its outermost process is left out: the one that holds the rest together.
    """
    if not ID.fullmatch(sandbox):
        return {}
    table = proc.snapshot()
    inside = {pid for pid in table if _is_inside(pid, sandbox)}
    found = proc.marked(f"STOCKADE_SANDBOX={sandbox}".encode(), table, inside)
    for pid in _ancestry(table):
        found.pop(pid, None)
    if not tops:
        for pid in inside:
            if table[pid].parent not in inside:
                found.pop(pid, None)
    return found


def _is_inside(pid: int, sandbox: str) -> bool:
    try:
        words = Path("/proc", str(pid), "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    # The very words that the driver starts it with, in their order.
    wanted = [b"-m", b"stockade.inside", b"--id", sandbox.encode()]
    return any(words[at : at + 4] == wanted for at, word in enumerate(words) if word == b"-m")


def _ancestry(table: Mapping[int, Process]) -> list[int]:
    line, pid = [], os.getpid()
    while pid in table and pid not in line:
        line.append(pid)
        pid = table[pid].parent
    return line


async def end(sandbox: str, *, grace: float) -> list[Process]:
    """End everything of the sandbox; what could not be killed.

    The outermost process comes last: as long as it lives, even stopped, whatever daemonizes stays its
    descendant and is found, also without a mark.
    """
    await tree.end(lambda: find(sandbox, tops=False), grace=grace)
    return await tree.end(lambda: find(sandbox), grace=grace)
