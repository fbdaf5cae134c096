"""An engine needs no connection but its route's: shown where there is no other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import LIMIT, STOCKADE, CommandLine

pytestmark = [pytest.mark.needs("namespaces", "ip"), pytest.mark.slow]

ROOT = Path(__file__).parents[2]
ONLY_LOOPBACK = ("unshare", "--user", "--map-root-user", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")

WORK = """
    - shell: "ip -brief link > links.txt"
    - text: "It is done."
"""


@pytest.mark.parametrize("engine", [pytest.param(name, marks=pytest.mark.needs(name)) for name in ("claude", "codex")])
def test_a_turn_completes_where_only_loopback_exists(stockade: CommandLine, engine: str) -> None:
    script = stockade.script(WORK)
    workspace = stockade.folder / "demo"
    workspace.mkdir()
    turn = ["run", "--engine", engine, "--rehearse", script, "--workspace", "demo", "--file-access", "full", "Work"]
    done = subprocess.run(
        [*ONLY_LOOPBACK, *STOCKADE, *turn], cwd=stockade.folder, env=stockade.env, capture_output=True, timeout=LIMIT
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().strip() == "It is done."
    assert [line.split()[0] for line in (workspace / "links.txt").read_text().splitlines()] == ["lo"]


@pytest.mark.needs("cursor")
def test_a_turn_of_cursor_completes_where_only_loopback_exists(stockade: CommandLine) -> None:
    beside = [sys.executable, "-m", "tests.e2e.beside_backend"]
    turn = ["run", "--engine", "cursor", "--env-pass", "CURSOR_API_KEY", "Work"]
    done = subprocess.run(
        [*ONLY_LOOPBACK, *beside, *STOCKADE, *turn],
        cwd=stockade.folder,
        env=stockade.env | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().strip() == "It is done."
