"""The other kits are proven: good plugins pass, and each faulty one fails the one test named for it."""

from __future__ import annotations

import pytest

from tests.core.testing import faulty_hooks, faulty_minters, faulty_policies, faulty_routes, kits
from tests.core.testing.faults import faulty

MODULES = {"Policy": faulty_policies, "Minter": faulty_minters, "Route": faulty_routes, "Hooks": faulty_hooks}
FAULTS = {f"{kind}{name}": test for kind, module in MODULES.items() for name, _, test in faulty(module)}

pytestmark = [pytest.mark.slow, pytest.mark.once, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, kits.Result]:
    names = [module.__name__.rpartition(".")[2] for module in MODULES.values()]
    return kits.run([f"kit_of_{name}" for name in names], tmp_path_factory.mktemp("others"))


@pytest.mark.parametrize("name", FAULTS)
def test_a_faulty_plugin_fails_exactly_its_test(name: str, results: dict[str, kits.Result]) -> None:
    found = results[f"Test{name}"]
    assert found.failed == {FAULTS[name]}, "\n".join(found.why.values())


@pytest.mark.parametrize("mode", ["strict", "auto"])
def test_the_fakes_pass_in_either_mode(mode: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    for kind, found in kits.run(["kit_of_fakes"], tmp_path_factory.mktemp(mode), mode=mode).items():
        assert not found.failed, f"{kind}: {found.why}"
        assert set(found.skipped.values()) <= {"not claimed: Capabilities(durable=False)"}


@pytest.mark.parametrize("kind", MODULES)
def test_every_test_of_a_kit_finds_a_fault(kind: str, results: dict[str, kits.Result]) -> None:
    tests = set().union(*(r.passed | r.failed for name, r in results.items() if name.startswith(f"Test{kind}")))
    assert tests == {test for name, test in FAULTS.items() if name.startswith(kind)}
