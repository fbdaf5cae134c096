"""The plugin libraries stay where design §4 puts them."""

import re
from pathlib import Path

import pytest

import stockade

SOURCE = Path(stockade.__file__).parent


@pytest.mark.parametrize(
    ("library", "homes"),
    [
        ("stevedore", {"plugins/discovery.py"}),
        ("pluggy", {"plugins/hooks.py", "hookspecs.py"}),
        # `plugins new` asks for the extras of the kernel's own distribution.
        ("importlib.metadata", {"plugins/discovery.py", "cli/new.py"}),
    ],
)
def test_a_plugin_library_is_imported_in_one_place(library: str, homes: set[str]) -> None:
    statement = re.compile(rf"^\s*(?:import|from) {re.escape(library)}\b", re.M)
    files = {str(p.relative_to(SOURCE)) for p in SOURCE.rglob("*.py") if statement.search(p.read_text())}
    assert files == homes


@pytest.mark.parametrize("name", ["load_setuptools_entrypoints", "HookManager", "EnabledExtensionManager"])
def test_the_forbidden_ways_to_load_plugins_are_not_used(name: str) -> None:
    assert not [p for p in SOURCE.rglob("*.py") if name in p.read_text()]
