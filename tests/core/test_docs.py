"""The reference says what the code says, links lead somewhere, and no file names this machine."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from stockade import contracts
from stockade.settings import Settings
from tests.support import docs, reference

REFERENCE = docs.ROOT / "docs" / "reference"
GUIDE = docs.ROOT / "docs" / "how-to" / "write-a-driver.md"  # parts of a package: see tests/core/cli/test_new.py
EXAMPLES = [b for b in docs.blocks("python") if b.page != GUIDE]


def test_the_errors_are_all_in_the_reference() -> None:
    table = reference.errors_table()
    assert table in (REFERENCE / "errors.md").read_text(), f"docs/reference/errors.md should have:\n{table}"


def test_the_events_are_all_in_the_reference() -> None:
    table = reference.events_table()
    assert table in (REFERENCE / "events.md").read_text(), f"docs/reference/events.md should have:\n{table}"


def test_the_hooks_are_all_in_the_reference() -> None:
    table = reference.hooks_table()
    assert table in (REFERENCE / "hooks.md").read_text(), f"docs/reference/hooks.md should have:\n{table}"


def test_the_settings_are_all_in_the_reference() -> None:
    page = (REFERENCE / "settings.md").read_text()
    assert re.findall(r"^\| `([a-z_.]+)` \|", page, re.M)[: len([*reference.settings_names()])] == [
        *reference.settings_names()
    ]


def test_the_contracts_are_all_in_the_reference() -> None:
    page = (REFERENCE / "contracts.md").read_text()
    for cls in reference.contract_classes(contracts):
        [row] = [line for line in page.splitlines() if line.startswith("|") and f".{cls.__name__}`" in line]
        for name in cls.__abstractmethods__:
            assert f"`{name}`" in row, f"{cls.__name__}.{name} is not in docs/reference/contracts.md"


@pytest.mark.parametrize("command", ["run", "exec", "cp", "plugins", "sandboxes", "doctor"])
def test_the_options_of_a_command_are_all_in_the_reference(command: str) -> None:
    page = (REFERENCE / "cli.md").read_text()
    section = page[page.index(f"## `stockade {command}") :].split("\n## ")[0]
    for option in reference.options(command):
        assert option in section, f"{option} of {command} is not in docs/reference/cli.md"


@pytest.mark.parametrize("block", [b for b in docs.blocks("toml") if b.page != GUIDE], ids=str)
def test_an_example_of_settings_is_valid(block: docs.Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = tomllib.loads(block.text)
    if "project" not in values:
        (tmp_path / "stockade.toml").write_text(block.text)
        monkeypatch.chdir(tmp_path)
        settings = Settings.load()
        assert json.dumps(settings.options("gateway"))


@pytest.mark.parametrize("block", [b for b in EXAMPLES if "Kernel.open" not in b.text], ids=str)
def test_an_example_of_a_plugin_defines_hooks(block: docs.Block) -> None:
    names: dict[str, object] = {}
    exec(compile(block.text, str(block), "exec"), names)
    assert any(hasattr(value, "stockade_impl") for value in names.values())


@pytest.mark.parametrize("page", docs.pages(), ids=lambda p: str(p.relative_to(docs.ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_no_page_is_hidden_from_the_readme() -> None:
    readme = (docs.ROOT / "README.md").read_text()
    for page in (docs.ROOT / "docs").rglob("*.md"):
        assert str(page.relative_to(docs.ROOT)) in readme
