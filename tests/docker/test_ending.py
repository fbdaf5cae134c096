"""How sandboxes of the Docker driver end, and what is left: nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from aiodocker import Docker

from stockade.contracts.driver import Orphan, Ownership
from stockade.errors import StockadeError
from stockade.testing.driver.base import orphan
from stockade.testing.driver.box import Box, World
from stockade_docker.channel import AttachChannel
from stockade_docker.container import labels
from stockade_docker.driver import DockerDriver
from tests.docker.conftest import Make, containers

pytestmark = pytest.mark.needs("docker")

Drivers = Callable[..., DockerDriver]


@pytest.mark.requirement("F7", "F11", "L74")
async def test_destroy_takes_less_than_a_second_whatever_ignores_sigterm(make: Make, docker: Docker) -> None:
    async def seconds() -> float:
        box = await make()
        await box.plant("plain")
        started = time.monotonic()
        await box.destroy(5.0)
        assert await containers(docker, box) == []
        return time.monotonic() - started

    # The least of three: the machine may be busy.
    assert min([await seconds() for _ in range(3)]) < 1.0


@pytest.mark.requirement("F68")
async def test_oom_is_told_with_evidence(make: Make) -> None:
    box = await make({"memory": "96m"})
    with contextlib.suppress(StockadeError):
        # The program itself, which everything hangs on: a child's death would be that child's.
        await box.run("sh", "-c", "python3 -c 'import os; x = b\"x\" * (300 << 20)' ; kill -9 $PPID")
    async with asyncio.timeout(20):
        ending = await box.sandbox.wait()
    assert (ending.reason, "96 MiB" in ending.evidence) == ("oom", True)


@pytest.mark.requirement("F68")
async def test_a_kill_without_evidence_is_no_oom(make: Make) -> None:
    box = await make()
    with contextlib.suppress(StockadeError):
        await box.run("sh", "-c", "kill -9 $PPID")
    ending = await box.sandbox.wait()
    assert (ending.reason, "perhaps" in ending.evidence) == ("exited", True)


@pytest.mark.requirement("F65", "F74")
async def test_a_container_that_somebody_removed_is_lost_with_a_reason(make: Make, docker: Docker) -> None:
    box = await make()
    [id] = await containers(docker, box)
    await docker.containers.container(id).delete(force=True)
    async with asyncio.timeout(20):
        ending = await box.sandbox.wait()
    assert ending.reason in ("lost", "exited") and ending.evidence
    assert (await box.destroy()).reason == "destroyed"


@pytest.mark.requirement("F69", "L14")
async def test_the_deadline_holds_for_a_paused_container(make: Make, docker: Docker) -> None:
    box = await make(deadline=time.time() + 2.5)
    [id] = await containers(docker, box)
    await docker.containers.container(id).pause()
    async with asyncio.timeout(20):
        assert (await box.sandbox.wait()).reason == "ttl"
    await box.destroy()
    assert await containers(docker, box) == []


async def test_a_paused_container_is_destroyed(make: Make, docker: Docker) -> None:
    box = await make()
    [id] = await containers(docker, box)
    await docker.containers.container(id).pause()
    await box.destroy(0.2)
    assert await containers(docker, box) == []


@pytest.mark.requirement("L89")
async def test_a_thousand_short_forks_leave_no_zombie(make: Make) -> None:
    box = await make()
    await box.sh("for i in $(seq 1000); do (true &) ; done")
    for _ in range(100):
        if await box.sh("grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l") == "0":
            return
    pytest.fail("zombies are left")


@pytest.mark.requirement("F15", "F1")
async def test_an_exec_that_times_out_ends_alone(make: Make) -> None:
    box = await make()
    done = await box.run("sh", "-c", "sleep 321 & sleep 322", timeout=0.5)
    assert done.result["timed_out"]
    assert "32" not in await box.sh("cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -o 'sleep 32[12]' || true")
    assert await box.sh("echo alive") == "alive"


@pytest.mark.requirement("F24", "F25", "F26")
async def test_what_nobody_reads_is_held_back_and_nothing_of_it_is_lost(docker: Docker, tmp_path: Path) -> None:
    """The container's writer waits; neither the engine nor this process holds it all."""
    size = 200_000_000
    script = f"echo problem >&2; head -c {size} /dev/zero; echo end"
    order = {"Image": "stockade-tests:base", "Cmd": ["sh", "-c", script], "HostConfig": {"NetworkMode": "none"}}
    container = await docker.containers.create(order)
    try:
        stream = container.attach(stdout=True, stderr=True)
        channel = await AttachChannel.open(stream, tmp_path / "log")
        await container.start()
        assert await channel.read(1) == b"\0"
        before = _resident()
        # Nobody reads now; the container's own state shows that it waits for that.
        await asyncio.wait({asyncio.ensure_future(container.wait())}, timeout=1.5)
        assert _resident() - before < 32_000_000
        count, last = 1, b""
        while piece := await channel.read(1 << 20):
            count, last = count + len(piece), piece
        assert (count, last[-4:]) == (size + 4, b"end\n")
        assert (tmp_path / "log").read_text() == "problem\n"
        await channel.aclose()
    finally:
        await container.delete(force=True)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# -- reaping --------------------------------------------------------------------------------------------


@pytest.mark.requirement("F51")
@pytest.mark.parametrize("state", ["created", "paused", "exited"])
async def test_an_orphan_is_reaped_in_any_state(
    make: Make, docker: Docker, driver_of: Drivers, world: World, state: str
) -> None:
    if state == "created":
        spec = world.spec()
        order = {"Image": "stockade-tests:base", "Cmd": ["true"], "Labels": labels(spec)}
        await docker.containers.create(order)
        owned = Ownership(world.home.root, (Orphan(spec.id, spec.run_dir),))
    else:
        box = await make()
        spec, owned = box.spec, orphan(box, world)
        [id] = await containers(docker, box)
        container = docker.containers.container(id)
        await (container.pause() if state == "paused" else container.kill())
    [reaped] = await driver_of().reap(owned)
    assert (reaped.id, reaped.gone) == (spec.id, True), reaped
    assert await containers(docker, spec.id) == []


async def test_another_homes_container_is_left_alone(make: Make, driver_of: Drivers, world: World) -> None:
    """Although it has the orphan's very id."""
    box = await make()
    elsewhere = orphan(box, world, run_dir=world.root / "other-home/run" / box.spec.id)
    await driver_of().reap(elsewhere)
    assert await box.sh("echo alive") == "alive"


async def test_silence_of_another_engine_is_no_proof(make: Make, driver_of: Drivers, world: World) -> None:
    box = await make()
    handle = {**box.sandbox.handle, "engine": "another"}
    [reaped] = await driver_of().reap(orphan(box, world, handle=handle))
    assert (reaped.gone, "another Docker engine" in reaped.evidence) == (False, True)


async def test_reaping_without_an_engine_confirms_nothing(make: Make, driver_of: Drivers, world: World) -> None:
    box = await make()
    [reaped] = await driver_of(host=f"unix://{world.root}/none").reap(orphan(box, world))
    assert not reaped.gone
    assert "does not answer" in reaped.evidence


@pytest.mark.requirement("F53", "L71")
async def test_fifty_creates_at_once_half_of_them_cancelled(docker: Docker, driver_of: Drivers, world: World) -> None:
    driver = driver_of()
    specs = [world.spec() for _ in range(50)]
    creating = [asyncio.ensure_future(driver.create(spec)) for spec in specs]
    for number, task in enumerate(creating):
        if number % 2:
            asyncio.get_running_loop().call_later(0.1 * number, task.cancel)
    made = await asyncio.gather(*creating, return_exceptions=True)
    boxes = [Box(spec, one) for spec, one in zip(specs, made, strict=True) if not isinstance(one, BaseException)]
    odd = [one for one in made if isinstance(one, BaseException) and not isinstance(one, asyncio.CancelledError)]
    assert not odd
    assert len(boxes) >= 25
    await asyncio.gather(*(box.clean(60) for box in boxes))
    left = [spec.id for spec in specs if await containers(docker, spec.id)]
    assert left == []
