"""The real Claude Code passes the contract kit of engines."""

from __future__ import annotations

import pytest

from stockade.contracts.engine import Engine
from stockade.testing import EngineContract
from stockade.testing.rehearsal import Rehearse
from stockade_claude.engine import ClaudeEngine

gateway = pytest.importorskip("stockade_gateway.testing", reason="the kit's scripted model is stockade-gateway's")

pytestmark = [pytest.mark.needs("claude"), pytest.mark.slow]


class TestClaude(EngineContract):
    @pytest.fixture
    def engine(self) -> type[Engine]:
        return ClaudeEngine

    @pytest.fixture
    def rehearse(self) -> Rehearse:
        rehearsal: Rehearse = gateway.rehearse
        return rehearsal
