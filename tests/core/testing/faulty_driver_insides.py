"""Deliberately faulty drivers: what a sandbox finds inside. Each fails the one test of the kit that it names."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Mapping
from typing import Any

from stockade.contracts.channel import Channel
from stockade.contracts.driver import Ending
from stockade.model.isolation import Isolation
from stockade.model.spec import SandboxSpec
from tests.core.testing.changed_driver import Changed, Relay
from tests.core.testing.faults import fails
from tests.core.testing.forking_driver import ForkingDriver, ForkingSandbox


@fails("test_a_command_has_its_streams_and_its_exit_code")
class BreaksUnderLoad(ForkingDriver):
    class Small(Relay):
        written = 0

        async def write(self, data: bytes | bytearray | memoryview) -> None:
            self.written += len(data)
            if self.written > 300_000:
                await self.aclose()
            await super().write(data)

    class sandbox(ForkingSandbox):
        def __init__(self, spec: SandboxSpec, pid: int, channel: Channel, isolation: Isolation) -> None:
            super().__init__(spec, pid, BreaksUnderLoad.Small(channel), isolation)


@fails("test_the_environment_is_what_the_spec_says")
class PassesTheHostsEnvironment(Changed):
    def changes(self, spec: SandboxSpec) -> dict[str, Any]:
        return {"environment": {**os.environ, **spec.environment}}


@fails("test_no_secret_is_on_a_command_line")
class PutsASecretOnTheCommandLine(Changed):
    def changes(self, spec: SandboxSpec) -> dict[str, Any]:
        return {"preload": "nothing:" + spec.environment.get("KIT_SECRET", "")}


@fails("test_the_handle_is_json_and_holds_no_secret")
class WritesASecretDown(ForkingDriver):
    class sandbox(ForkingSandbox):
        @property
        def handle(self) -> Mapping[str, Any]:
            return {**super().handle, "environment": dict(self.spec.environment)}


@fails("test_commands_start_in_the_workspace")
class StartsElsewhere(Changed):
    def changes(self, spec: SandboxSpec) -> dict[str, Any]:
        return {"workspace": spec.state_dir} if spec.workspace.is_dir() else {}


@fails("test_files_go_in_and_come_out")
class AllowsSmallFilesOnly(ForkingDriver):
    async def create(self, spec: SandboxSpec) -> ForkingSandbox:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, hard))  # what is forked now keeps it
        try:
            return await super().create(spec)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@fails("test_home_and_temporary_files_lie_in_the_state_dir")
class WorksOnACopyOfTheState(Changed):
    def changes(self, spec: SandboxSpec) -> dict[str, Any]:
        copy = spec.run_dir / "state"
        shutil.copytree(spec.state_dir, copy)
        return {"state_dir": copy, "options": {"real": spec.state_dir}}

    class sandbox(ForkingSandbox):
        async def destroy(self, grace: float) -> Ending:
            ending = await super().destroy(grace)
            shutil.copytree(self.spec.state_dir, str(self.spec.options["real"]), dirs_exist_ok=True)
            return ending


@fails("test_the_state_dir_outlives_the_sandbox")
class ForgetsTheState(ForkingDriver):
    class sandbox(ForkingSandbox):
        async def destroy(self, grace: float) -> Ending:
            ending = await super().destroy(grace)
            shutil.rmtree(self.spec.state_dir, ignore_errors=True)
            return ending


@fails("test_descriptors_of_the_host_stay_outside")
class LeavesFilesOpen(ForkingDriver):
    keeps_files = True
