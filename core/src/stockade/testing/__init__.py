"""Contract kits: abstract pytest classes that prove a plugin, and fakes to test against.

Needs the extra ``stockade[testing]`` (pytest and pytest-asyncio); `stockade.testing.fakes` does not. There is
no ``pytest11`` entry point: nothing of this is loaded into anybody's tests unless they import it.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stockade.testing.capabilities import Capabilities
    from stockade.testing.driver import DriverContract
    from stockade.testing.engine import EngineContract
    from stockade.testing.hooks import HookContract
    from stockade.testing.minter import MinterContract
    from stockade.testing.policy import PolicyContract
    from stockade.testing.route import RouteContract

__all__ = [
    "Capabilities",
    "DriverContract",
    "EngineContract",
    "HookContract",
    "MinterContract",
    "PolicyContract",
    "RouteContract",
]

_HOMES = {
    "Capabilities": "capabilities",
    "DriverContract": "driver",
    "EngineContract": "engine",
    "HookContract": "hooks",
    "MinterContract": "minter",
    "PolicyContract": "policy",
    "RouteContract": "route",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import pytest

    module = f"{__name__}.{_HOMES[name]}"
    if module not in sys.modules:
        # Before the import, so that a failed assertion of a kit shows its values; afterwards pytest would warn.
        pytest.register_assert_rewrite(module)
    return getattr(importlib.import_module(module), name)
