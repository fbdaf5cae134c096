"""How the program ends: by signal, hang-up, silence, deadline, garbage; and that nothing is left then."""

from __future__ import annotations

import asyncio
import os
import signal
import struct
import time
from pathlib import Path

import pytest

from stockade.inside.init import EXIT_DEADLINE, EXIT_HANGUP, EXIT_PROTOCOL, EXIT_SILENCE
from tests.core.inside.client import first, running, until
from tests.core.inside.conftest import Inside, Start

TREE = """
trap '' TERM
sleep 8001 &
(setsid sh -c 'trap "" TERM; (sleep 8002 &) ; exec env -i sleep 8003' &)
(setsid sh -c '(setsid sleep 8004 &)' &)
echo up
sleep 8005
"""


def sleepers() -> list[int]:
    return [pid for number in range(8001, 8006) for pid in running(f"sleep\0{number}\0")]


async def ended(inside: Inside) -> int:
    """The exit code. What is left of the tree then would be left for ever."""
    return await asyncio.to_thread(inside.process.wait, 30)


async def plant(inside: Inside) -> None:
    """Start a tree that resists: it ignores SIGTERM, forks twice, leaves the session, drops its environment."""
    stream = await inside.client.open_exec("sh", "-c", TREE)
    assert await first(stream) == b"up\n"
    await until(lambda: len(sleepers()) == 5, "the tree is complete")


@pytest.mark.requirement("L74", "L84", "F3", "F5", "F7", "F11")
async def test_sigterm_ends_everything_soon(inside: Inside) -> None:
    await plant(inside)
    inside.process.terminate()
    assert await ended(inside) == 0
    assert sleepers() == []


async def test_sigterm_closes_the_engines_first(inside: Inside) -> None:
    await inside.client.outcome({"say": "x"})
    inside.process.terminate()
    assert await ended(inside) == 0
    assert list(inside.workspace.glob("closed-*"))


async def test_sigterm_interrupts_a_running_turn_first(inside: Inside) -> None:
    stream = await inside.client.open_turn({"until_interrupted": "n-3"})
    assert await stream.receive()
    inside.process.terminate()
    assert await ended(inside) == 0
    assert list(inside.workspace.glob("closed-*"))
    assert b"Traceback" not in inside.log.read_bytes()


@pytest.mark.requirement("F17", "L4")
async def test_a_channel_that_closes_ends_everything_at_once(inside: Inside) -> None:
    await plant(inside)
    await inside.client.mux.aclose()
    assert await ended(inside) == EXIT_HANGUP
    assert sleepers() == []


async def test_a_hang_up_is_noticed_although_the_program_is_stopped(inside: Inside) -> None:
    pid = inside.client.mux._peer.result().facts["pid"]  # type: ignore[union-attr]
    os.kill(pid, signal.SIGSTOP)
    await inside.client.mux.aclose()
    assert await ended(inside) == EXIT_HANGUP
    assert not Path(f"/proc/{pid}").exists()


async def test_a_program_that_is_killed_takes_everything_with_it(inside: Inside) -> None:
    await plant(inside)
    os.kill(inside.client.mux._peer.result().facts["pid"], signal.SIGKILL)  # type: ignore[union-attr]
    assert await ended(inside) == 128 + signal.SIGKILL
    assert sleepers() == []


@pytest.mark.slow
@pytest.mark.requirement("L14", "F69", "F70")
async def test_the_deadline_ends_everything_whatever_runs(start: Start) -> None:
    inside = await start("--deadline", str(time.time() + 2.5))
    await plant(inside)
    assert await ended(inside) == EXIT_DEADLINE
    assert sleepers() == []


@pytest.mark.requirement("L14", "F69")
async def test_a_deadline_that_has_passed_ends_it_at_once(start: Start) -> None:
    inside = await start("--deadline", str(time.time() - 100), greet=False)
    assert await ended(inside) == EXIT_DEADLINE


@pytest.mark.slow
@pytest.mark.requirement("F17")
async def test_silence_for_a_lease_ends_everything(start: Start) -> None:
    inside = await start(lease=1)
    await plant(inside)
    assert await ended(inside) == EXIT_SILENCE
    assert sleepers() == []


@pytest.mark.slow
@pytest.mark.requirement("F71")
async def test_pings_keep_it_alive(start: Start) -> None:
    inside = await start(lease=0.4)
    limit = time.monotonic() + 1.5
    while time.monotonic() < limit:
        assert await inside.client.mux.ping(5) < 5
    assert inside.process.poll() is None


@pytest.mark.requirement("L17")
async def test_a_kernel_that_never_greets_is_not_awaited_for_ever(start: Start) -> None:
    inside = await start(greet=False, lease=0.5)
    assert await ended(inside) == EXIT_HANGUP
    assert b"no kernel" in inside.log.read_bytes()


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\xff" * 64,
        struct.pack(">IBI", 2, 1, 0) + b"{}",
        struct.pack(">IBI", 4, 1, 0) + b"null",
    ],
)
async def test_garbage_instead_of_a_greeting_ends_typed(start: Start, garbage: bytes) -> None:
    inside = await start(greet=False)
    await inside.client.mux._channel.write(garbage)
    assert await ended(inside) == EXIT_PROTOCOL
    assert b"Traceback" not in inside.log.read_bytes()


async def test_garbage_after_the_greeting_ends_typed(inside: Inside) -> None:
    await inside.client.mux._channel.write(struct.pack(">IBI", 1, 3, 77) + b"x")
    assert await ended(inside) == EXIT_PROTOCOL
    assert b"Traceback" not in inside.log.read_bytes()


@pytest.mark.requirement("L89")
async def test_a_thousand_orphans_leave_no_zombie(inside: Inside) -> None:
    await inside.client.exec("sh", "-c", "for i in $(seq 1000); do (true &) ; done")

    def zombies() -> list[str]:
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
                except OSError:
                    continue
                if fields[0] == b"Z" and int(fields[1]) == inside.process.pid:
                    found.append(entry.name)
        return found

    await until(lambda: not zombies(), "all orphans are reaped")
