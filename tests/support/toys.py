"""Toy distributions on disk: what pip would leave behind, so that the real discovery finds them."""

from __future__ import annotations

import importlib
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

import pytest

from stockade.plugins.scan import EntryPoint, scan


class Toys:
    """Makes distributions in one folder that is first on ``sys.path``; hides those that are installed."""

    def __init__(self, site: Path) -> None:
        self.site = site
        site.mkdir()

    def dist(
        self,
        name: str,
        entry_points: Mapping[str, Mapping[str, str]],
        *,
        version: str = "1.0",
        requires: str = "",
        modules: Mapping[str, str] | None = None,
        site: Path | None = None,
        suffix: str = "dist-info",
    ) -> Path:
        """One distribution: groups of entry points, and the source of its modules. Returns its metadata folder."""
        site = site or self.site
        folder = site / f"{name.replace('-', '_')}-{version}.{suffix}"
        folder.mkdir(parents=True)
        lines = [
            f"Name: {name}",
            f"Version: {version}",
            *([f"Requires-Dist: {requires}"] if requires else []),
            "",
            "text",
        ]
        (folder / ("METADATA" if suffix == "dist-info" else "PKG-INFO")).write_text("\n".join(lines))
        text = "\n".join(
            f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in entries.items())
            for group, entries in entry_points.items()
        )
        (folder / "entry_points.txt").write_text(text)
        self.modules(modules or {}, site)
        return folder

    def hooks(self, name: str, source: str) -> None:
        """A distribution ``toy-NAME`` with one hook module."""
        module = f"toy_{name.replace('-', '_')}"
        source = "from stockade import hookimpl\n" + textwrap.dedent(source)
        self.dist(f"toy-{name}", {"stockade.plugins": {name: module}}, modules={module: source})

    def modules(self, modules: Mapping[str, str], site: Path | None = None) -> None:
        """Modules beside the distributions."""
        for module, source in modules.items():
            ((site or self.site) / f"{module}.py").write_text(textwrap.dedent(source))
        importlib.invalidate_caches()

    def hide(self, entry: EntryPoint) -> None:
        """An empty distribution of that name, earlier on the path."""
        folder = self.site / f"{entry.dist.replace('-', '_')}-0.dist-info"
        folder.mkdir(exist_ok=True)


@pytest.fixture
def toys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toys:
    """An empty world of plugins, to be filled. Modules imported from it are forgotten afterwards."""
    installed = scan()
    made = Toys(tmp_path / "site")
    monkeypatch.syspath_prepend(made.site)
    for entry in installed:
        made.hide(entry)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for name in [n for n in sys.modules if n.startswith("toy")]:
        monkeypatch.delitem(sys.modules, name)
    return made
