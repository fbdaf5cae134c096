"""The kit of engines is proven: a good engine passes, and each faulty one fails the one test named for it."""

from __future__ import annotations

import pytest

from tests.core.testing import faulty_endings, faulty_import, faulty_turns, kits
from tests.core.testing.faults import faulty

MODULES = (faulty_turns, faulty_endings, faulty_import)
FAULTS = {name: test for module in MODULES for name, _, test in faulty(module)}

pytestmark = [pytest.mark.slow, pytest.mark.once, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, kits.Result]:
    names = ["kit_of_faulty_turns", "kit_of_faulty_endings", "kit_of_faulty_import"]
    return kits.run(names, tmp_path_factory.mktemp("engines"))


@pytest.mark.parametrize("name", FAULTS)
def test_a_faulty_engine_fails_exactly_its_test(name: str, results: dict[str, kits.Result]) -> None:
    found = results[f"Test{name}"]
    assert found.failed == {FAULTS[name]}, "\n".join(found.why.values())


@pytest.mark.parametrize("mode", ["strict", "auto"])
def test_a_good_engine_passes_in_either_mode(mode: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    (found,) = kits.run(["kit_of_good_engines"], tmp_path_factory.mktemp(mode), mode=mode).values()
    assert not found.failed, found.why
    assert found.skipped == {"test_mcp_servers_are_offered": "not claimed: Capabilities(mcp=False)"}


def test_every_test_of_the_kit_finds_a_fault(results: dict[str, kits.Result]) -> None:
    everything = set().union(*(found.passed | found.failed for found in results.values()))
    assert everything == set(FAULTS.values())
