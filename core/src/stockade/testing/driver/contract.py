"""`DriverContract`."""

from __future__ import annotations

from stockade.testing.driver.agents import AgentTests
from stockade.testing.driver.creating import CreateTests
from stockade.testing.driver.ending import EndTests
from stockade.testing.driver.inside import InsideTests
from stockade.testing.driver.isolation import IsolationTests
from stockade.testing.driver.reaping import ReapTests


class DriverContract(CreateTests, InsideTests, IsolationTests, EndTests, ReapTests, AgentTests):
    """What every driver owes. Subclass it, and give one fixture::

        from stockade.testing import DriverContract

        class TestMyDriver(DriverContract):
            @pytest.fixture
            def driver(self):
                return MyDriver({})

    Optional: ``capabilities`` for what cannot be seen from this machine, ``own_variables`` for what the driver
    adds to the environment, ``limit`` and ``patience`` for a slow one.

    The kit makes real sandboxes and plays the kernel over the real wire. Its tests look for the sandbox's
    processes on this machine by marks on their command lines, and end what they planted.
    """
