"""Flags, descriptors and directories: what happens before the program serves."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stockade.inside.options import BadOptions, parse
from stockade.wire.channels import StreamChannel
from tests.core.inside.client import Client, until
from tests.core.inside.conftest import command, environ

BASE = ["--id", "x", "--state-dir", "/s"]


def test_flags_may_be_written_both_ways() -> None:
    options = parse([*BASE, "--fd=3", "--tier", "2", "--deadline=12.5", "--preload", "a:B"])
    assert (options.fd, options.tier, options.deadline, options.preload) == (3, 2, 12.5, "a:B")
    assert options.workspace == Path("/s/workspace")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (BASE, "exactly one of"),
        ([*BASE, "--stdio", "--fd", "3"], "exactly one of"),
        ([*BASE, "--fd", "three"], "not a number"),
        ([*BASE, "--fd"], "needs a value"),
        ([*BASE, "--stdio", "--colour"], "--colour"),
        (["--stdio", "--state-dir", "/s"], "--id is needed"),
        (["--stdio", "--id", "x"], "--state-dir is needed"),
        ([*BASE, "--stdio", "--tier", "7"], "--tier"),
        ([*BASE, "--stdio", "--lease", "0"], "--lease"),
    ],
)
def test_wrong_flags_are_named(argv: list[str], message: str) -> None:
    with pytest.raises(BadOptions, match=message):
        parse(argv)


class Program:
    """An inside program that listens on a socket."""

    def __init__(self, base: Path) -> None:
        self.state, self.workspace, self.socket = base / "state", base / "w", base / "run" / "s"
        self.state.mkdir()
        self.workspace.mkdir()
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *flags: str, lease: float = 30) -> subprocess.Popen[bytes]:
        self.process = subprocess.Popen(
            command(self.state, self.workspace, lease, *(flags or ("--socket", str(self.socket)))),
            env=environ(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        return self.process


async def connected(program: Program) -> socket.socket:
    """A connection to the program, once it listens."""
    connection = socket.socket(socket.AF_UNIX)

    def listens() -> bool:
        with contextlib.suppress(ConnectionRefusedError, FileNotFoundError):
            connection.connect(str(program.socket))
            return True
        return False

    await until(listens, "the program listens")
    return connection


@pytest.fixture
def program(short_tmp: Path) -> Iterator[Program]:
    program = Program(short_tmp)
    yield program
    if program.process is not None:
        program.process.kill()
        program.process.communicate()


@pytest.mark.requirement("L19", "L83")
@pytest.mark.parametrize("stale", [True, False])
async def test_a_socket_is_private_and_a_stale_one_is_replaced(program: Program, stale: bool) -> None:
    if stale:
        program.socket.parent.mkdir(mode=0o777)
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(program.socket))
    program.start()
    connection = await connected(program)
    assert stat.S_IMODE(program.socket.parent.stat().st_mode) == 0o700
    client = Client(await StreamChannel.from_socket(connection), "test")
    assert (await client.start()).epoch == "test"
    assert await client.text("echo", "hello") == "hello\n"
    assert not program.socket.exists(), "nobody else connects"
    await client.mux.aclose()


@pytest.mark.requirement("L16")
@pytest.mark.parametrize("in_the_way", ["a live socket", "a file", "a long path"])
async def test_a_socket_that_cannot_be_bound_is_a_failed_start(program: Program, in_the_way: str) -> None:
    program.socket.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as live:
        if in_the_way == "a live socket":
            live.bind(str(program.socket))
            live.listen()
        elif in_the_way == "a file":
            program.socket.write_text("mine")
        else:
            program.socket = program.socket.parent / ("x" * 120)
        process = program.start()
        _, errors = await asyncio.to_thread(process.communicate)
    assert process.returncode == 3
    assert b"cannot start" in errors
    assert b"Traceback" not in errors
    if in_the_way == "a file":
        assert program.socket.read_text() == "mine"


@pytest.mark.requirement("L16", "L17")
async def test_a_kernel_that_never_connects_is_a_failed_start(program: Program) -> None:
    process = program.start(lease=0.2)
    _, errors = await asyncio.to_thread(process.communicate)
    assert process.returncode == 3
    assert b"no kernel connected" in errors
    assert not program.socket.exists()


@pytest.mark.requirement("L77")
async def test_frames_over_stdio_are_not_disturbed_by_prints(program: Program) -> None:
    process = program.start("--stdio")
    assert process.stdin is not None
    assert process.stdout is not None
    channel = await StreamChannel.from_pipes(os.dup(process.stdout.fileno()), os.dup(process.stdin.fileno()))
    process.stdin.close()
    process.stdout.close()
    process.stdin = process.stdout = None
    client = Client(channel, "test")
    await client.start()
    text, ended = await client.turn({"print": "stray"})
    assert (text["text"], ended["kind"]) == ("''", "ended")
    assert await client.text("sh", "-c", "ls -l /proc/self/fd | grep -c socket; true") == "0\n"
    await client.mux.aclose()
    assert process.stderr is not None
    errors = await asyncio.to_thread(process.stderr.read)
    assert errors.count(b"stray") == 3


@pytest.mark.requirement("L77")
async def test_no_child_inherits_the_channel(program: Program) -> None:
    process = program.start()
    connection = await connected(program)
    client = Client(await StreamChannel.from_socket(connection), "test")
    await client.start()
    links = await client.text("sh", "-c", "readlink /proc/self/fd/*; true")
    assert "socket:" not in links
    await client.mux.aclose()
    assert await asyncio.to_thread(process.wait, 10)


@pytest.mark.requirement("L24", "L17")
async def test_a_workspace_that_is_not_there_is_a_failed_start(program: Program) -> None:
    program.workspace.rmdir()
    process = program.start("--stdio")
    _, errors = await asyncio.to_thread(process.communicate)
    assert process.returncode == 3
    assert str(program.workspace).encode() in errors
    assert not program.workspace.exists()


def test_usage_errors_exit_2_and_help_exits_0() -> None:
    run = [sys.executable, "-m", "stockade.inside"]
    wrong = subprocess.run([*run, "--nonsense"], capture_output=True, text=True)
    assert wrong.returncode == 2
    assert "unknown argument --nonsense" in wrong.stderr
    helped = subprocess.run([*run, "--help"], capture_output=True, text=True)
    assert helped.returncode == 0
    assert "--state-dir" in helped.stdout


@pytest.mark.requirement("F11", "L84")
async def test_waiting_for_a_kernel_ends_on_sigterm(program: Program) -> None:
    process = program.start()
    await until(program.socket.exists, "it listens")
    process.terminate()
    assert await asyncio.to_thread(process.wait, 10) == 128 + 15
    assert not program.socket.exists()


async def test_without_a_named_workspace_the_state_dir_has_one(program: Program) -> None:
    program.workspace = program.state / "workspace"
    process = program.start()
    client = Client(await StreamChannel.from_socket(await connected(program)), "test")
    await client.start()
    assert (await client.text("pwd")).strip() == str(program.workspace)
    await client.mux.aclose()
    assert await asyncio.to_thread(process.wait, 10)
