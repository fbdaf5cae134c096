"""Makes a kit class for each faulty driver of a module."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from stockade.contracts.driver import Driver
from stockade.testing import DriverContract
from tests.core.testing.faults import faulty

ALONE = frozenset(
    {
        "BreaksAtTheEnd",
        "BreaksUnderLoad",
        "ClosesOnce",
        "EndsTheOthersToo",
        "ExpectsAGreeting",
        "ForgetsTheState",
        "HidesAProviderKey",
        "IgnoresTheLease",
        "KnowsOnlyItsOwn",
        "LeavesAWordOut",
        "LeavesFilesOpen",
        "NamesItOtherwise",
        "ReapsOnce",
        "SaysThatItIsGone",
        "StumblesOverARecord",
        "SwallowsTheReason",
        "TakesAKillForTheDeadline",
        "TellsTheInsideAnotherTier",
        "WorksOnACopyOfTheState",
        "WritesASecretDown",
    }
)
"""These meet only their own test: forty real sandboxes for each of forty drivers would take minutes.

Take a name out to see that it fails nothing else.
"""


class Faulty(DriverContract):
    limit = 25.0
    patience = 6.0
    faulty: type[Driver]

    # What an agent can do wrong is no fault of these drivers, and its fourteen tests are most of the kit's time.
    test_an_agent_that_misbehaves = None  # type: ignore[assignment]

    @pytest.fixture
    def driver(self) -> Driver:
        return self.faulty({})


def kits(module: ModuleType) -> dict[str, type[Faulty]]:
    """By the name of the class."""
    found = {}
    for name, driver, test in faulty(module):
        body: dict[str, Any] = {"faulty": driver}
        if name in ALONE:
            body |= {other: None for other in dir(Faulty) if other.startswith("test_") and other != test}
        found[f"Test{name}"] = type(f"Test{name}", (Faulty,), body)
    return found
