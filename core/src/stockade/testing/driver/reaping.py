"""Reap: the orphans of a dead owner, and nothing else."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stockade.contracts.driver import Driver, Orphan, Ownership
from stockade.testing.bounds import bounded
from stockade.testing.capabilities import requires
from stockade.testing.driver import processes
from stockade.testing.driver.base import DriverKit, Make, another, orphan
from stockade.testing.driver.box import World


class ReapTests(DriverKit):
    """`Driver.reap`, by another instance with the same settings: the owner is dead."""

    @bounded
    async def test_reap_ends_an_orphan(self, make: Make, driver: Driver, world: World) -> None:
        """One that still runs, known by its id and its handle; `gone` is only said when nothing runs (L74, L75)."""
        box = await make()
        mark = await box.plant("own-session")
        [reaped] = await another(driver).reap(orphan(box, world))
        assert (reaped.id, reaped.gone) == (box.spec.id, True), reaped
        if self.capabilities.host_processes:
            assert processes.marked(mark) == {}
        async with asyncio.timeout(self.patience):
            await box.sandbox.wait()

    @requires("host_processes")
    @bounded
    async def test_a_killed_owner_leaves_nothing_that_is_not_reaped(self, driver: Driver, world: World) -> None:
        """The owner is a real process, and its end is SIGKILL (L4, F17)."""
        spec = world.spec()
        handle = await _own_and_die(driver, world, spec.id)
        [reaped] = await another(driver).reap(Ownership(world.home.root, (Orphan(spec.id, spec.run_dir, handle),)))
        assert (reaped.id, reaped.gone) == (spec.id, True), reaped
        await self.nothing_of(spec.id)

    @bounded
    async def test_reap_never_touches_a_live_sandbox(self, make: Make, driver: Driver, world: World) -> None:
        """Somebody owns what is in `Ownership.live`, whatever else is said of it (F64)."""
        box = await make()
        owned = orphan(box, world)
        answers = await another(driver).reap(Ownership(owned.home, owned.orphans, frozenset({box.spec.id})))
        assert not [answer for answer in answers if answer.gone]
        assert await box.sh("echo alive") == "alive"

    @bounded
    async def test_reap_ends_nothing_on_a_handles_word(self, make: Make, driver: Driver, world: World) -> None:
        """A handle that names another sandbox, or a process that is none, ends neither."""
        box = await make()
        handle = dict(box.sandbox.handle)
        with processes.bystander(box.mark()) as process:
            forged = (handle, _forge(handle, process.pid, str(process.pid)), {"pid": process.pid})
            for one in forged:
                await another(driver).reap(orphan(box, world, id=world.spec().id, handle=one))
            assert process.poll() is None, "a process that is no sandbox was ended"
        assert await box.sh("echo alive") == "alive"

    @bounded
    async def test_reap_deletes_nothing_on_a_records_word(self, make: Make, driver: Driver, world: World) -> None:
        """Nor the files that a handle or a run dir names."""
        box = await make()
        victim = world.root / "victim"
        victim.mkdir()
        (victim / "file").write_text("mine")
        for handle in (_forge(box.sandbox.handle, 0, str(victim)), {"path": str(victim), "run_dir": str(victim)}):
            owned = orphan(box, world, id=world.spec().id, handle=handle, run_dir=victim)
            await another(driver).reap(owned)
        assert (victim / "file").read_text() == "mine"

    @bounded
    async def test_reap_may_be_repeated(self, make: Make, driver: Driver, world: World) -> None:
        """What is gone stays gone; and without orphans there is nothing to do."""
        box = await make()
        owned = orphan(box, world)
        await box.destroy()
        reaper = another(driver)
        for _ in range(2):
            [reaped] = await reaper.reap(owned)
            assert (reaped.id, reaped.gone) == (box.spec.id, True), reaped
        assert await reaper.reap(Ownership(world.home.root, ())) == []

    @bounded
    async def test_reap_bears_a_damaged_record(self, driver: Driver, world: World) -> None:
        """One answer for each orphan, and no error: the others' orphans wait in the same sweep."""
        damaged: tuple[Mapping[str, Any], ...] = (
            {},
            {"pid": "x", "id": None},
            {"": [[{}]]},
            {"pid": -1, "start": 1e99},
        )
        ids = [world.spec().id for _ in damaged]
        orphans = tuple(Orphan(id, world.home.run(id), handle) for id, handle in zip(ids, damaged, strict=True))
        answers = await another(driver).reap(Ownership(world.home.root, orphans))
        assert sorted(answer.id for answer in answers) == sorted(ids)


def _forge(handle: Mapping[str, Any], number: int, text: str) -> dict[str, Any]:
    """The handle with other numbers and texts, as a record that was tampered with."""
    other: dict[type, Any] = {int: number, str: text}
    return {name: other.get(type(value), value) for name, value in handle.items()}


async def _own_and_die(driver: Driver, world: World, id: str) -> dict[str, Any]:
    """A sandbox whose owner is another process, killed as soon as it was greeted; its handle."""
    cls = type(driver)
    order = {
        "path": sys.path,
        "driver": [cls.__module__, cls.__qualname__],
        "options": dict(driver.options),
        "root": str(world.root),
        "id": id,
    }
    owner = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _OWNER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path.cwd()
    )
    assert owner.stdin is not None and owner.stdout is not None
    try:
        owner.stdin.write(json.dumps(order).encode())
        owner.stdin.close()
        said = await owner.stdout.readline()
        assert said, "the driver's class could not be imported in another process, or made no sandbox there"
        return dict(json.loads(said))
    finally:
        owner.send_signal(signal.SIGKILL)
        await owner.wait()


_OWNER = """
import json, sys
order = json.load(sys.stdin)
sys.path[:] = order["path"]
from stockade.testing.driver import owner
owner.main(order)
"""
