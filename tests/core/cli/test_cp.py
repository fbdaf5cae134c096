from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stockade.cli import cp
from stockade.errors import UsageError

Parse = Callable[..., argparse.Namespace]


@pytest.mark.parametrize(
    ("source", "target", "copy"),
    [
        ("k:src", "out", ("download", "src", "out", False)),
        ("k:/abs/src", "./a:b", ("download", "/abs/src", "./a:b", False)),
        ("k:", ".", ("download", ".", ".", False)),
        ("src", "k:", ("upload", "src", ".", False)),
        ("../a:b", "k:a:b", ("upload", "../a:b", "a:b", False)),
        ("/a:b", "k:x", ("upload", "/a:b", "x", False)),
    ],
)
def test_one_side_is_in_the_sandbox(
    kernel: Any, parse: Parse, source: str, target: str, copy: tuple[object, ...]
) -> None:
    assert cp.run(parse(cp, source, target), kernel.open) == 0
    assert kernel.copying.copies == [copy]
    assert kernel.asked["sandbox"] == "k"
    assert kernel.copying.closed
    assert kernel.closed


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["a", "b"], "one of the two"), (["k:a", "k:b"], "one of the two"), (["-", "-"], "one of the two"),
        ([":a", "b"], "names no sandbox"), (["./k:a", "b"], "one of the two"),
    ],
)  # fmt: skip
def test_what_names_no_sandbox_or_two_is_usage(kernel: Any, parse: Parse, argv: list[str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        cp.run(parse(cp, *argv), kernel.open)
    assert kernel.asked == {}


def test_its_options(kernel: Any, parse: Parse, tmp_path: Path) -> None:
    args = parse(
        cp, "--force", "--exclude", ".venv", "--exclude", "a/*",
        "--driver", "d", "--workspace", str(tmp_path), "--user", "u", "--ttl", "60", "k:a", "b"
    )  # fmt: skip
    cp.run(args, kernel.open)
    assert kernel.copying.copies == [("download", "a", "b", True, ".venv", "a/*")]
    assert kernel.asked == {"driver": "d", "sandbox": "k", "workspace": tmp_path, "user": "u", "ttl": 60}


def test_a_dash_is_standard_output(kernel: Any, parse: Parse, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    kernel.copying.content = [b"\xff\x1b", b"more"]
    assert cp.run(parse(cp, "k:a", "-"), kernel.open) == 0
    assert capfdbinary.readouterr() == (b"\xff\x1bmore", b"")


def test_a_dash_is_standard_input(kernel: Any, parse: Parse) -> None:
    saved, (read, write) = os.dup(0), os.pipe()
    os.dup2(read, 0)
    os.close(read)
    os.write(write, b"data\xff")
    os.close(write)
    try:
        assert cp.run(parse(cp, "-", "k:a"), kernel.open) == 0
    finally:
        os.dup2(saved, 0)
        os.close(saved)
    assert kernel.copying.copies == [("write", "a", b"data\xff", False)]


def test_a_time_limit_is_124(kernel: Any, parse: Parse, capfd: pytest.CaptureFixture[str]) -> None:
    async def for_ever() -> None:
        await asyncio.Event().wait()

    kernel.copying.acts = for_ever
    assert cp.run(parse(cp, "--timeout", "0.2", "k:a", "b"), kernel.open) == 124
    assert kernel.copying.closed
    assert "stopped after 0.2 s" in capfd.readouterr().err


def test_without_a_terminal_nothing_is_said(kernel: Any, parse: Parse, capfd: pytest.CaptureFixture[str]) -> None:
    cp.run(parse(cp, "k:a", "b"), kernel.open)
    assert capfd.readouterr() == ("", "")
