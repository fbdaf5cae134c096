"""The hook module passes its contract kit."""

from __future__ import annotations

from types import ModuleType

import pytest

from stockade.testing import HookContract
from stockade_authority import plugin


class TestHooks(HookContract):
    @pytest.fixture
    def module(self) -> ModuleType:
        return plugin
