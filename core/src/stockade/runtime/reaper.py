"""Removes what dead kernels left: at start, periodically, and by ``stockade sandboxes reap``.

An orphan is a row whose owner's lock is free. It is reaped at its second sighting, by its own driver,
and its row goes only when the driver confirmed that nothing of it runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable

from stockade.contracts.driver import Driver, Orphan, Ownership, Reaped
from stockade.errors import PluginError
from stockade.runtime import owner
from stockade.runtime.registry import Registry, Row

log = logging.getLogger("stockade.reaper")

APART = 0.5
"""Seconds between the two sightings."""
TIME_LIMIT = 60.0
"""Seconds for one driver's sweep."""


async def sweep(registry: Registry, driver_of: Callable[[str], Driver]) -> list[Reaped]:
    """One pass over the registry. Returns what the drivers said of each orphan seen twice."""
    rows = registry.rows()
    orphans = [row for row in rows if registry.is_orphan(row)]
    due: defaultdict[str, list[Row]] = defaultdict(list)
    for row in orphans:
        if registry.sight(row, APART):
            due[row.driver].append(row)
    live = frozenset(row.id for row in rows) - {row.id for row in orphans}
    results: list[Reaped] = []
    for name, of_driver in due.items():
        results += await _reap(registry, driver_of, name, of_driver, live)
    owner.forget_dead(registry.home.owners, frozenset(row.owner for row in registry.rows()))
    return results


async def _reap(
    registry: Registry, driver_of: Callable[[str], Driver], name: str, rows: list[Row], live: frozenset[str]
) -> list[Reaped]:
    home = registry.home
    owned = Ownership(home.root, tuple(Orphan(row.id, home.run(row.id), row.handle or {}) for row in rows), live)
    try:
        async with asyncio.timeout(TIME_LIMIT):
            reaped = await driver_of(name).reap(owned)
    except PluginError as error:
        log.warning("%d orphan(s) of driver %r stay: %s", len(rows), name, error.message)
        return [Reaped(row.id, False, f"driver {name!r} is not usable: {error.message}") for row in rows]
    except Exception as error:
        log.exception("driver %r failed to reap", name)
        return [Reaped(row.id, False, f"{type(error).__name__}: {error}") for row in rows]
    by_id = {row.id: row for row in rows}
    for answer in reaped:
        row = by_id.get(answer.id)
        if row is not None and answer.gone:
            home.discard(home.run(row.id))
            if row.ephemeral:
                home.discard(home.state(row.key))
            registry.remove(row.id)
            log.info("reaped %s: %s", row.id, answer.evidence)
    return reaped


async def reap_now(registry: Registry, driver_of: Callable[[str], Driver]) -> list[Reaped]:
    """Both sightings in one call, for a person who asks."""
    first = await sweep(registry, driver_of)
    if any(registry.is_orphan(row) for row in registry.rows()):
        await asyncio.sleep(APART)
        seen = {answer.id for answer in first}
        first += [answer for answer in await sweep(registry, driver_of) if answer.id not in seen]
    return first
