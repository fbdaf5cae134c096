"""Imports a module and fails when that takes more than the standard library and its own package.

A script for ``python -I -S``: the module is the argument, the folders to search are lines on standard input.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType


class Gate:
    """First of the finders: hides installed packages other than ``allowed``, and notes who wanted one."""

    def __init__(self, allowed: set[str]) -> None:
        self._allowed = allowed | sys.stdlib_module_names
        self.wanted: set[str] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """None to go on with the other finders, or `ModuleNotFoundError`."""
        top = name.partition(".")[0]
        if top in self._allowed or PathFinder.find_spec(top) is None:
            return None
        self.wanted.add(top)
        raise ModuleNotFoundError(f"{name} is not of the standard library", name=name)


def main(module: str) -> int:
    """The exit status."""
    sys.path += [folder for folder in sys.stdin.read().splitlines() if folder not in sys.path]
    gate = Gate({"stockade", module.partition(".")[0]})
    sys.meta_path.insert(0, gate)
    try:
        import_module(module)
    except ModuleNotFoundError as error:
        print(f"importing {module} needs {error.name}")
        return 1
    if gate.wanted:
        print(f"importing {module} tries to import {', '.join(sorted(gate.wanted))}")
    return 1 if gate.wanted else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
