"""Makes a kit class for each faulty engine of a module."""

from __future__ import annotations

from types import ModuleType

import pytest

from stockade.contracts.engine import Engine
from stockade.testing import Capabilities, EngineContract
from stockade.testing.rehearsal import Rehearse
from tests.core.testing.faults import faulty
from tests.core.testing.toy_engine import rehearse as toy_model


class Faulty(EngineContract):
    patience = 1.5
    faulty: type[Engine]

    @pytest.fixture
    def engine(self) -> type[Engine]:
        return self.faulty

    @pytest.fixture
    def rehearse(self) -> Rehearse:
        return toy_model


def kits(module: ModuleType) -> dict[str, type[Faulty]]:
    """By the name of the class."""
    found = {}
    for name, engine, test in faulty(module):
        claims = Capabilities(mcp=test == "test_mcp_servers_are_offered")
        found[f"Test{name}"] = type(f"Test{name}", (Faulty,), {"faulty": engine, "capabilities": claims})
    return found
