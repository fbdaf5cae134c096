"""What ``stockade plugins new`` writes works at once: in a new virtual environment, beside the kernel only."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support import docs

pytestmark = [pytest.mark.needs("packages", "namespaces"), pytest.mark.slow, pytest.mark.once, pytest.mark.timeout(240)]

NAMES = {"driver": "my-box", "engine": "my-agent", "policy": "my-rules", "minter": "my-mint", "route": "model"}
"""The route is called as the engine wants it; so the five are all that a turn needs."""


@dataclass
class Place:
    """The environment, and the folder with the packages."""

    venv: Path
    packages: Path
    home: Path

    def folder(self, kind: str) -> Path:
        return self.packages / f"stockade-{NAMES[kind]}"

    def environment(self, **more: str) -> dict[str, str]:
        ours = ("PYTHON", "PYTEST", "STOCKADE_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        return {**kept, "PATH": f"{self.venv / 'bin'}:{os.environ['PATH']}", "STOCKADE_HOME": str(self.home), **more}

    def run(self, *argv: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.venv / "bin" / argv[0]), *argv[1:]],
            cwd=cwd or self.packages,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=200,
        )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Stockade from this checkout with the kits, then the five packages that it writes, all in one environment."""
    base = tmp_path_factory.mktemp("new")
    # The state root of the tests has a short path, as sockets need one; this is beside it.
    place = Place(base / "venv", base / "packages", Path(os.environ["STOCKADE_HOME"]).with_name("new"))
    place.packages.mkdir()
    venv.create(place.venv)
    # The build backend once, and not once for each package.
    install(place, f"{docs.ROOT / 'core'}[testing]", "hatchling")
    for kind, name in NAMES.items():
        done = place.run("stockade", "plugins", "new", kind, name)
        assert done.returncode == 0, done.stderr
        assert "pip install -e '.[test]'" in done.stdout
    install(place, "--no-build-isolation", *(f"{place.folder(kind)}[test]" for kind in NAMES))
    return place


def install(place: Place, *what: str) -> None:
    pip = [sys.executable, "-m", "pip", "--python", str(place.venv), "--disable-pip-version-check", "-q"]
    command = [*pip, "install", "-c", str(docs.ROOT / "constraints.txt"), *what]
    done = subprocess.run(command, cwd=place.packages, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", NAMES)
def test_a_new_package_passes_its_kit(place: Place, kind: str) -> None:
    done = place.run("python", "-m", "pytest", "-q", "-rs", cwd=place.folder(kind))
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    # What is not tested is what the package does not claim.
    skips = [line for line in done.stdout.splitlines() if line.startswith("SKIPPED")]
    assert all("not claimed: " in line or "not attested: " in line for line in skips), skips


def test_exactly_the_five_are_offered(place: Place) -> None:
    rows = json.loads(place.run("stockade", "plugins", "list", "--json").stdout)
    found = {(row["kind"], row["name"], row["dist"], row["enabled"]) for row in rows}
    kinds = {"policy": "hooks", "route": "hooks"}
    assert found == {(kinds.get(kind, kind), name, f"stockade-{name}", True) for kind, name in NAMES.items()}


@pytest.mark.parametrize("kind", NAMES)
def test_the_check_finds_nothing_to_say(place: Place, kind: str) -> None:
    done = place.run("stockade", "plugins", "check", NAMES[kind], "--json")
    assert done.returncode == 0, done.stderr
    [finding] = json.loads(done.stdout)
    assert (finding["faults"], finding["remarks"]) == ([], [])
    assert finding["api"]


def test_a_command_runs_in_the_new_drivers_sandbox(place: Place) -> None:
    done = place.run("stockade", "exec", "--driver", "my-box", "--", "sh", "-c", "echo hi; readlink /proc/self/ns/pid")
    said, namespace = done.stdout.splitlines()
    assert (done.returncode, said) == (0, "hi"), done.stderr
    assert namespace != os.readlink("/proc/self/ns/pid")


def test_the_new_policy_denies(place: Place) -> None:
    done = place.run("stockade", "exec", "--driver", "my-box", "--ttl", "2h", "--", "echo", "hi")
    assert (done.returncode, done.stdout) == (1, "")
    assert "denied" in done.stderr
    assert "my-rules" in done.stderr


async def test_the_new_engine_works_over_the_new_route(place: Place, tmp_path: Path) -> None:
    model = scripted_model(place)
    async with model.rehearse([{"shell": "echo by the agent > made.txt"}, {"text": "It is made."}]) as rehearsal:
        address = rehearsal.routes["model"].url.removeprefix("http://")
        process = await asyncio.create_subprocess_exec(
            *(str(place.venv / "bin" / "stockade"), "run", "--engine", "my-agent", "--driver", "my-box"),
            *("--model", "any", "--file-access", "full", "--workspace", str(tmp_path), "Make a file"),
            env=place.environment(STOCKADE_PLUGIN__MODEL__TO=address),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        stdout, stderr = await process.communicate()
    assert process.returncode == 0, stderr.decode()
    assert stdout.decode().strip() == "It is made."
    assert (tmp_path / "made.txt").read_text() == "by the agent\n"
    assert len(rehearsal.calls) == 2
    assert rehearsal.mentions("Make a file")


def scripted_model(place: Place) -> Any:
    """The model of the new engine's own tests."""
    spec = importlib.util.spec_from_file_location(
        "scripted_model", place.folder("engine") / "tests" / "scripted_model.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
