"""The real Codex passes the contract kit of engines."""

from __future__ import annotations

import pytest

from stockade.contracts.engine import Engine
from stockade.testing import EngineContract
from stockade.testing.rehearsal import Rehearse
from stockade_codex.engine import CodexEngine
from stockade_gateway.testing import rehearse as rehearsal

pytestmark = [pytest.mark.needs("codex", "namespaces"), pytest.mark.slow]


class TestCodex(EngineContract):
    model = "gpt-5"
    """With its default model, Codex describes the tools of MCP servers only to a model that searches for them."""

    @pytest.fixture
    def engine(self) -> type[Engine]:
        return CodexEngine

    @pytest.fixture
    def rehearse(self) -> Rehearse:
        return rehearsal
