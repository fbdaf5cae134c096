"""Stockade runs coding agents inside sandboxes; every part is a plugin.

The public names are loaded when they are first used (PEP 562), so that ``import stockade`` costs
nothing inside a sandbox and for ``stockade --help``.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # as type checkers understand it; importing typing costs a third of ``python -c pass``

__version__ = "0.1.0"

_HOME = {
    "Kernel": "stockade.kernel",
    "TurnHandle": "stockade.runtime.turns",
    "Settings": "stockade.settings",
    "StockadeError": "stockade.errors",
    "Driver": "stockade.contracts.driver",
    "Sandbox": "stockade.contracts.driver",
    "Channel": "stockade.contracts.channel",
    "Engine": "stockade.contracts.engine",
    "EngineContext": "stockade.contracts.engine",
    "AdmissionPolicy": "stockade.contracts.authority",
    "TokenMinter": "stockade.contracts.authority",
    "Route": "stockade.contracts.route",
    "hookimpl": "stockade.hookspecs",
    "Outcome": "stockade.model.turn",
}

__all__ = ["__version__", *sorted(_HOME)]

if TYPE_CHECKING:
    from stockade.contracts.authority import AdmissionPolicy as AdmissionPolicy
    from stockade.contracts.authority import TokenMinter as TokenMinter
    from stockade.contracts.channel import Channel as Channel
    from stockade.contracts.driver import Driver as Driver
    from stockade.contracts.driver import Sandbox as Sandbox
    from stockade.contracts.engine import Engine as Engine
    from stockade.contracts.engine import EngineContext as EngineContext
    from stockade.contracts.route import Route as Route
    from stockade.errors import StockadeError as StockadeError
    from stockade.hookspecs import hookimpl as hookimpl
    from stockade.kernel import Kernel as Kernel
    from stockade.model.turn import Outcome as Outcome
    from stockade.runtime.turns import TurnHandle as TurnHandle
    from stockade.settings import Settings as Settings


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'stockade' has no attribute {name!r}")
