"""Deliberately faulty drivers: what they say of a sandbox. Each fails the one test of the kit that it names."""

from __future__ import annotations

import dataclasses
from typing import Any

from stockade.model.isolation import Isolation
from stockade.model.spec import SandboxSpec
from tests.core.testing.faults import fails
from tests.core.testing.forking_driver import ForkingDriver, ForkingSandbox


class Attests(ForkingDriver):
    """Says something else of its sandboxes."""

    def said(self, isolation: Isolation) -> dict[str, Any]:
        raise NotImplementedError

    async def create(self, spec: SandboxSpec) -> ForkingSandbox:
        sandbox = await super().create(spec)
        sandbox.isolation = dataclasses.replace(sandbox.isolation, **self.said(sandbox.isolation))
        return sandbox


class OfTier2(SandboxSpec):
    """Tells the inside program tier 2."""

    def inside_args(self, *, tier: int, state_dir: str = "", workspace: str = "") -> list[str]:
        return SandboxSpec.inside_args(self, tier=2, state_dir=state_dir, workspace=workspace)

    @classmethod
    def of(cls, spec: SandboxSpec) -> SandboxSpec:
        return cls(**{field.name: getattr(spec, field.name) for field in dataclasses.fields(spec)})


@fails("test_the_isolation_is_stated")
class LeavesAWordOut(Attests):
    def said(self, isolation: Isolation) -> dict[str, Any]:
        return {"resources": ""}


@fails("test_the_tier_inside_is_the_attested_one")
class TellsTheInsideAnotherTier(ForkingDriver):
    async def create(self, spec: SandboxSpec) -> ForkingSandbox:
        return await super().create(OfTier2.of(spec))


@fails("test_the_tier_is_not_overstated")
class OverstatesItsTier(Attests):
    def said(self, isolation: Isolation) -> dict[str, Any]:
        return {"tier": 2, "processes": "container", "filesystem": "private", "network": "loopback"}

    async def create(self, spec: SandboxSpec) -> ForkingSandbox:
        return await super().create(OfTier2.of(spec))


@fails("test_nested_is_attested_truly")
class LiesAboutNesting(Attests):
    def said(self, isolation: Isolation) -> dict[str, Any]:
        return {"nested": not isolation.nested}


@fails("test_a_provider_key_is_attested")
class HidesAProviderKey(Attests):
    def said(self, isolation: Isolation) -> dict[str, Any]:
        return {"provider_key": ()}


@fails("test_a_route_is_revoked_or_that_is_refused")
class HasNoRevocation(ForkingDriver):
    class sandbox(ForkingSandbox):
        async def revoke(self, route: str) -> None:
            raise NotImplementedError
