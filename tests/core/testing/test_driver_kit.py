"""The kit of drivers is proven: a good driver passes, and each faulty one fails the one test named for it."""

from __future__ import annotations

import pytest

from tests.core.testing import (
    faulty_driver_attests,
    faulty_driver_creates,
    faulty_driver_ends,
    faulty_driver_insides,
    faulty_driver_reaps,
    kits,
)
from tests.core.testing.faults import faulty

MODULES = (
    faulty_driver_creates,
    faulty_driver_insides,
    faulty_driver_attests,
    faulty_driver_ends,
    faulty_driver_reaps,
)
FAULTS = {name: test for module in MODULES for name, _, test in faulty(module)}

pytestmark = [pytest.mark.slow, pytest.mark.once, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, kits.Result]:
    names = [f"kit_of_{module.__name__.rpartition('.')[2]}" for module in MODULES]
    return kits.run(names, tmp_path_factory.mktemp("drivers"))


@pytest.mark.parametrize("name", FAULTS)
def test_a_faulty_driver_fails_exactly_its_test(name: str, results: dict[str, kits.Result]) -> None:
    found = results[f"Test{name}"]
    assert found.failed == {FAULTS[name]}, "\n".join(found.why.values())


def test_every_test_of_the_kit_finds_a_fault(results: dict[str, kits.Result]) -> None:
    everything = set().union(*(found.passed | found.failed | set(found.skipped) for found in results.values()))
    assert everything == set(FAULTS.values())


def test_a_good_driver_passes_and_a_skip_says_why(tmp_path_factory: pytest.TempPathFactory) -> None:
    [found] = kits.run(["kit_of_good_drivers"], tmp_path_factory.mktemp("good")).values()
    assert not found.failed, found.why
    assert found.skipped == {
        "test_the_tier_is_not_overstated": "not attested: Isolation.tier is 0, which claims no boundary"
    }
