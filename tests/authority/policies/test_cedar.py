"""The worked example of a replacement policy: found like an installed package, required by a setting."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from stockade import Kernel
from stockade.settings import Settings
from tests.support import docs

EXAMPLE = docs.ROOT / "examples" / "stockade-cedar"
DRIVER = """\
[stockade.drivers]
memory = stockade.testing.fakes:MemoryDriver
[stockade.engines]
claude = stockade.testing.fakes:NullEngine
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What pip would leave of the example: its modules on the path, and metadata with its entry points."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    points = "".join(
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
        for group, entries in project["entry-points"].items()
    )
    for name, text in ((project["name"], points), ("cedar-bench", DRIVER)):
        info = tmp_path / "site" / f"{name.replace('-', '_')}-{project['version']}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {project['version']}\n")
        (info / "entry_points.txt").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.syspath_prepend(str(EXAMPLE / "src"))
    monkeypatch.setenv("STOCKADE_PLUGINS", "stockade-cedar,cedar-bench")
    for name in [n for n in sys.modules if n.startswith("stockade_cedar")]:
        monkeypatch.delitem(sys.modules, name)


@pytest.fixture
def open_kernel(tmp_path: Path, installed: None) -> Callable[..., contextlib.AbstractAsyncContextManager[Kernel]]:
    @contextlib.asynccontextmanager
    async def opened(**plugin: Any) -> AsyncIterator[Kernel]:
        required = {"required": ["cedar"]}
        settings = Settings.load(home=tmp_path / "home", admission=required, driver="memory", plugin=plugin)
        async with Kernel.open(settings) as kernel:
            yield kernel

    return opened


async def test_it_decides_who_may_have_a_sandbox(open_kernel: Any) -> None:
    paths = {"policies": str(EXAMPLE / "policies.cedar"), "entities": str(EXAMPLE / "entities.json")}
    async with open_kernel(cedar=paths) as kernel:

        async def turn(**wish: Any) -> Any:
            return await (await kernel.turn("hi", engine="claude", **wish)).outcome()

        assert (await turn(user="ann")).status == "completed"
        assert "policy 'cedar' of plugin 'cedar': no Cedar policy permits it" in (await turn(user="eve")).message
        full = await turn(user="ann", file_access="full")
        assert "full file access only in a container" in full.message  # the driver attested tier 0
        assert "plugin.cedar.policies" in full.hint
        assert kernel.sandboxes() == []


async def test_required_and_not_configured_means_no_sandbox(open_kernel: Any) -> None:
    async with open_kernel() as kernel:
        outcome = await (await kernel.turn("hi", engine="claude", user="ann")).outcome()
        assert "is required (setting admission.required) and has no admission policy" in outcome.message


@pytest.mark.slow
def test_its_own_tests_pass() -> None:
    path = os.pathsep.join([str(EXAMPLE / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "pyproject.toml", "tests"]
    done = subprocess.run(
        command, cwd=EXAMPLE, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=55
    )
    assert done.returncode == 0, done.stdout + done.stderr
