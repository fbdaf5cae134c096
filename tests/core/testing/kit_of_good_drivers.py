"""The kit for a driver that keeps its contract. Run by `test_driver_kit`."""

import pytest

from stockade.testing import DriverContract
from tests.core.testing.forking_driver import ForkingDriver


class TestForking(DriverContract):
    @pytest.fixture
    def driver(self) -> ForkingDriver:
        return ForkingDriver({})
