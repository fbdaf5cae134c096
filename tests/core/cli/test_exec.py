from __future__ import annotations

import argparse
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stockade.cli import exec_
from stockade.errors import UsageError
from stockade.runtime.execs import ExecResult

Parse = Callable[..., argparse.Namespace]


def test_both_streams_and_the_exit_status_are_passed_on(
    kernel: Any, parse: Parse, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    kernel.proc.output = [(1, b"out\xff\x1b[m"), (2, b"err"), (1, b"more")]
    kernel.proc.ending = ExecResult(7)
    assert exec_.run(parse(exec_, "--", "cmd"), kernel.open) == 7
    captured = capfdbinary.readouterr()
    assert captured.out == b"out\xff\x1b[mmore"
    assert captured.err == b"err"
    assert kernel.proc.closed
    assert kernel.closed


@pytest.mark.parametrize(
    ("ending", "status"),
    [(ExecResult(0), 0), (ExecResult(None, signal=9), 137), (ExecResult(None, signal=15, timed_out=True), 124)],
)
def test_a_signal_is_128_more_and_a_time_limit_is_124(
    kernel: Any, parse: Parse, ending: ExecResult, status: int
) -> None:
    kernel.proc.ending = ending
    assert exec_.run(parse(exec_, "--timeout", "1", "--", "cmd"), kernel.open) == status


def test_cut_output_is_told(kernel: Any, parse: Parse, capfd: pytest.CaptureFixture[str]) -> None:
    kernel.proc.ending = ExecResult(0, truncated=True)
    assert exec_.run(parse(exec_, "cmd"), kernel.open) == 0
    assert "cut" in capfd.readouterr().err


def test_options_of_the_command_are_its_own(kernel: Any, parse: Parse, tmp_path: Path) -> None:
    args = parse(
        exec_, "--driver", "d", "--workspace", str(tmp_path), "--user", "u", "--ttl", "60", "--",
        "ls", "--driver", "x", "--", "-l",
    )  # fmt: skip
    exec_.run(args, kernel.open)
    assert kernel.asked["argv"] == ["ls", "--driver", "x", "--", "-l"]
    assert kernel.asked["driver"] == "d"
    assert kernel.asked["workspace"] == tmp_path
    assert kernel.asked["user"] == "u"
    assert kernel.asked["ttl"] == 60


def test_the_two_dashes_may_be_left_out(kernel: Any, parse: Parse) -> None:
    exec_.run(parse(exec_, "--driver", "d", "ls", "-la"), kernel.open)
    assert kernel.asked["argv"] == ["ls", "-la"]


@pytest.mark.parametrize("argv", [[], ["--"], ["--driver", "d", "--"]])
def test_without_a_command_it_is_usage(kernel: Any, parse: Parse, argv: list[str]) -> None:
    with pytest.raises(UsageError, match="no command"):
        exec_.run(parse(exec_, *argv), kernel.open)
    assert kernel.asked == {}


def test_standard_input_is_passed_on_to_its_end(kernel: Any, parse: Parse) -> None:
    data = os.urandom(500_000)
    saved, (read, write) = os.dup(0), os.pipe()
    os.dup2(read, 0)
    os.close(read)

    def give() -> None:
        os.write(write, data)  # blocks until it is read
        os.close(write)

    writer = threading.Thread(target=give)
    writer.start()
    try:
        kernel.proc.waits_for_stdin = True
        assert exec_.run(parse(exec_, "cat"), kernel.open) == 0
    finally:
        os.dup2(saved, 0)
        os.close(saved)
        writer.join()
    assert kernel.proc.stdin == data
