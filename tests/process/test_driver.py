"""Options, namespaces and failures of the process driver."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stockade.errors import CreateFailed, SettingsError
from stockade.model.spec import SandboxSpec
from stockade_process.driver import ProcessDriver
from stockade_process.namespaces import probe
from tests.core.inside.client import Client


@pytest.mark.parametrize("options", [{"namespaces": "sometimes"}, {"namespaces": True}, {"name_spaces": "off"}])
def test_a_wrong_option_is_named(options: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match="namespaces"):
        ProcessDriver(options)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Puts another ``unshare`` on this host's PATH, a script; the real one is ``$REAL``."""
    real = shutil.which("unshare") or "unshare"

    def replace(script: str) -> None:
        program = tmp_path / "bin" / "unshare"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\nREAL={real}\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        probe.cache_clear()

    yield replace
    probe.cache_clear()


REFUSES = "echo 'unshare: unshare failed: Operation not permitted' >&2; exit 1"
ONE_LEVEL = 'test -n "$LEVEL" && { echo refused >&2; exit 1; }; LEVEL=1 exec $REAL "$@"'


@pytest.mark.requirement("L43")
async def test_required_namespaces_that_are_refused_refuse_the_sandbox(
    host: Callable[[str], None], spec: Callable[..., SandboxSpec]
) -> None:
    host(REFUSES)
    one = spec()
    with pytest.raises(CreateFailed, match="Operation not permitted") as refused:
        await ProcessDriver({"namespaces": "require"}).create(one)
    assert "auto" in refused.value.hint
    assert not one.run_dir.exists()


@pytest.mark.requirement("L43", "L81")
async def test_auto_without_namespaces_warns_with_the_consequence_and_the_fix(
    host: Callable[[str], None], spec: Callable[..., SandboxSpec], caplog: pytest.LogCaptureFixture
) -> None:
    host(REFUSES)
    driver = ProcessDriver({})
    for _ in range(2):
        sandbox = await driver.create(spec())
        assert sandbox.isolation.processes == "subreaper"
        assert not sandbox.isolation.nested
        await sandbox.destroy(1)
    [record] = [record for record in caplog.records if record.levelname == "WARNING"]
    for part in ("Operation not permitted", "subreaper", "Fix:"):
        assert part in record.getMessage()


@pytest.mark.needs("namespaces")
@pytest.mark.requirement("L41", "F42")
async def test_auto_does_not_wrap_where_only_one_level_is_allowed(
    host: Callable[[str], None], spec: Callable[..., SandboxSpec]
) -> None:
    host(ONE_LEVEL)
    assert (probe().available, probe().nested) == (True, False)
    sandbox = await ProcessDriver({}).create(spec())
    assert sandbox.isolation.processes == "subreaper"
    assert sandbox.isolation.nested, "the one level that there is, is left to the agent"
    await sandbox.destroy(1)
    wrapped = await ProcessDriver({"namespaces": "require"}).create(spec())
    assert (wrapped.isolation.processes, wrapped.isolation.nested) == ("pid-namespace", False)
    await wrapped.destroy(1)


@pytest.mark.requirement("L41")
async def test_the_probe_runs_once(
    host: Callable[[str], None], spec: Callable[..., SandboxSpec], tmp_path: Path
) -> None:
    host(f'echo x >> {tmp_path}/runs; exec $REAL "$@"')
    driver = ProcessDriver({"namespaces": "off"})
    for _ in range(3):
        await (await driver.create(spec())).destroy(1)
    assert (tmp_path / "runs").read_text().count("x") <= 2


@pytest.mark.requirement("L71")
async def test_a_failed_create_leaves_nothing(mode: str, spec: Callable[..., SandboxSpec], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(CreateFailed):
        await ProcessDriver({"namespaces": mode}).create(spec(run_dir=tmp_path / "file" / "run"))
    assert len(os.listdir("/proc/self/fd")) == before


async def test_python_variables_do_not_reach_the_interpreter(
    mode: str, spec: Callable[..., SandboxSpec], tmp_path: Path
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('hijacked')")
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path), "PYTHONSTARTUP": "/nowhere"}
    one = spec(environment=environment)
    sandbox = await ProcessDriver({"namespaces": mode}).create(one)
    client = Client(sandbox.channel, one.id)
    await client.start()
    assert await client.text("sh", "-c", "echo $PYTHONPATH") == f"{tmp_path}\n", "children have what was given"
    await sandbox.destroy(1)
    await client.mux.aclose()
