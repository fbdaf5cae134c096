"""The engine on the real bridge passes the contract kit of engines."""

from __future__ import annotations

import pytest

from stockade.contracts.engine import Engine
from stockade.testing import Capabilities, EngineContract
from stockade.testing.rehearsal import Rehearse
from stockade_cursor.engine import CursorEngine
from tests.cursor.rehearsal import rehearse as rehearsal

pytestmark = [pytest.mark.needs("cursor", "namespaces"), pytest.mark.slow]


class TestCursor(EngineContract):
    # MCP servers serve only where the engine does not confine: see test_permissions.py.
    capabilities = Capabilities(mcp=False)
    limit = 55
    """Seconds: the bridge itself repeats a call that was answered with 429 or 5xx for about 16 s."""

    @pytest.fixture
    def engine(self) -> type[Engine]:
        return CursorEngine

    @pytest.fixture
    def rehearse(self) -> Rehearse:
        return rehearsal
