"""Makes a kit class for each faulty policy, minter, route or hook module of a module."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from stockade.contracts.authority import AdmissionPolicy, TokenMinter
from stockade.contracts.route import Route
from stockade.testing import HookContract, MinterContract, PolicyContract, RouteContract
from stockade.testing.examples import Requests, example_request
from stockade.testing.minter import Verify
from stockade.testing.route import Dialogue
from tests.core.testing.faults import faulty
from tests.core.testing.kit_of_fakes import Echo


class FaultyPolicy(PolicyContract):
    patience = 1.0
    faulty: type[AdmissionPolicy]

    @pytest.fixture
    def policy(self) -> AdmissionPolicy:
        return self.faulty()

    @pytest.fixture
    def requests(self) -> Requests:
        return Requests(allowed=[example_request()], denied=[example_request(file_access="full")])


class FaultyMinter(MinterContract):
    patience = 1.0
    faulty: type[TokenMinter]

    @pytest.fixture
    def minter(self) -> TokenMinter:
        return self.faulty({})

    @pytest.fixture
    def verify(self, minter: Any) -> Verify:
        verify: Verify = minter.verify
        return verify

    @pytest.fixture
    def elsewhere(self, minter: Any) -> Verify:
        verify: Verify = getattr(minter, "elsewhere", minter.verify)
        return verify


class FaultyRoute(RouteContract):
    patience = 1.0
    dialect = "echo"
    faulty: Any

    @pytest.fixture
    def route(self) -> Route:
        route: Route = self.faulty()
        return route

    @pytest.fixture
    def unconfigured(self) -> Route:
        route: Route = self.faulty(dialects=())
        return route

    @pytest.fixture
    def dialogue(self) -> Dialogue:
        return Echo()


class FaultyHooks(HookContract):
    faulty: Any

    @pytest.fixture
    def module(self) -> Any:
        return self.faulty()


BASES = {"Policy": FaultyPolicy, "Minter": FaultyMinter, "Route": FaultyRoute, "Hooks": FaultyHooks}


def kits(kind: str, module: ModuleType) -> dict[str, type]:
    """By the name of the class."""
    names = {f"Test{kind}{name}": plugin for name, plugin, _ in faulty(module)}
    return {name: type(name, (BASES[kind],), {"faulty": plugin}) for name, plugin in names.items()}
