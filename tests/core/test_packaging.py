"""The distributions agree with one another, and the repository names no machine and no registry."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

import stockade
from tests.support import requirements

ROOT = Path(__file__).parents[2]
FILES = sorted([*ROOT.glob("core/pyproject.toml"), *ROOT.glob("plugins/**/pyproject.toml")])
PROJECTS: dict[str, dict[str, Any]] = {
    str(file.parent.relative_to(ROOT)): tomllib.loads(file.read_text())["project"] for file in FILES
}
MINOR = ".".join(stockade.__version__.split(".")[:2])
RANGE = f">={MINOR},<0.{int(MINOR.split('.')[1]) + 1}"


@pytest.mark.parametrize("folder", PROJECTS)
def test_one_version_everywhere(folder: str) -> None:
    assert PROJECTS[folder]["version"] == stockade.__version__


@pytest.mark.parametrize("folder", [f for f in PROJECTS if f != "core"])
def test_a_plugin_asks_for_the_kernel_of_its_minor_version(folder: str) -> None:
    assert f"stockade{RANGE}" in PROJECTS[folder]["dependencies"]


def test_every_distribution_has_an_extra_of_the_kernel_and_is_in_all() -> None:
    extras = PROJECTS["core"]["optional-dependencies"]
    for project in PROJECTS.values():
        name = project["name"].removeprefix("stockade-")
        if name != "stockade":
            assert extras[name] == [f"stockade-{name}{RANGE}"]
            assert name in re.split(r"[\[\],]", extras["all"][0])


@pytest.mark.parametrize("folder", PROJECTS)
def test_a_distribution_has_what_a_person_needs(folder: str) -> None:
    root = ROOT / folder
    assert (root / "README.md").is_file()
    assert (root / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    [package] = [p for p in (root / "src").iterdir() if (p / "__init__.py").is_file()]
    assert (package / "py.typed").is_file()


def test_everything_that_is_needed_is_pinned_and_nothing_else_is_said() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert all(re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.]*", line) for line in lines)
    pinned = {line.split("==")[0] for line in lines}
    own = {project["name"] for project in PROJECTS.values()}
    needed = [d for project in PROJECTS.values() for d in project["dependencies"]]
    needed += [line for line in (ROOT / "requirements-dev.txt").read_text().splitlines() if not line.startswith("#")]
    for requirement in needed:
        name = re.split(r"[<>=\[]", requirement)[0].lower().replace("_", "-")
        assert name in pinned | own, f"{requirement} is not in constraints.txt"


def tracked() -> list[Path]:
    """The files of the repository, or of an unpacked copy of it."""
    if (ROOT / ".git").exists():
        command = ["git", "-c", "safe.directory=*", "ls-files", "-co", "--exclude-standard", "-z"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]
    made = {".git", *(line.strip("/") for line in (ROOT / ".gitignore").read_text().splitlines() if line[-1:] == "/")}
    return [p for p in ROOT.rglob("*") if p.is_file() and not made & set(p.relative_to(ROOT).parts)]


def test_no_file_names_a_machine_or_a_registry() -> None:
    # Put together here, so that this file is none that names them.
    words = ["/wo" + "rk/", "/ro" + "ot/", "pypi" + ".org", "python" + "hosted", "/tmp/" + "venv", "--index" + "-url"]
    for path in tracked():
        if (
            path.suffix in {".py", ".md", ".toml", ".txt", ".ini", ".yaml", ".cfg", ""}
            and path.stat().st_size < 500_000
        ):
            text = path.read_text(errors="replace")
            assert not [word for word in words if word in text], path


def test_no_module_is_longer_than_a_person_can_hold() -> None:
    for folder in PROJECTS:
        for path in (ROOT / folder / "src").rglob("*.py"):
            assert len(path.read_text().splitlines()) <= 300, path


@pytest.mark.skipif(not requirements.published(), reason="the requirements do not lie beside the repository")
def test_every_requirement_has_its_number_in_the_list() -> None:
    assert set(requirements.known()) == requirements.published()
