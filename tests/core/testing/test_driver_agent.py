"""The agent that misbehaves, how its engine reads, and what the reference says of the kit of drivers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from stockade.testing import DriverContract, agent, faults

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "testing.md"


def test_every_test_and_fault_is_in_the_reference() -> None:
    page = PAGE.read_text()
    tests = [name for name in dir(DriverContract) if name.startswith("test_")]
    assert len(tests) > 40
    assert [name for name in [*tests, *agent.FAULTS] if f"`{name}`" not in page] == []


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_lines_are_the_same_however_they_arrive(size: int) -> None:
    data = "é\u2028\n\n{}\nlast ünfinished".encode()
    lines, found = faults.Lines(), []
    for at in range(0, len(data), size):
        found += lines.feed(data[at : at + size])
    found += lines.flush()
    assert [line for line, _ in found] == data.split(b"\n")
    assert [seen for _, seen in found] == [len(line) for line in data.split(b"\n")]


@pytest.mark.requirement("F18", "F26")
def test_of_an_endless_line_only_the_beginning_is_held() -> None:
    lines, piece = faults.Lines(), b"x" * 65536
    for _ in range(1600):
        assert lines.feed(piece) == []
    [(line, size)] = lines.feed(b"\n")
    assert size == 1600 * 65536
    assert faults.MAX_LINE <= len(line) <= faults.MAX_LINE + 2 * len(piece)


def test_the_agent_is_an_executable_that_needs_nothing_installed() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", agent.__file__, "mark"],
        input=json.dumps({"prompt": "please be good"}).encode() + b"\n",
        capture_output=True,
        check=True,
    )
    assert [json.loads(line)["type"] for line in done.stdout.splitlines()] == ["text", "result"]
