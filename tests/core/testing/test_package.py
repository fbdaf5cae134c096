"""`stockade.testing` as a third party finds it."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import stockade.testing
from stockade.testing.capabilities import Capabilities, requires
from tests.core.testing import kits

PAGE = kits.ROOT / "docs" / "reference" / "testing.md"


def test_there_is_no_pytest_plugin() -> None:
    groups = {entry.group for entry in importlib.metadata.distribution("stockade").entry_points}
    assert "pytest11" not in groups


@pytest.mark.parametrize("module", ["stockade.testing", "stockade.testing.fakes", "stockade.testing.rehearsal"])
def test_what_plugins_use_outside_tests_does_not_need_pytest(module: str) -> None:
    program = f"import sys, {module}; sys.exit('pytest' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_every_kit_is_there_by_its_name() -> None:
    for name in stockade.testing.__all__:
        assert getattr(stockade.testing, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'NoContract'"):
        stockade.testing.NoContract  # noqa: B018


def test_a_test_can_only_require_what_can_be_claimed() -> None:
    with pytest.raises(ValueError, match="no flag telepathy"):
        requires("telepathy")


def test_every_flag_is_used_by_a_test() -> None:
    used = {flag for name in stockade.testing.__all__[1:] for flag in _required(getattr(stockade.testing, name))}
    assert used == set(Capabilities.__slots__)


def test_every_flag_is_on_the_page() -> None:
    page = PAGE.read_text()
    assert [flag for flag in Capabilities.__slots__ if f"| `{flag}` |" not in page] == []


def test_the_example_on_the_page_is_one_that_runs() -> None:
    source = (kits.HERE / "kit_of_good_engines.py").read_text()
    example = textwrap.indent(source[source.index("class TestToy") :], "    ")
    assert example in PAGE.read_text().replace("TestMyEngine", "TestToy").replace("MyEngine", "Toy")


def _required(kit: type) -> set[str]:
    return {flag for name in dir(kit) for flag in getattr(getattr(kit, name), "__stockade_requires__", ())}


def test_a_failed_assertion_shows_its_values(tmp_path: Path) -> None:
    (result,) = (r for n, r in kits.run(["kit_of_faulty_import"], tmp_path).items() if n == "TestImportsItsSdk")
    (why,) = result.why.values()
    assert "assert 'importing" in why
    assert "faulty_import needs pluggy" in why
