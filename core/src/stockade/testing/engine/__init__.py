"""The contract kit of engines."""

from stockade.testing.engine.contract import EngineContract

__all__ = ["EngineContract"]
