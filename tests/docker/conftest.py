"""A real engine, an image, and drivers for them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any

import pytest
from aiodocker import Docker

from stockade.testing.driver.box import Box, World
from stockade_docker import engine as client
from stockade_docker.container import LABEL
from stockade_docker.driver import DockerDriver
from tests.docker import engine, images

Make = Callable[..., Awaitable[Box]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent.name == "docker":
            # The first test waits for the engine and its image.
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session")
def host() -> Iterator[str]:
    """The address of an engine."""
    given = os.environ.get("DOCKER_HOST")
    if given:
        yield given
        return
    with engine.private() as own:
        yield own.host


@pytest.fixture(scope="session")
def plain(host: str) -> str:
    """The id of an image with the kernel and no engine."""

    async def make() -> str:
        async with client.client(host) as docker:
            return await images.ensure(docker, images.PLAIN)

    return asyncio.run(make())


@pytest.fixture
def driver_of(host: str, plain: str) -> Callable[..., DockerDriver]:
    """Makes drivers."""

    def make(**options: Any) -> DockerDriver:
        return DockerDriver({"host": host, "image": plain, **options})

    return make


@pytest.fixture
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """The directories of a kernel."""
    return World(tmp_path_factory.mktemp("sk"))


@pytest.fixture
async def make(driver_of: Callable[..., DockerDriver], world: World) -> AsyncIterator[Make]:
    """Makes and greets sandboxes; ``options`` are the driver's, the rest the spec's. They end with the test."""
    made: list[Box] = []

    async def make_one(options: Mapping[str, Any] | None = None, **changes: Any) -> Box:
        spec = world.spec(**changes)
        box = Box(spec, await driver_of(**(options or {})).create(spec))
        made.append(box)
        await box.greet(30)
        return box

    yield make_one
    for box in made:
        await box.clean(30)


@pytest.fixture
async def docker(host: str) -> AsyncIterator[Docker]:
    """A client of the engine."""
    async with client.client(host) as connected:
        yield connected


async def containers(docker: Docker, box: Box | str) -> list[str]:
    """The ids of a sandbox's containers."""
    id = box if isinstance(box, str) else box.spec.id
    return await client.find(docker, f"{LABEL}sandbox={id}")
