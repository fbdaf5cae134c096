"""`EngineContract`."""

from __future__ import annotations

from stockade.testing.engine.boundaries import BoundaryTests
from stockade.testing.engine.endings import EndingTests
from stockade.testing.engine.turns import TurnTests


class EngineContract(TurnTests, EndingTests, BoundaryTests):
    """What every engine owes. Subclass it, and give two fixtures::

        from stockade.testing import EngineContract
        from stockade_gateway.testing import rehearse as rehearsal

        class TestMyEngine(EngineContract):
            @pytest.fixture
            def engine(self):
                return MyEngine

            @pytest.fixture
            def rehearse(self):
                return rehearsal

    ``engine`` is the class. ``rehearse`` serves a script as the model (`stockade.testing.rehearsal.Rehearse`).
    Optional: ``capabilities`` for what the engine does not claim, the attribute ``model``, the fixture
    ``variables`` for what its agent needs in the environment, ``limit`` and ``patience`` for a slow agent.

    The engine runs in the tests' process at tier 0, with the environment that the kernel gives. A shell command
    of the script is run with file access ``full``.
    """
