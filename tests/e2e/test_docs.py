"""The examples that a person would type or paste do what the pages say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import docs

pytestmark = [pytest.mark.needs("claude"), pytest.mark.timeout(180)]


def environment(home: Path) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "STOCKADE_HOME": str(home)}


@pytest.mark.parametrize("page", sorted({b.page for b in docs.blocks("console")}), ids=lambda p: p.stem)
def test_the_commands_of_a_page_show_what_it_says(page: Path, tmp_path: Path, short_tmp: Path) -> None:
    for block in docs.blocks("yaml"):
        if block.page == page:
            (tmp_path / "plan.yaml").write_text(block.text)
    steps = [step for block in docs.blocks("console") if block.page == page for step in docs.commands(block)]
    marks = [f"{command}\nprintf '\\0'" for command, _ in steps]
    script = "set -e\n" + "\n".join(marks)
    done = subprocess.run(
        ["sh", "-c", script], cwd=tmp_path, env=environment(short_tmp), capture_output=True, text=True, timeout=150
    )
    outputs = done.stdout.split("\0")
    for (command, expected), output in zip(steps, outputs, strict=False):
        missing = docs.shows(expected, output)
        assert not missing, f"{command}\nshould show {missing!r}, and said:\n{output}{done.stderr}"
    assert done.returncode == 0, done.stderr


def test_the_readmes_example_in_python_completes(tmp_path: Path, short_tmp: Path) -> None:
    [block] = [b for b in docs.blocks("python") if b.page == docs.ROOT / "README.md"]
    done = subprocess.run(
        [sys.executable, "-c", block.text],
        cwd=tmp_path,
        env=environment(short_tmp),
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr
    assert "\ncompleted " in done.stdout
    assert (tmp_path / "hello.txt").is_file()


def test_the_readmes_first_command_is_what_the_demo_runs() -> None:
    command = 'stockade run --rehearse hello --workspace ./demo --file-access workspace-write "Create hello.txt"'
    assert f"    {command}\n" in (docs.ROOT / "README.md").read_text()
    demo = (docs.ROOT / "dev").read_text()
    for part in command.split(" ")[1:7]:
        assert part in demo
