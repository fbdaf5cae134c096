"""The kernel is killed at any moment; the engine stops and comes back. Nothing is left that reaping does not end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiodocker import Docker

from stockade.contracts.driver import Orphan, Ownership
from stockade.errors import DestroyFailed, StockadeError
from stockade.testing.driver.box import Box, World
from stockade_docker import engine as client
from stockade_docker.container import LABEL
from stockade_docker.driver import DockerDriver
from stockade_docker.errors import EngineUnreachable
from tests.docker import engine, images
from tests.docker.conftest import containers

pytestmark = [pytest.mark.needs("docker"), pytest.mark.slow, pytest.mark.timeout(300)]

ROUNDS = int(os.environ.get("CHAOS_ROUNDS", "20"))


@pytest.mark.requirement("L4", "F17", "F52")
async def test_a_kernel_killed_at_any_moment(
    host: str, plain: str, docker: Docker, driver_of: Callable[..., DockerDriver], tmp_path: Path
) -> None:
    started = time.monotonic()
    await asyncio.to_thread(_round, host, plain, tmp_path / "whole", "sb-whole", None)
    whole = time.monotonic() - started
    dice = random.Random(7)
    for number in range(ROUNDS):
        id, root = f"sb-chaos-{number}", tmp_path / str(number)
        await asyncio.to_thread(_round, host, plain, root, id, dice.random() * whole)
        home = World(root).home
        [reaped] = await driver_of().reap(Ownership(home.root, (Orphan(id, home.run(id)),)))
        assert reaped.gone, reaped
        # What the killed kernel had ordered may still come: a second look, as the reaper's second sweep.
        if await containers(docker, id):
            await driver_of().reap(Ownership(home.root, (Orphan(id, home.run(id)),)))
        assert await containers(docker, id) == [], f"round {number}"
        assert id not in Path("/proc/self/mounts").read_text()
        assert not Path("/run/stockade-docker", id).exists()
    assert await client.find(docker, f"{LABEL}sandbox") == []


def _round(host: str, image: str, root: Path, id: str, seconds: float | None) -> None:
    """A whole life, or one that ends after so many seconds."""
    root.mkdir()
    order = json.dumps({"host": host, "image": image, "root": str(root), "id": id})
    command = [sys.executable, "-m", "tests.docker.killed", order]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"creating\n"
            if seconds is None:
                assert process.stdout.readline() == b"done\n"
            else:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(seconds)
        finally:
            process.kill()


@pytest.fixture
def own() -> Iterator[engine.Engine]:
    """An engine that may be stopped."""
    if os.geteuid() != 0:
        pytest.skip("only root can start an engine")
    with engine.private() as one:
        yield one


@pytest.mark.requirement("F55", "F30", "F65")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_the_engine_stops_and_comes_back(own: engine.Engine, world: World, number: signal.Signals) -> None:
    async with client.client(own.host) as docker:
        await images.ensure(docker, images.PLAIN)
    driver = DockerDriver({"host": own.host, "image": images.PLAIN})
    spec = world.spec()
    box = Box(spec, await driver.create(spec))
    await box.greet(60)
    using = asyncio.ensure_future(box.sh("sleep 100"))
    await asyncio.wait({using}, timeout=0.2)
    await asyncio.to_thread(own.stop, number)
    with pytest.raises(StockadeError):
        await using
    async with asyncio.timeout(30):
        ending = await box.sandbox.wait()
    assert (ending.reason, "engine" in ending.evidence) == ("lost", True), ending
    with pytest.raises(EngineUnreachable):
        await driver.create(world.spec())
    with pytest.raises(DestroyFailed) as caught:
        await box.destroy(0)
    assert "reaper" in caught.value.hint
    await asyncio.to_thread(own.start)
    await box.destroy(0)
    async with client.client(own.host) as docker:
        assert await containers(docker, box) == []
    again = world.spec()
    other = Box(again, await driver.create(again))
    await other.greet(60)
    assert await other.sh("echo back") == "back"
    for one in (box, other):
        await one.clean(30)
