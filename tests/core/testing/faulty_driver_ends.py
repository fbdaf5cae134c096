"""Deliberately faulty drivers: how a sandbox ends. Each fails the one test of the kit that it names."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any, ClassVar

from stockade.contracts.channel import Channel
from stockade.contracts.driver import Ending
from stockade.errors import DestroyFailed
from stockade.inside import proc
from stockade.model.isolation import Isolation
from stockade.model.spec import SandboxSpec
from tests.core.testing.changed_driver import Changed, Relay
from tests.core.testing.faults import fails
from tests.core.testing.forking_driver import ForkingDriver, ForkingSandbox, command_line, find


@fails("test_destroy_leaves_nothing")
class LeaksADaemon(ForkingDriver):
    class sandbox(ForkingSandbox):
        async def destroy(self, grace: float) -> Ending:
            # What carries its mark ends; a daemon that dropped its environment does not.
            self.destroyed = True
            while left := self.marked():
                for process in left:
                    proc.send(process, signal.SIGKILL)
                await asyncio.sleep(0.01)
            await self.exit
            await self.channel.aclose()
            return Ending("destroyed")

        def marked(self) -> list[proc.Process]:
            mark = f"STOCKADE_SANDBOX={self.id}".encode()
            found = [proc.read(self.pid), *find(self.id).values()]
            return [
                one
                for one in found
                if one
                and (one.pid == self.pid or proc.carries(one.pid, mark) or self.id.encode() in command_line(one.pid))
            ]


@fails("test_destroy_returns_when_nothing_runs")
class ReturnsTooEarly(ForkingDriver):
    later: ClassVar[set[asyncio.Task[Ending]]] = set()

    class sandbox(ForkingSandbox):
        async def destroy(self, grace: float) -> Ending:
            self.destroyed = True
            ReturnsTooEarly.later.add(asyncio.create_task(super().destroy(grace)))
            return Ending("destroyed")

    async def aclose(self) -> None:
        later = list(self.later)
        self.later.clear()
        await asyncio.gather(*later)


@fails("test_destroy_kills_after_the_grace")
class AsksForEver(ForkingDriver):
    class sandbox(ForkingSandbox):
        async def destroy(self, grace: float) -> Ending:
            if not self.exit.done():
                self.terminate()
                await asyncio.wait({self.exit})
            return await super().destroy(grace)


@fails("test_destroy_may_be_called_again")
class DestroysOnce(ForkingDriver):
    class sandbox(ForkingSandbox):
        async def destroy(self, grace: float) -> Ending:
            if self.destroyed:
                raise DestroyFailed("it is gone", sandbox=self.id)
            return await super().destroy(grace)


@fails("test_wait_returns_after_destroy")
class WaitsForEver(ForkingDriver):
    class sandbox(ForkingSandbox):
        async def wait(self) -> Ending:
            ending = await super().wait()
            if self.destroyed:
                await asyncio.Event().wait()
            return ending


@fails("test_every_waiter_is_told_the_same")
class TellsOnlyTheFirst(ForkingDriver):
    class sandbox(ForkingSandbox):
        told = False

        async def wait(self) -> Ending:
            ending = await super().wait()
            told, self.told = self.told, True
            return Ending(ending.reason, "as was told") if told else ending


@fails("test_an_end_by_itself_is_told")
class TakesAKillForTheDeadline(ForkingDriver):
    class sandbox(ForkingSandbox):
        async def wait(self) -> Ending:
            ending = await super().wait()
            return Ending("ttl") if ending.evidence.startswith("exit code 137") else ending


@fails("test_the_deadline_ends_it")
class IgnoresTheDeadline(Changed):
    def changes(self, spec: SandboxSpec) -> dict[str, Any]:
        return {"deadline": float("inf")}


@fails("test_a_closed_channel_ends_it")
class HoldsTheChannelOpen(ForkingDriver):
    class sandbox(ForkingSandbox):
        def __init__(self, spec: SandboxSpec, pid: int, channel: Channel, isolation: Isolation) -> None:
            super().__init__(spec, pid, channel, isolation)
            self.held = os.dup(channel._sink.get_extra_info("socket").fileno())  # type: ignore[attr-defined]

        async def destroy(self, grace: float) -> Ending:
            if not self.destroyed:
                os.close(self.held)
            return await super().destroy(grace)


@fails("test_a_silent_kernel_ends_it")
class IgnoresTheLease(Changed):
    def changes(self, spec: SandboxSpec) -> dict[str, Any]:
        return {"lease": 3600.0}


@fails("test_the_channel_ends_with_the_sandbox")
class BreaksAtTheEnd(ForkingDriver):
    class Broken(Relay):
        async def read(self, limit: int) -> bytes:
            if data := await super().read(limit):
                return data
            raise ConnectionResetError("the sandbox is gone")

    class sandbox(ForkingSandbox):
        def __init__(self, spec: SandboxSpec, pid: int, channel: Channel, isolation: Isolation) -> None:
            super().__init__(spec, pid, BreaksAtTheEnd.Broken(channel), isolation)
