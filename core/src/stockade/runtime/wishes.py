"""What one process asks of another's sandbox, through the column ``wish`` of its row.

``destroy`` and ``revoke ROUTE`` are asked; ``done COUNT`` and ``failed WHY`` answer the second. A sandbox that
is gone answers both.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from stockade.errors import DestroyFailed, RevocationUnsupported, SandboxError, SandboxNotFound, StockadeError
from stockade.runtime.registry import Registry, Row
from stockade.runtime.runner import Runner

log = logging.getLogger("stockade.wishes")

POLL = 0.1
"""Seconds between two looks, of the owner and of who asks."""
TIME = 20.0
"""Seconds for the owner to do it."""


async def destroy(registry: Registry, row: Row, reap: Callable[[], Awaitable[object]]) -> None:
    """Have the sandbox ended by its owner, or reaped when that is dead. Raises `DestroyFailed`."""
    if not registry.is_orphan(row):
        registry.update(row.id, wish="destroy")
    try:
        async with asyncio.timeout(TIME):
            while (left := registry.find(row.id)) is not None:
                if registry.is_orphan(left):
                    await reap()
                await asyncio.sleep(POLL)
    except TimeoutError:
        raise DestroyFailed(
            f"sandbox {row.key!r} is still there after {TIME:g} s",
            sandbox=row.id,
            hint="Its owner does not answer: end that process, then `stockade sandboxes reap`.",
        ) from None


async def revoke(registry: Registry, row: Row, route: str) -> int:
    """Have a route closed by the sandbox's owner; returns how many streams were cut.

    Raises `RevocationUnsupported`, `SandboxNotFound` for an owner that is dead, or `SandboxError` for one
    that does not answer.
    """
    if registry.is_orphan(row):
        raise SandboxNotFound(
            f"the process that owned sandbox {row.key!r} is dead", hint="`stockade sandboxes reap` ends what it left."
        )
    try:
        async with asyncio.timeout(TIME):
            while not registry.ask(row.id, f"revoke {route}"):  # behind another wish
                if registry.find(row.id) is None:
                    return 0
                await asyncio.sleep(POLL)
            while (found := registry.find(row.id)) is not None:
                kind, _, said = found.wish.partition(" ")
                if kind in ("done", "failed"):
                    registry.update(row.id, wish="")
                if kind == "failed":
                    raise RevocationUnsupported(said, sandbox=row.id, hint="Destroy the sandbox to cut its network.")
                if kind in ("done", ""):
                    return int(said or 0)
                await asyncio.sleep(POLL)
            return 0
    except TimeoutError:
        raise SandboxError(
            f"the owner of sandbox {row.key!r} did not close the route within {TIME:g} s",
            sandbox=row.id,
            hint="Destroy the sandbox, or end its owner's process: `stockade sandboxes list` shows which.",
        ) from None


async def grant(registry: Registry, owner: str, runner: Runner) -> None:
    """Do what other processes ask of the sandboxes of this one."""
    for row in registry.wishes(owner):
        entry = runner.find(row.id)
        if entry is None:
            continue
        kind, _, route = row.wish.partition(" ")
        log.warning("another process asks of %s: %s", row.id, row.wish)
        if kind == "destroy":
            await runner.end(entry, "cancelled", "destroyed by another process")
            continue
        try:
            answer = f"done {await runner.revoke(entry, route)}"
        except StockadeError as error:
            answer = f"failed {error.message}"
        registry.answer(row, answer)
