"""``stockade plugins new``: what is written, and what is refused. `tests/e2e/test_new.py` runs it."""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from stockade.cli import app, new, plugins
from stockade.errors import UsageError
from stockade.plugins.scan import GROUPS
from tests.core.test_packaging import RANGE
from tests.support import docs

GUIDE = docs.ROOT / "docs" / "how-to" / "write-a-driver.md"
KINDS = ("driver", "engine", "policy", "minter", "route")


def sources(kind: str, name: str = "my-thing") -> dict[str, str]:
    return {path: text for path, text in new.package(kind, name).items() if path.endswith(".py")}


@pytest.mark.parametrize("kind", KINDS)
def test_a_package_has_what_a_person_needs(kind: str) -> None:
    files = new.package(kind, "my-thing")
    assert {"pyproject.toml", "README.md", "tests/test_contract.py", "src/stockade_my_thing/py.typed"} <= files.keys()
    for section in ("pip install stockade-my-thing", "## Settings", "## Tests"):
        assert section in files["README.md"]


@pytest.mark.parametrize("kind", KINDS)
def test_its_metadata_are_those_of_a_plugin(kind: str) -> None:
    files = new.package(kind, "my-thing")
    project = tomllib.loads(files["pyproject.toml"])["project"]
    assert project["name"] == "stockade-my-thing"
    assert project["dependencies"] == [f"stockade{RANGE}"]
    assert project["optional-dependencies"] == {"test": ["stockade[testing]"]}
    [(group, entries)] = project["entry-points"].items()
    assert group == GROUPS.get(kind, GROUPS["hooks"])
    module, _, attribute = entries["my-thing"].partition(":")
    assert attribute in files[f"src/{module.replace('.', '/')}.py"]
    assert bool(attribute) is (kind in GROUPS)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_of_the_templates_name_is_left(kind: str) -> None:
    for path, text in new.package(kind, "my-thing").items():
        assert "acme" not in (path + text).lower(), path
        assert "$" not in path + text, path


@pytest.mark.parametrize("kind", KINDS)
def test_its_modules_are_small_and_say_what_they_are(kind: str) -> None:
    for path, text in sources(kind).items():
        assert len(text.splitlines()) <= 120, path
        assert text.startswith('"""'), path


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="mypy is not installed")
def test_the_code_is_typed_as_it_says(tmp_path: Path) -> None:
    for kind in KINDS:
        new.write(tmp_path / kind, new.package(kind, f"my-{kind}"))
    paths = [str(tmp_path / kind / "src") for kind in KINDS]
    (tmp_path / "mypy.ini").write_text(f"[mypy]\nstrict = True\nmypy_path = {':'.join(paths)}\n")
    packages = [word for kind in KINDS for word in ("-p", f"stockade_my_{kind}")]
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "cache"), *packages]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=55)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_was_written_is_shown_with_the_next_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["plugins", "new", "policy", "work-hours", "--into", str(tmp_path)]) == 0
    folder = tmp_path / "stockade-work-hours"
    written = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert written == new.package("policy", "work-hours").keys()
    said = capsys.readouterr().out
    assert [line.strip() for line in said.splitlines()] == [
        f"{folder}/",
        "README.md",
        "pyproject.toml",
        "src/",
        "stockade_work_hours/",
        "__init__.py",
        "plugin.py",
        "policy.py",
        "py.typed",
        "tests/",
        "test_contract.py",
        "",
        "Next:",
        f"cd {folder} && python -m pip install -e '.[test]'",
        "pytest",
        "stockade plugins check work-hours",
    ]


def test_without_into_it_is_written_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stockade-vault").mkdir()
    assert app.main(["plugins", "new", "minter", "vault"]) == 0
    assert (tmp_path / "stockade-vault" / "src" / "stockade_vault" / "minter.py").is_file()


def test_a_folder_with_something_in_it_stays_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "stockade-vault" / "README.md"
    mine.parent.mkdir()
    mine.write_text("mine")
    assert app.main(["plugins", "new", "minter", "vault", "--into", str(tmp_path)]) == 2
    assert "not empty" in capsys.readouterr().err
    assert [path.name for path in mine.parent.iterdir()] == ["README.md"]
    assert mine.read_text() == "mine"


def test_a_file_or_a_link_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for name in ("file", "link"):
        with pytest.raises(UsageError):
            new.write(tmp_path / name, {"README.md": ""})
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    "name", ["", "My-box", "my_box", "1box", "-box", "box-", "my--box", "my.box", "../box", "böx", "box\n"]
)
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(UsageError) as refused:
        new.package("driver", name)
    assert "lower-case" in refused.value.hint.lower()


@pytest.mark.parametrize("name", ["process", "claude", "all"])
def test_a_name_of_stockades_own_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="own"):
        new.package("driver", name)


def test_the_command_line_offers_what_can_be_written(parse: Callable[..., argparse.Namespace]) -> None:
    assert tuple(new.KINDS) == KINDS
    for kind in KINDS:
        assert parse(plugins, "new", kind, "my-thing").kind == kind
    with pytest.raises(UsageError):
        parse(plugins, "new", "sandbox", "my-thing")


def test_the_guides_code_is_what_is_written() -> None:
    files = new.package("driver", "my-box")
    shown = [block for language in ("python", "toml") for block in docs.blocks(language) if block.page == GUIDE]
    for block in shown:
        assert any(block.text in text for text in files.values()), f"{block} is in no file of the package"
    # What it leaves out is what needs no word: imports, the constructor of the sandbox, small functions.
    code = [line for path, text in files.items() if path.endswith(".py") for line in text.splitlines() if line.strip()]
    assert 2 * sum(len(block.text.splitlines()) for block in shown) > len(code)


def test_the_guide_shows_the_tree_that_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [tree] = [block for block in docs.blocks("text") if block.page == GUIDE]
    assert "    stockade plugins new driver my-box\n" in GUIDE.read_text()
    app.main(["plugins", "new", "driver", "my-box", "--into", str(tmp_path)])
    said = capsys.readouterr().out
    assert said.startswith(f"{tmp_path}/{tree.text}")
