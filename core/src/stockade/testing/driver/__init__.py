"""The contract kit of drivers."""

from stockade.testing.driver.contract import DriverContract

__all__ = ["DriverContract"]
