"""What the tests of a driver are given."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

from stockade.contracts.driver import Driver, Orphan, Ownership
from stockade.testing.capabilities import Kit
from stockade.testing.driver import processes
from stockade.testing.driver.box import Box, World

Make = Callable[..., Awaitable[Box]]


class DriverKit(Kit):
    """The fixtures of `DriverContract`, and what its tests share."""

    own_variables: frozenset[str] = frozenset()
    """Variables that the driver adds to a sandbox's environment, for its own mechanism."""

    @pytest.fixture
    def driver(self) -> Driver:
        """The driver under test. To be given."""
        raise NotImplementedError("give a fixture `driver` that returns an instance of the driver")

    @pytest_asyncio.fixture
    async def closed(self, driver: Driver) -> AsyncIterator[Driver]:
        """The driver, closed after the test."""
        yield driver
        async with asyncio.timeout(self.patience):
            await driver.aclose()

    @pytest.fixture
    def world(self, tmp_path_factory: pytest.TempPathFactory) -> World:
        """The directories of a kernel. Their paths are short: a driver may need a socket in one."""
        return World(tmp_path_factory.mktemp("sk"))

    @pytest_asyncio.fixture
    async def make(self, closed: Driver, world: World) -> AsyncIterator[Make]:
        """Makes sandboxes and greets them; nothing of them is left after the test.

        Its arguments are fields of the spec, ``extra`` variables, and ``greet=False`` to leave that to the test.
        """
        made: list[Box] = []

        async def make_one(*, greet: bool = True, silent: bool = False, **changes: Any) -> Box:
            spec = world.spec(**changes)
            box = Box(spec, await closed.create(spec), silent=silent)
            made.append(box)
            if greet:
                await box.greet(self.limit)
            return box

        yield make_one
        for box in made:
            await box.clean(self.patience)

    async def nothing_of(self, mark: str) -> None:
        """Fails unless soon nothing with this mark runs. Where that cannot be seen it says nothing."""
        if self.capabilities.host_processes:
            await processes.nothing_of(mark, self.patience)


def another(driver: Driver) -> Driver:
    """Another instance with the same settings, as another kernel has it."""
    return type(driver)(driver.options)


def orphan(box: Box, world: World, **changes: Any) -> Ownership:
    """An ownership in which the sandbox is an orphan."""
    values: dict[str, Any] = {"id": box.spec.id, "run_dir": box.spec.run_dir, "handle": dict(box.sandbox.handle)}
    return Ownership(world.home.root, (Orphan(**values | changes),))
