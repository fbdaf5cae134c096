"""The contract kit of routes."""

from stockade.testing.route.base import Dialogue
from stockade.testing.route.contract import RouteContract

__all__ = ["Dialogue", "RouteContract"]
