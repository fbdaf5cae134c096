"""``stockade cp`` with real sandboxes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.support import docs, trees
from tests.support.trees import snapshot

from .conftest import LIMIT, CommandLine, Terminal, read_until, wait_for

pytestmark = [pytest.mark.needs("namespaces"), pytest.mark.slow]


@pytest.fixture(autouse=True)
def driver(stockade: CommandLine) -> None:
    stockade.env["STOCKADE_DRIVER"] = "process"


@pytest.mark.requirement("F95", "S69")
def test_a_tree_goes_in_is_used_comes_out_and_goes_in_again(stockade: CommandLine) -> None:
    data = os.urandom(3_000_000)
    one, two = stockade.folder / "one", stockade.folder / "two"
    trees.make(one, {b"run": (0o755, b"#!/bin/sh\ncat big\n"), b"big": (0o640, data), b"e": (0o755, {}), b"l": b"big"})
    done = stockade("cp", "one", "k:")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert stockade("exec", "--sandbox", "k", "--", "sh", "-c", "cd one && ./run").stdout == data
    assert stockade("cp", "k:one", "two").returncode == 0
    assert snapshot(two) == snapshot(one)
    assert stockade("cp", "two/.", "k:again").returncode == 0
    assert stockade("exec", "--sandbox", "k", "--", "diff", "-r", "one", "again").returncode == 0
    stockade.assert_nothing_left()


def test_one_file_through_standard_input_and_output(stockade: CommandLine) -> None:
    data = os.urandom(1_000_000)
    assert stockade("cp", "-", "k:f", input=data).returncode == 0
    assert stockade("cp", "k:f", "-").stdout == data
    done = stockade("cp", "-", "k:f", input=b"other")
    assert done.returncode == 1
    assert done.stderr.startswith(b"stockade: file_exists: ")
    assert b"--force" in done.stderr
    assert stockade("cp", "--force", "-", "k:f", input=b"other").returncode == 0
    assert stockade("cp", "k:f", "-").stdout == b"other"


def test_the_example_of_the_page_works(stockade: CommandLine) -> None:
    [block] = [b for b in docs.blocks("python") if b.page.name == "copy-files.md"]
    trees.make(
        stockade.folder / "project", {b".venv": (0o755, {b"l": b"/usr"}), b"a.pyc": (0o644, b""), b"a": (0o644, b"")}
    )
    done = subprocess.run(
        [sys.executable, "-c", block.text], cwd=stockade.folder, env=stockade.env, capture_output=True, timeout=LIMIT
    )
    assert (done.returncode, done.stdout) == (0, b"b'{}'\n"), done.stderr
    assert sorted(os.listdir(stockade.folder / "fixed")) == ["a", "input.json"]


def test_the_workspace_that_was_given(stockade: CommandLine) -> None:
    (stockade.folder / "work").mkdir()
    (stockade.folder / "f").write_text("f")
    assert stockade("cp", "--workspace", "work", "f", "k:g").returncode == 0
    assert (stockade.folder / "work/g").read_text() == "f"


@pytest.mark.requirement("F96")
def test_a_link_that_an_agent_left_leads_no_copy_out(stockade: CommandLine) -> None:
    (stockade.folder / "secret").write_text("secret")
    (stockade.folder / "mine").mkdir()
    script = f"ln -s {stockade.folder} dir; mkdir sub; ln -s {stockade.folder}/secret sub/l"
    assert stockade("exec", "--sandbox", "k", "--", "sh", "-c", script).returncode == 0
    for argv in (["k:dir/secret", "-"], ["k:sub", "mine"], ["k:.", "mine/all"], ["secret", "k:dir/mine"]):
        done = stockade("cp", *argv)
        assert done.returncode == 1
        assert done.stderr.startswith(b"stockade: file_refused: ")
        assert b"secret" not in done.stdout
    assert os.listdir(stockade.folder / "mine") == []


def test_a_sandbox_of_another_process_is_refused_and_says_what_to_do(stockade: CommandLine) -> None:
    process = stockade.start("exec", "--sandbox", "k", "--", "sh", "-c", "echo begun; read line")
    assert process.stdout is not None
    read_until(process.stdout, b"begun")
    done = stockade("cp", "-", "k:f", input=b"x")
    assert done.returncode == 1
    assert done.stderr.startswith(b"stockade: in_use: ")
    assert str(process.pid).encode() in done.stderr
    assert b"stockade sandboxes destroy" in done.stderr
    process.communicate(b"\n")


def test_ctrl_c_in_the_middle_is_130_and_leaves_nothing(
    stockade: CommandLine, terminal: Callable[..., Terminal]
) -> None:
    with (stockade.folder / "big").open("wb") as file:
        file.truncate(9_000_000_000)  # holes, which are sent as zeros
    screen = terminal("cp", "big", "k:new")
    screen.until(b"copying, ")
    workspace = stockade.home / "state" / "k" / "workspace"
    wait_for(lambda: os.listdir(workspace))
    screen.type(b"\x03")
    assert screen.end() == 130
    assert b"Traceback" not in screen.shown
    assert os.listdir(workspace) == []
    stockade.assert_nothing_left()
