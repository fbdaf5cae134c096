"""The driver passes the contract kit."""

import pytest

from stockade.testing import DriverContract
from stockade_acme.driver import AcmeDriver


class TestAcmeDriver(DriverContract):
    @pytest.fixture
    def driver(self) -> AcmeDriver:
        return AcmeDriver({})
