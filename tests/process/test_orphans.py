"""What is left when the owner is killed, and what `reap` may end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stockade.contracts.driver import Orphan, Ownership
from stockade.model.spec import SandboxSpec
from stockade_process import reap
from stockade_process.driver import ProcessDriver
from tests.core.inside.client import until
from tests.process.conftest import Running
from tests.process.test_sandbox import TREE, sleepers

ROOT = Path(__file__).parents[2]


def orphan(spec: SandboxSpec, **changes: object) -> Ownership:
    """An ownership in which the sandbox of ``spec`` is an orphan."""
    live = frozenset({spec.id}) if changes.pop("live", False) else frozenset[str]()
    return Ownership(spec.run_dir.parent, (Orphan(spec.id, spec.run_dir, changes),), live)


@pytest.mark.requirement("L4", "F17")
@pytest.mark.parametrize("moment", ["creating", "created", "greeted", "busy"])
async def test_an_owner_that_is_killed_leaves_nothing(mode: str, spec: Callable[..., SandboxSpec], moment: str) -> None:
    one = spec()
    owner = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.process.owner", mode, str(one.run_dir.parent), one.id, TREE,
        cwd=ROOT,
        stdout=subprocess.PIPE,
    )  # fmt: skip
    assert owner.stdout is not None
    while (line := await owner.stdout.readline()) != f"{moment}\n".encode():
        assert line
    owner.kill()
    await owner.wait()
    started = time.monotonic()
    await until(lambda: not reap.find(one.id) and not sleepers(), "nothing of the sandbox runs", 5)
    assert time.monotonic() - started < 5
    [reaped] = await ProcessDriver({}).reap(orphan(one))
    assert (reaped.id, reaped.gone) == (one.id, True)


@pytest.mark.requirement("L74")
async def test_an_orphan_that_still_runs_is_ended_and_confirmed(running: Running) -> None:
    [reaped] = await ProcessDriver({}).reap(orphan(running.spec))
    assert (reaped.gone, reap.find(running.spec.id)) == (True, {})
    assert "ended" in reaped.evidence


@pytest.mark.requirement("F64")
async def test_a_sandbox_with_a_live_owner_is_never_touched(running: Running) -> None:
    [reaped] = await ProcessDriver({}).reap(orphan(running.spec, live=True))
    assert not reaped.gone
    assert await running.client.text("echo", "alive") == "alive\n"


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A process that has nothing to do with any sandbox."""
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


async def test_a_record_that_names_another_process_does_not_end_it(
    spec: Callable[..., SandboxSpec], bystander: subprocess.Popen[bytes]
) -> None:
    start = int(Path(f"/proc/{bystander.pid}/stat").read_bytes().rpartition(b")")[2].split()[19])
    [reaped] = await ProcessDriver({}).reap(orphan(spec(), pid=bystander.pid, start=start))
    assert reaped.gone
    assert bystander.poll() is None


@pytest.mark.parametrize("id", ["", "*", "../x", "a b", "a\0b"])
async def test_an_id_that_is_none_matches_nothing(tmp_path: Path, id: str) -> None:
    [reaped] = await ProcessDriver({}).reap(Ownership(tmp_path, (Orphan(id, tmp_path),)))
    assert not reaped.gone


async def test_a_reaper_inside_the_tree_does_not_end_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    script = "import os; from stockade_process import reap; print(sorted(reap.find('sb-self')) , os.getpid())"
    done = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, stdout=subprocess.PIPE, env={**os.environ, "STOCKADE_SANDBOX": "sb-self"}
    )
    output, _ = await done.communicate()
    assert output.startswith(b"[] ")


async def test_a_killed_wrapper_takes_the_sandbox_with_it(running: Running) -> None:
    os.kill(int(running.sandbox.handle["pid"]), signal.SIGKILL)
    ending = await running.sandbox.destroy(1)
    assert ending.reason == "destroyed"
    assert reap.find(running.spec.id) == {}
