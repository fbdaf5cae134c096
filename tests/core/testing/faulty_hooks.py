"""Hook modules with one fault each; an object's methods are as good as a module's functions."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stockade import hookimpl
from stockade.contracts.lifecycle import Observer, Preparation, Record
from stockade.model.authority import ClaimLimits, Claims, Constraints, SandboxRequest
from stockade.settings import Settings
from stockade.testing.fakes import RecordingPolicy, RecordingRoute
from tests.core.testing.faults import fails


class Watch(Observer):
    async def on_event(self, record: Record) -> None:
        pass


class Prepare(Preparation):
    async def apply(self, workspace: Path) -> None:
        pass


class Good:
    """Answers every hook, and well."""

    @hookimpl
    def select_driver(self, request: SandboxRequest, available: Any) -> Any:
        return available[-1]

    @hookimpl
    def driver_constraints(self, request: SandboxRequest) -> Any:
        return Constraints(max_ttl=60.0)

    @hookimpl
    def engine_environment(self, request: SandboxRequest) -> Any:
        return {"TOY": request.user}

    @hookimpl
    def prepare_workspace(self, request: SandboxRequest) -> Any:
        return Prepare()

    @hookimpl
    def admission_policies(self, settings: Settings) -> Any:
        return [RecordingPolicy()]

    @hookimpl
    def token_claims(self, request: Claims) -> Any:
        return ClaimLimits(requests=10)

    @hookimpl
    def routes(self, settings: Settings) -> Any:
        return {"toy": RecordingRoute()}

    @hookimpl
    def observers(self, settings: Settings) -> Any:
        return (Watch(),)

    @hookimpl
    def register_commands(self, group: Any) -> Any:
        group.add("toy", "Plays", lambda parser: None, lambda args: 0)


async def later(value: object) -> object:
    return value


@fails("test_it_can_be_registered")
class Undecorated:
    def routes(self, settings: Settings) -> Mapping[str, RecordingRoute]:
        return {}


@fails("test_select_driver")
class ChoosesAnother(Good):
    @hookimpl
    def select_driver(self, request: SandboxRequest, available: Any) -> Any:
        return "machine"


@fails("test_driver_constraints")
class NotANumber(Good):
    @hookimpl
    def driver_constraints(self, request: SandboxRequest) -> Any:
        return Constraints(max_ttl=float("nan"))


@fails("test_engine_environment")
class PassesAKey(Good):
    @hookimpl
    def engine_environment(self, request: SandboxRequest) -> Any:
        return {"ANTHROPIC_API_KEY": "key"} if not request.user else {}


@fails("test_prepare_workspace")
class PreparesAtOnce(Good):
    @hookimpl
    def prepare_workspace(self, request: SandboxRequest) -> Any:
        return True


@fails("test_admission_policies")
class NoneAmongPolicies(Good):
    @hookimpl
    def admission_policies(self, settings: Settings) -> Any:
        return [RecordingPolicy(), None]


@fails("test_token_claims")
class AnswersWithClaims(Good):
    @hookimpl
    def token_claims(self, request: Claims) -> Any:
        return request if request.requests else None


@fails("test_token_claims")
class WidensClaims(Good):
    @hookimpl
    def token_claims(self, request: Claims) -> Any:
        object.__setattr__(request, "requests", None)


@fails("test_routes")
class ReturnsACoroutine(Good):
    @hookimpl
    def routes(self, settings: Settings) -> Any:
        return later({"toy": RecordingRoute()})


@fails("test_observers")
class OneObserver(Good):
    @hookimpl
    def observers(self, settings: Settings) -> Any:
        return Watch()


@fails("test_register_commands")
class AddsTwice(Good):
    @hookimpl
    def register_commands(self, group: Any) -> Any:
        for _ in range(2):
            group.add("toy", "Plays", lambda parser: None, lambda args: 0)


@fails("test_hooks_are_cheap")
class TakesItsTime(Good):
    @hookimpl
    def driver_constraints(self, request: SandboxRequest) -> Any:
        time.sleep(0.12)
