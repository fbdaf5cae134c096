"""Deliberately faulty drivers: how they make a sandbox. Each fails the one test of the kit that it names."""

from __future__ import annotations

import asyncio
import time
from typing import ClassVar

from stockade.contracts.channel import Channel
from stockade.contracts.driver import Ending
from stockade.model.isolation import Isolation
from stockade.model.spec import SandboxSpec
from tests.core.testing.changed_driver import Relay
from tests.core.testing.faults import fails
from tests.core.testing.forking_driver import ForkingDriver, ForkingSandbox


@fails("test_create_returns_a_channel_that_greets")
class NamesItOtherwise(ForkingDriver):
    class sandbox(ForkingSandbox):
        def __init__(self, spec: SandboxSpec, pid: int, channel: Channel, isolation: Isolation) -> None:
            super().__init__(spec, pid, channel, isolation)
            self.id = f"process-{pid}"

        async def destroy(self, grace: float) -> Ending:
            self.id = self.spec.id
            return await super().destroy(grace)


@fails("test_create_does_not_hold_up_the_event_loop")
class BlocksTheLoop(ForkingDriver):
    creating = 0

    async def create(self, spec: SandboxSpec) -> ForkingSandbox:
        # Only beside another creation, so that the whole kit does not take minutes.
        self.creating += 1
        await asyncio.sleep(0)
        if self.creating == 2:
            time.sleep(0.7)
        try:
            return await super().create(spec)
        finally:
            self.creating -= 1


@fails("test_sandboxes_run_side_by_side")
class EndsTheOthersToo(ForkingDriver):
    made: ClassVar[list[ForkingSandbox]] = []

    class sandbox(ForkingSandbox):
        async def destroy(self, grace: float) -> Ending:
            others, EndsTheOthersToo.made = EndsTheOthersToo.made, []
            for other in others:
                if other is not self and not other.exit.done():
                    await ForkingSandbox.destroy(other, 0)
            return await super().destroy(grace)

    async def create(self, spec: SandboxSpec) -> ForkingSandbox:
        sandbox = await super().create(spec)
        self.made.append(sandbox)
        return sandbox


@fails("test_a_cancelled_create_leaves_nothing")
class LeavesACancelledCreation(ForkingDriver):
    made: ClassVar[list[ForkingSandbox]] = []

    async def create(self, spec: SandboxSpec) -> ForkingSandbox:
        sandbox = await super().create(spec)
        self.made.append(sandbox)
        await asyncio.sleep(0.1)
        return sandbox

    async def aclose(self) -> None:
        while self.made:
            await self.made.pop().destroy(0)


@fails("test_a_failed_start_says_why_and_leaves_nothing")
class SwallowsTheReason(ForkingDriver):
    class sandbox(ForkingSandbox):
        async def wait(self) -> Ending:
            return Ending((await super().wait()).reason)


@fails("test_a_sandbox_may_be_destroyed_before_it_greets")
class ExpectsAGreeting(ForkingDriver):
    class Heard(Relay):
        heard = False

        async def read(self, limit: int) -> bytes:
            self.heard = True
            return await super().read(limit)

    class sandbox(ForkingSandbox):
        def __init__(self, spec: SandboxSpec, pid: int, channel: Channel, isolation: Isolation) -> None:
            super().__init__(spec, pid, channel, isolation)
            self.channel = self.heard = ExpectsAGreeting.Heard(channel)

        async def destroy(self, grace: float) -> Ending:
            ending = await super().destroy(grace)
            return ending if self.heard.heard else Ending("lost", "it was not up yet")


@fails("test_the_driver_writes_only_where_the_spec_says")
class WritesBesideTheWorkspace(ForkingDriver):
    async def create(self, spec: SandboxSpec) -> ForkingSandbox:
        spec.workspace.with_suffix(".lock").touch()
        return await super().create(spec)


@fails("test_the_driver_may_be_closed_again")
class ClosesOnce(ForkingDriver):
    closed = False

    async def aclose(self) -> None:
        if self.closed:
            raise RuntimeError("closed already")
        self.closed = True
