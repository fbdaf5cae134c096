"""``stockade exec`` in a real sandbox."""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Callable

import pytest

from .conftest import LIMIT, CommandLine, Terminal, read_until, wait_for

pytestmark = [pytest.mark.needs("namespaces")]


@pytest.mark.parametrize(
    ("command", "status"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143)]
)
@pytest.mark.requirement("F16")
def test_the_exit_status_is_passed_through(stockade: CommandLine, command: str, status: int) -> None:
    assert stockade("exec", "--", "sh", "-c", command).returncode == status


def test_both_streams_are_passed_through_as_they_are(stockade: CommandLine) -> None:
    done = stockade("exec", "--", "sh", "-c", r"printf 'out\377\033[m'; printf 'err' >&2")
    assert done.returncode == 0
    assert done.stdout == b"out\xff\x1b[m"
    assert done.stderr == b"err"


def test_standard_input_is_passed_through_to_its_end(stockade: CommandLine) -> None:
    data = os.urandom(3 * 1024 * 1024)
    done = stockade("exec", "--", "sha256sum", input=data)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0].decode() == hashlib.sha256(data).hexdigest()


def test_large_output_arrives_whole(stockade: CommandLine) -> None:
    done = stockade("exec", "--", "sh", "-c", "seq 1 200000")
    assert done.stdout == b"".join(b"%d\n" % n for n in range(1, 200001))


def test_output_is_live(stockade: CommandLine) -> None:
    process = stockade.start("exec", "--", "sh", "-c", "echo ready; read line; echo got $line")
    assert process.stdout is not None
    read_until(process.stdout, b"ready")
    out, _ = process.communicate(b"word\n", timeout=LIMIT)
    assert out == b"got word\n"


def test_input_that_nobody_reads_does_not_hang(stockade: CommandLine) -> None:
    assert stockade("exec", "--", "true", input=b"x" * 1_000_000).returncode == 0


@pytest.mark.requirement("F1", "F5", "L74")
def test_a_time_limit_is_124_and_the_whole_tree_is_gone(stockade: CommandLine) -> None:
    tree = "trap '' TERM; setsid sleep 600 & (sleep 601 &) ; echo begun; sleep 602"
    done = stockade("exec", "--timeout", "2", "--", "sh", "-c", tree)
    assert done.returncode == 124
    assert done.stdout == b"begun\n"
    stockade.assert_nothing_left()


@pytest.mark.requirement("F6")
def test_a_child_that_holds_the_output_does_not_hold_the_command(stockade: CommandLine) -> None:
    done = stockade("exec", "--", "sh", "-c", "sleep 600 & echo done")
    assert (done.returncode, done.stdout) == (0, b"done\n")
    stockade.assert_nothing_left()


def test_ctrl_c_is_130_and_nothing_is_left(stockade: CommandLine, terminal: Callable[..., Terminal]) -> None:
    screen = terminal("exec", "--", "sh", "-c", "trap '' INT TERM; echo begun; sleep 600")
    screen.until(b"begun")
    screen.type(b"\x03")
    assert screen.end() == 130
    assert b"Traceback" not in screen.shown
    stockade.assert_nothing_left()


@pytest.mark.requirement("F17")
def test_sigkill_of_the_command_line_ends_the_command(stockade: CommandLine) -> None:
    process = stockade.start("exec", "--", "sh", "-c", "setsid sleep 600 & echo begun; sleep 601")
    assert process.stdout is not None
    read_until(process.stdout, b"begun")
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_for(lambda: not stockade.processes(), 5.0)


@pytest.mark.requirement("L20", "L23", "L38", "F33")
def test_the_environment_is_an_allowlist(stockade: CommandLine) -> None:
    env = {"MY_TOKEN": "canary", "PASSED": "on purpose", "STOCKADE_TIER": "2"}
    done = stockade("exec", "--env-pass", "PASSED", "--", "env", env=env)
    inside = dict(line.split("=", 1) for line in done.stdout.decode().splitlines())
    assert "MY_TOKEN" not in inside
    assert inside["PASSED"] == "on purpose"
    assert inside["STOCKADE_TIER"] == "0"
    assert inside["PATH"]
    assert inside["HOME"].startswith(str(stockade.home))


def test_it_works_in_the_workspace_that_was_given(stockade: CommandLine) -> None:
    done = stockade("exec", "--workspace", "demo", "--", "sh", "-c", "pwd; echo hi > made.txt")
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().strip() == str(stockade.folder / "demo")
    assert (stockade.folder / "demo/made.txt").read_text() == "hi\n"


def test_a_command_that_does_not_exist_says_so(stockade: CommandLine) -> None:
    done = stockade("exec", "--", "no-such-command")
    assert done.returncode == 127
    assert b"no-such-command" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("argv", [[], ["--"]])
def test_without_a_command_it_is_usage(stockade: CommandLine, argv: list[str]) -> None:
    done = stockade("exec", *argv)
    assert done.returncode == 2
    assert b"stockade exec -- " in done.stderr
