"""The table of engines in the reference is what the tests show."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support import behaviours, host

ROOT = behaviours.FILE.parents[2]


@pytest.mark.skipif(
    bool([name for name in behaviours.ENGINES if host.lack(name)]), reason="not every engine is installed here"
)
def test_the_table_of_engines_is_what_the_tests_show() -> None:
    folders = [f"tests/{name}" for name in behaviours.ENGINES]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--engines", *folders],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    made = done.stdout.partition(behaviours.BEGIN)[2].partition(behaviours.END)[0]
    written = behaviours.FILE.read_text().partition(behaviours.BEGIN)[2].partition(behaviours.END)[0]
    assert written == made, "put the output of `./dev test --engines` into docs/reference/engines.md"
    assert "not shown" not in made
