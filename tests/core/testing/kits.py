"""Runs a file of kit tests as a third party would: in a process of its own, in strict mode, with no configuration."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


@dataclass
class Result:
    """The tests of one class by how they ended. ``why`` has what the failed ones said."""

    passed: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    skipped: dict[str, str] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)


def run(names: Sequence[str], folder: Path, *, mode: str = "strict") -> dict[str, Result]:
    """Results by class of several files, run at the same time. ``folder`` takes all that they write."""
    folder.joinpath("pytest.ini").write_text("[pytest]\n")
    with ThreadPoolExecutor(len(names)) as threads:
        results = threads.map(lambda name: _run(name, folder, mode), names)
    return {name: result for found in results for name, result in found.items()}


def _run(name: str, folder: Path, mode: str) -> dict[str, Result]:
    report = folder / f"{name}.xml"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-W", "error", "--import-mode=importlib"),
            *("-c", folder / "pytest.ini", "--rootdir", HERE, "--confcutdir", HERE, "-p", "no:cacheprovider"),
            *("-p", "no:timeout", f"--asyncio-mode={mode}", "-o", "asyncio_default_fixture_loop_scope=function"),
            *(f"--junit-xml={report}", f"--basetemp={folder / name}", HERE / f"{name}.py"),
        ],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return _read(report)


def _read(report: Path) -> dict[str, Result]:
    results: dict[str, Result] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        result = results.setdefault(case.attrib["classname"].rpartition(".")[2], Result())
        name = case.attrib["name"]
        # An error of a fixture is none of the failures that a kit promises: it gets another name.
        for kind, known in (("failure", name), ("error", f"{name} (error)")):
            for found in case.iter(kind):
                result.failed.add(known)
                result.why[known] = found.text or ""
        for found in case.iter("skipped"):
            result.skipped[name] = found.attrib.get("message", "")
        if name not in result.skipped and not any(word.startswith(name) for word in result.failed):
            result.passed.add(name)
    return results
