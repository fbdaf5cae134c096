"""Which requirements are shown, and by which tests.

``tests/requirements.txt`` has every number, a line each; ``*`` after it: in scope of what is built so far.
Where the requirements themselves lie beside the repository, a test checks that the file has all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILE = ROOT / "tests" / "requirements.txt"
SOURCE = ROOT.parent / "shared" / "requirements"


def known() -> dict[str, bool]:
    """Every number, and whether it is in scope."""
    lines = (line.split() for line in FILE.read_text().splitlines() if line and not line.startswith("#"))
    return {words[0]: words[1:] == ["*"] for words in lines}


def published() -> set[str]:
    """The numbers in the requirements' own files; empty where they are not there."""
    return {n for page in SOURCE.glob("*.md") for n in re.findall(r"^- \*\*([LSF]\d+)\*\*", page.read_text(), re.M)}


def shown(items: Iterable[pytest.Item]) -> dict[str, list[str]]:
    """Tests by the number that they show."""
    found: dict[str, list[str]] = {}
    for item in items:
        for number in dict.fromkeys(n for marker in item.iter_markers("requirement") for n in marker.args):
            tests = found.setdefault(number, [])
            name = item.nodeid.split("[")[0]
            if name not in tests:
                tests.append(name)
    return found


def check(items: Iterable[pytest.Item]) -> None:
    """Refuse a test that shows a requirement which does not exist."""
    wrong = {number: tests for number, tests in shown(items).items() if number not in known()}
    if wrong:
        raise pytest.UsageError(f"unknown requirements: {wrong}")


def report(items: Iterable[pytest.Item]) -> str:
    tests, scope = shown(items), known()
    lines = [""]
    for number in (n for n in scope if n in tests):
        lines.append(f"{number:4} shown by {tests[number][0]}")
        lines += [f"              {test}" for test in tests[number][1:]]
    missing = [n for n, inside in scope.items() if inside and n not in tests]
    later = [n for n, inside in scope.items() if not inside and n not in tests]
    inside = sum(scope.values())
    lines += [
        "",
        f"not yet shown, in scope ({len(missing)}): {' '.join(missing) or '-'}",
        f"not yet shown, later ({len(later)}): {' '.join(later) or '-'}",
        f"in scope: {inside - len(missing)} of {inside} shown",
    ]
    return "\n".join(lines)
