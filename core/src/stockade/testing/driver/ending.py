"""The end: by destroy, by itself, by the deadline, by the kernel's absence. Of each the reason, and nothing left."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time

import pytest

from stockade.errors import StockadeError
from stockade.testing.agent import KINDS
from stockade.testing.bounds import bounded
from stockade.testing.capabilities import requires
from stockade.testing.driver import processes
from stockade.testing.driver.base import DriverKit, Make
from stockade.testing.driver.box import Box

GRACE = 0.5


class EndTests(DriverKit):
    """`Sandbox.destroy`, `Sandbox.wait`, and the ways to end without them."""

    @requires("host_processes")
    @bounded
    async def test_destroy_leaves_nothing(self, make: Make) -> None:
        """Not what ignores SIGTERM, has a session of its own, was forked twice or dropped its environment.

        Nor what holds somebody's output open (L74, F1, F3, F5, F6).
        """
        box = await make()
        mark = await box.plant(*KINDS[1:])
        assert len(processes.marked(mark)) == len(KINDS), "the processes of a sandbox are not seen on this machine"
        await box.destroy(GRACE)
        await self.nothing_of(mark)

    @requires("host_processes")
    @bounded
    async def test_destroy_returns_when_nothing_runs(self, make: Make) -> None:
        """At its return, not some time later (L74, F7)."""
        box = await make()
        mark = await box.plant("plain")
        ending = await box.destroy(GRACE)
        assert processes.marked(mark) == {}
        assert ending.reason == "destroyed"

    @requires("host_processes")
    @bounded
    async def test_destroy_kills_after_the_grace(self, make: Make) -> None:
        """Also where nobody inside is able to take the hint, and within a bound (L74, F7, F11)."""
        box = await make()
        mark = await box.plant("plain")
        await asyncio.to_thread(processes.send, signal.SIGSTOP, box.spec.id)
        async with asyncio.timeout(GRACE + self.patience):
            await box.destroy(GRACE)
        await self.nothing_of(mark)

    @bounded
    async def test_destroy_may_be_called_again(self, make: Make) -> None:
        """At the same time and afterwards, with the same answer."""
        box = await make()
        endings = await asyncio.gather(*(box.destroy() for _ in range(3)))
        assert [*endings, await box.destroy()] == [endings[0]] * 4

    @bounded
    async def test_wait_returns_after_destroy(self, make: Make) -> None:
        """For who waited already, and for who comes later."""
        box = await make()
        waiting = asyncio.create_task(box.sandbox.wait())
        await box.destroy()
        async with asyncio.timeout(self.patience):
            assert ((await waiting).reason, (await box.sandbox.wait()).reason) == ("destroyed", "destroyed")

    @bounded
    async def test_every_waiter_is_told_the_same(self, make: Make) -> None:
        """One that was cancelled takes nothing from the others."""
        box = await make()
        cancelled, *waiters = [asyncio.create_task(box.sandbox.wait()) for _ in range(3)]
        # Nobody waits before it had its first turn.
        await asyncio.wait({cancelled, *waiters}, timeout=0.05)
        cancelled.cancel()
        await _kill_the_program(box)
        async with asyncio.timeout(self.patience):
            endings = [await waiter for waiter in waiters]
            assert [*endings, await box.sandbox.wait()] == [endings[0]] * 3

    @bounded
    async def test_an_end_by_itself_is_told(self, make: Make) -> None:
        """Its program was killed: no destroy, no TTL; and destroy is still allowed (F74)."""
        box = await make()
        await _kill_the_program(box)
        async with asyncio.timeout(self.patience):
            ending = await box.sandbox.wait()
        assert ending.reason in ("exited", "lost", "oom")
        await box.destroy()
        await self.nothing_of(box.spec.id)

    @bounded
    async def test_the_deadline_ends_it(self, make: Make) -> None:
        """Whatever runs in it, and without the kernel's help (L14, F69)."""
        box = await make(deadline=time.time() + 2.5)
        mark = await box.plant("own-session")
        async with asyncio.timeout(2.5 + self.patience):
            assert (await box.sandbox.wait()).reason == "ttl"
        await self.nothing_of(mark)

    @bounded
    async def test_a_closed_channel_ends_it(self, make: Make) -> None:
        """A kernel that is gone leaves nothing (L4, F17); a sandbox made later holds nobody's channel open."""
        box = await make()
        other = await make()
        mark = await box.plant("own-session")
        await box.peer.aclose()
        async with asyncio.timeout(self.patience):
            assert (await box.sandbox.wait()).reason in ("exited", "lost")
        await self.nothing_of(mark)
        assert await other.sh("echo alive") == "alive"

    @bounded
    async def test_a_silent_kernel_ends_it(self, make: Make) -> None:
        """A kernel that hangs, or whose machine was unplugged, closes no channel (F17)."""
        box = await make(lease=0.5, silent=True)
        mark = await box.plant("own-session")
        async with asyncio.timeout(0.5 + self.patience):
            assert (await box.sandbox.wait()).reason in ("exited", "lost")
        await self.nothing_of(mark)

    @bounded
    async def test_the_channel_ends_with_the_sandbox(self, make: Make) -> None:
        """As a channel ends: empty readings, no error but `ConnectionError` for who writes, and no harm in closing."""
        box = await make(greet=False)
        channel = box.sandbox.channel
        assert await channel.read(1), "nothing came"
        await box.destroy()
        async with asyncio.timeout(self.patience):
            while await channel.read(65536):
                pass
            assert await channel.read(65536) == b""
        with pytest.raises(ConnectionError):
            for _ in range(100):
                await channel.write(b"x" * 65536)
        await channel.aclose()
        await channel.aclose()


async def _kill_the_program(box: Box) -> None:
    with contextlib.suppress(StockadeError):
        await box.run("sh", "-c", "kill -9 $PPID")
