"""The work of ``stockade plugins new``: writes a package that passes its contract kit at once.

The packages lie in ``stockade/templates`` as they are for the name *acme*, so their code is checked like any
other; another name is put in by replacing that word.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import re
import shlex
import string
from pathlib import Path

import stockade
from stockade.cli.text import printable
from stockade.errors import UsageError

KINDS = {
    "driver": ("stockade.drivers", "stockade_acme.driver:AcmeDriver"),
    "engine": ("stockade.engines", "stockade_acme.engine:AcmeEngine"),
    "policy": ("stockade.plugins", "stockade_acme.plugin"),
    "minter": ("stockade.minters", "stockade_acme.minter:AcmeMinter"),
    "route": ("stockade.plugins", "stockade_acme.plugin"),
}
"""What can be written: the group of its entry point, and the entry point's value."""

TEMPLATES = Path(stockade.__file__).parent / "templates"

_NAME = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
_ACME = re.compile(r"stockade_acme|Acme|acme")


def run(args: argparse.Namespace) -> int:
    """Write the package; show what was written and what to do next."""
    files = package(args.kind, args.name)
    folder = Path(args.into, f"stockade-{args.name}")
    write(folder, files)
    print(printable("\n".join([f"{folder}/", *_tree(sorted(files))])))
    steps = (
        f"cd {shlex.quote(str(folder))} && python -m pip install -e '.[test]'",
        "pytest",
        f"stockade plugins check {args.name}",
    )
    print(printable("\n".join(["", "Next:", *(f"  {step}" for step in steps)])))
    return 0


def package(kind: str, name: str) -> dict[str, str]:
    """The files of a new package: texts by relative path. Raises `UsageError` for a name that is none."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} cannot name a plugin", hint="Use lower-case words with dashes: my-sandbox.")
    if name in (importlib.metadata.metadata("stockade").get_all("Provides-Extra") or ()):
        raise UsageError(f"stockade-{name} is a name of Stockade's own", hint="Choose another name.")
    major, minor = stockade.__version__.split(".")[:2]
    group, target = KINDS[kind]
    facts = {"kind": kind, "group": group, "target": target, "range": f">={major}.{minor},<{major}.{int(minor) + 1}"}
    words = {
        "stockade_acme": f"stockade_{name.replace('-', '_')}",
        "Acme": "".join(word.capitalize() for word in name.split("-")),
        "acme": name,
    }

    def named(text: str) -> str:
        return _ACME.sub(lambda found: words[found[0]], text)

    project = string.Template((TEMPLATES / "pyproject.toml.in").read_text(encoding="utf-8")).substitute(facts)
    files = {"pyproject.toml": named(project), named("src/stockade_acme/py.typed"): ""}
    for path in (TEMPLATES / kind).rglob("*"):
        # An installed copy has what Python compiled, too.
        if path.is_file() and path.suffix in (".py", ".md"):
            files[named(path.relative_to(TEMPLATES / kind).as_posix())] = named(path.read_text(encoding="utf-8"))
    return files


def write(folder: Path, files: dict[str, str]) -> None:
    """Write files into a new or empty folder. Raises `UsageError` when something is there; nothing is replaced."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()) or (folder.exists() and any(folder.iterdir())):
        raise UsageError(f"{folder} exists and is not empty", hint="Move it away, or choose another --into.")
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)


def _tree(names: list[str]) -> list[str]:
    """The paths as an indented tree; a folder comes before what is in it."""
    lines: list[str] = []
    shown: set[Path] = set()
    for name in map(Path, names):
        for folder in reversed(name.parents[:-1]):
            if folder not in shown:
                shown.add(folder)
                lines.append(f"{'  ' * len(folder.parts)}{folder.name}/")
        lines.append(f"{'  ' * len(name.parts)}{name.name}")
    return lines
