"""Deliberately faulty drivers: how they sweep. Each fails the one test of the kit that it names."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Mapping
from typing import Any, ClassVar

from stockade.contracts.driver import Orphan, Ownership, Reaped
from stockade.inside import proc
from stockade.model.spec import SandboxSpec
from tests.core.testing.faults import fails
from tests.core.testing.forking_driver import ForkingDriver, ForkingSandbox


@fails("test_reap_ends_an_orphan")
class SaysThatItIsGone(ForkingDriver):
    async def reap(self, owned: Ownership) -> list[Reaped]:
        return [Reaped(orphan.id, orphan.id not in owned.live) for orphan in owned.orphans]


@fails("test_a_killed_owner_leaves_nothing_that_is_not_reaped")
class KnowsOnlyItsOwn(ForkingDriver):
    made: ClassVar[set[str]] = set()

    async def create(self, spec: SandboxSpec) -> ForkingSandbox:
        self.made.add(spec.id)
        return await super().create(spec)

    async def _reap(self, id: str, owned: Ownership) -> Reaped:
        return await super()._reap(id, owned) if id in self.made else Reaped(id, False, "never made here")


@fails("test_reap_never_touches_a_live_sandbox")
class ReapsTheLiving(ForkingDriver):
    async def reap(self, owned: Ownership) -> list[Reaped]:
        return await super().reap(Ownership(owned.home, owned.orphans))


class Credulous(ForkingDriver):
    """Does something with a record before it looks."""

    def believe(self, orphan: Orphan) -> None:
        raise NotImplementedError

    async def reap(self, owned: Ownership) -> list[Reaped]:
        for orphan in owned.orphans:
            if orphan.id not in owned.live:
                self.believe(orphan)
        return await super().reap(owned)


@fails("test_reap_ends_nothing_on_a_handles_word")
class TrustsAHandle(Credulous):
    def believe(self, orphan: Orphan) -> None:
        pid = orphan.handle.get("pid")
        if isinstance(pid, int) and pid > 1 and (process := proc.read(pid)):
            proc.send(process, signal.SIGKILL)


@fails("test_reap_deletes_nothing_on_a_records_word")
class DeletesWhatARecordNames(Credulous):
    def believe(self, orphan: Orphan) -> None:
        shutil.rmtree(orphan.run_dir, ignore_errors=True)


@fails("test_reap_may_be_repeated")
class ReapsOnce(ForkingDriver):
    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        self.reaped: set[str] = set()

    async def _reap(self, id: str, owned: Ownership) -> Reaped:
        if id in self.reaped:
            return Reaped(id, False, "there is no such sandbox")
        self.reaped.add(id)
        return await super()._reap(id, owned)


@fails("test_reap_bears_a_damaged_record")
class StumblesOverARecord(Credulous):
    def believe(self, orphan: Orphan) -> None:
        int(orphan.handle.get("pid", 0))
