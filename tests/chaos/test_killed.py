"""SIGKILL of the whole kernel at each await that a create, a turn and a destroy go through."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stockade import Kernel
from stockade.settings import Settings
from tests.support.guards import leftovers

ROOT = Path(__file__).parents[2]
AT_ONCE = 4
ENTRY_POINTS = "[stockade.engines]\nnull = stockade.testing.fakes:NullEngine\n"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A state root, and an engine that completes at once."""
    info = tmp_path / "site" / "stockade_null-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stockade-null\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{info.parent}:{ROOT}",
        "STOCKADE_HOME": str(tmp_path / "home"),
        "STOCKADE_PLUGINS": "process,null",
    }


def victim(step: int, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.chaos.victim", str(step)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.needs("namespaces")
@pytest.mark.requirement("F17", "F52", "F5")
@pytest.mark.timeout(900)
@pytest.mark.slow
@pytest.mark.parametrize(("mode", "stride"), [("require", 1), ("off", 8)])
def test_a_kernel_killed_at_any_await_leaves_nothing_that_one_reap_does_not_remove(
    environment: dict[str, str], mode: str, stride: int
) -> None:
    environment["STOCKADE_PLUGIN__PROCESS__NAMESPACES"] = mode
    whole = victim(0, environment)
    out, err = whole.communicate()
    assert whole.returncode == 0, err.decode()
    steps = int(out)
    assert steps > 50
    pending = list(range(1, steps + 1, stride))
    wanted = len(pending)
    killed = 0
    while pending:
        batch, pending = pending[:AT_ONCE], pending[AT_ONCE:]
        for process in [victim(step, environment) for step in batch]:
            _, err = process.communicate()
            # Runs differ by a few steps: the last victims may reach their end alive.
            assert process.returncode in (-9, 0), err.decode()
            killed += process.returncode == -9
        # Within five seconds nothing runs, whoever reaps or not.
        assert leftovers([environment["STOCKADE_HOME"]]) == []
    assert killed > wanted * 0.8
    settings = Settings.load(home=environment["STOCKADE_HOME"], plugins=("process",))
    asyncio.run(reap(settings))
    home = Path(environment["STOCKADE_HOME"])
    assert list((home / "run").iterdir()) == []
    assert list((home / "owners").iterdir()) == []


async def reap(settings: Settings) -> None:
    async with Kernel.open(settings) as kernel:
        await kernel.reap()
        assert kernel.sandboxes() == []
