"""The Docker driver keeps the contract of drivers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stockade.testing import DriverContract
from stockade_docker.driver import DockerDriver

pytestmark = pytest.mark.needs("docker")


class TestDocker(DriverContract):
    # The host's PATH means nothing in an image.
    own_variables = frozenset({"PATH"})

    @pytest.fixture
    def driver(self, driver_of: Callable[..., DockerDriver]) -> DockerDriver:
        return driver_of()
