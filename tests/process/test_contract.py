"""The process driver keeps the contract of drivers, with and without namespaces."""

from __future__ import annotations

import pytest

from stockade.testing import DriverContract
from stockade_process.driver import ProcessDriver


@pytest.mark.needs("namespaces")
class TestWithNamespaces(DriverContract):
    @pytest.fixture
    def driver(self) -> ProcessDriver:
        return ProcessDriver({"namespaces": "require"})


class TestWithoutNamespaces(DriverContract):
    @pytest.fixture
    def driver(self) -> ProcessDriver:
        return ProcessDriver({"namespaces": "off"})
