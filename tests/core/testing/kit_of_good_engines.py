"""Engines that pass. Run by `test_engine_kit`, as the tests of a third party."""

from __future__ import annotations

import pytest

from stockade.contracts.engine import Engine
from stockade.testing import Capabilities, EngineContract
from stockade.testing.rehearsal import Rehearse
from tests.core.testing.toy_engine import Toy
from tests.core.testing.toy_engine import rehearse as toy_model


class TestToy(EngineContract):
    capabilities = Capabilities(mcp=False)

    @pytest.fixture
    def engine(self) -> type[Engine]:
        return Toy

    @pytest.fixture
    def rehearse(self) -> Rehearse:
        return toy_model
