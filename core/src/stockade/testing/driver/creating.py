"""Create: a channel that greets, and nothing left when it does not come to that."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from stockade.contracts.driver import Driver, Sandbox
from stockade.errors import StockadeError
from stockade.testing.bounds import bounded
from stockade.testing.driver.base import DriverKit, Make, another
from stockade.testing.driver.box import Box, World

BLOCKED = 0.5
"""Seconds that a creation may hold the event loop."""


class CreateTests(DriverKit):
    """`Driver.create`."""

    @bounded
    async def test_create_returns_a_channel_that_greets(self, make: Make) -> None:
        """The sandbox has the spec's id, and the inside program at the other end knows it too."""
        box = await make()
        assert box.sandbox.id == box.spec.id
        assert {"turn", "exec", "tunnel", "control"} <= set(box.peer.hello.capabilities)

    @bounded
    async def test_create_does_not_hold_up_the_event_loop(self, make: Make) -> None:
        """Other sandboxes' events must go on. The least of three attempts counts: the machine may be busy."""
        gaps: list[float] = []
        while len(gaps) < 3 and (not gaps or gaps[-1] > BLOCKED):
            gaps.append(await _longest_gap(asyncio.gather(make(greet=False), make(greet=False))))
        assert min(gaps) <= BLOCKED, f"the event loop stood still for {min(gaps):.1f} s"

    @bounded
    async def test_sandboxes_run_side_by_side(self, make: Make) -> None:
        """Made at the same time, each is its own, and the end of one is not that of another."""
        boxes = await asyncio.gather(make(), make(), make())
        assert [await box.sh("echo $STOCKADE_SANDBOX") for box in boxes] == [box.spec.id for box in boxes]
        await boxes[0].destroy()
        assert [await box.sh("echo alive") for box in boxes[1:]] == ["alive", "alive"]

    @bounded
    async def test_a_cancelled_create_leaves_nothing(self, closed: Driver, world: World) -> None:
        """Whenever the cancellation comes (L71, F53)."""
        spec = world.spec()
        started = time.monotonic()
        await (await closed.create(spec)).destroy(0)
        taken = time.monotonic() - started
        for part in (0, 0.25, 0.5, 0.75):
            spec = world.spec()
            creating = asyncio.ensure_future(closed.create(spec))
            await asyncio.wait({creating}, timeout=taken * part)
            creating.cancel()
            [made] = await asyncio.gather(creating, return_exceptions=True)
            if isinstance(made, Sandbox):
                await made.destroy(0)
            await self.nothing_of(spec.id)

    @bounded
    async def test_a_failed_start_says_why_and_leaves_nothing(self, closed: Driver, world: World) -> None:
        """Without its workspace nothing can start: `create` raises that, or `wait` has the reason at once (F8)."""
        spec = world.spec()
        spec.workspace.rmdir()
        try:
            sandbox = await closed.create(spec)
        except StockadeError as error:
            reason = str(error)
        else:
            box = Box(spec, sandbox)
            with pytest.raises(StockadeError):
                await box.greet(self.limit)
            ending = await sandbox.wait()
            assert ending.reason in ("exited", "lost")
            reason = ending.evidence
            await box.destroy()
            await box.clean(self.patience)
        assert str(spec.workspace) in reason, f"the reason does not name the workspace that is missing: {reason!r}"
        await self.nothing_of(spec.id)

    @bounded
    async def test_a_sandbox_may_be_destroyed_before_it_greets(self, make: Make) -> None:
        """A caller that cancels waits for no program to start (L72)."""
        box = await make(greet=False)
        assert (await box.destroy()).reason == "destroyed"
        await self.nothing_of(box.spec.id)

    @bounded
    async def test_the_driver_writes_only_where_the_spec_says(self, make: Make, world: World) -> None:
        """In the state dir and the run dir; not into the workspace, nor anywhere near (L22)."""
        before = _tree(world)
        box = await make()
        await box.destroy()
        allowed = (box.spec.state_dir, box.spec.run_dir)
        made = {path for path in _tree(world) - before if not any(path.is_relative_to(own) for own in allowed)}
        assert made == {box.spec.workspace}

    @bounded
    async def test_the_driver_may_be_closed_again(self, driver: Driver) -> None:
        """`Driver.aclose` is idempotent, also where nothing was made."""
        other = another(driver)
        for one in (other, other, driver, driver):
            await one.aclose()


async def _longest_gap(work: asyncio.Future[tuple[Box, Box]]) -> float:
    """The longest time in which the loop ran nothing, while ``work`` was done."""
    longest, last = 0.0, time.monotonic()
    while not work.done():
        await asyncio.sleep(0.01)
        now = time.monotonic()
        longest, last = max(longest, now - last), now
    await work
    return longest


def _tree(world: World) -> set[Path]:
    return set(world.root.rglob("*"))
