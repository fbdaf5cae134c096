from __future__ import annotations

import argparse
import io
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stockade.cli import run
from stockade.errors import NotConfigured, UsageError
from stockade.model.events import Started, Text, ToolStart
from stockade.model.turn import Outcome
from stockade.runtime.turns import TurnHandle

Parse = Callable[..., argparse.Namespace]


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    def give(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    return give


def test_the_answer_goes_to_stdout_and_success_is_0(
    kernel: Any, parse: Parse, capfd: pytest.CaptureFixture[str]
) -> None:
    kernel.events = (Started("claude"), Text("Hello."))
    assert run.run(parse(run, "Say hello"), kernel.open) == 0
    captured = capfd.readouterr()
    assert captured.out == "Hello.\n"
    assert captured.err.endswith("✓ completed in 0.0 s, 0 tokens in, 0 out\n")
    assert kernel.closed


def test_a_failed_turn_is_1_with_code_and_hint_on_stderr(
    kernel: Any, parse: Parse, capfd: pytest.CaptureFixture[str]
) -> None:
    kernel.outcome = Outcome("failed", code="oom", message="too little memory", hint="Give it more.")
    assert run.run(parse(run, "x"), kernel.open) == 1
    captured = capfd.readouterr()
    assert "stockade: oom: too little memory\n  Give it more.\n" in captured.err
    assert captured.out == ""


def test_json_ends_with_the_outcome(kernel: Any, parse: Parse, capfd: pytest.CaptureFixture[str]) -> None:
    kernel.events = (Text("Hello."), ToolStart("1", "Bash", {"command": "ls"}))
    assert run.run(parse(run, "--json", "x"), kernel.open) == 0
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [line["kind"] for line in lines] == ["text", "tool_start", "ended"]
    assert lines[-1]["outcome"]["status"] == "completed"


@pytest.mark.requirement("L88")
def test_the_default_file_access_is_read_only(kernel: Any, parse: Parse) -> None:
    run.run(parse(run, "x"), kernel.open)
    assert kernel.asked["file_access"] == "read-only"


def test_every_option_reaches_the_kernel(kernel: Any, parse: Parse, tmp_path: Path) -> None:
    args = parse(
        run, "--engine", "e", "--driver", "d", "--model", "m", "--workspace", str(tmp_path), "--file-access", "full",
        "--session", "s", "--sandbox", "k", "--user", "u", "--ttl", "5m", "--timeout", "9", "--rehearse", "hello",
        "--add-dir", "/", "--add-dir", str(tmp_path), "--env-pass", "A", "--env-pass", "B", "do it",
    )  # fmt: skip
    run.run(args, kernel.open)
    assert kernel.overrides == {"rehearse": "hello"}
    assert kernel.asked == {
        "message": "do it",
        "engine": "e",
        "driver": "d",
        "model": "m",
        "workspace": tmp_path,
        "file_access": "full",
        "session": "s",
        "sandbox": "k",
        "user": "u",
        "ttl": 300.0,
        "timeout": 9.0,
        "add_dirs": (Path("/"), tmp_path),
        "env_pass": ("A", "B"),
    }


def test_without_a_message_nothing_starts(kernel: Any, parse: Parse) -> None:
    with pytest.raises(UsageError, match="no message") as error:
        run.run(parse(run), kernel.open)
    assert "standard input" in error.value.hint
    assert kernel.asked == {}


def test_a_dash_reads_2_mib_byte_for_byte(kernel: Any, parse: Parse, stdin: Callable[[bytes], None]) -> None:
    text = ("ä\r\n\x00 \t" * (run.MAX_MESSAGE // 7))[: run.MAX_MESSAGE // 2] + "\n\n"
    data = text.encode().ljust(run.MAX_MESSAGE, b"x")
    assert len(data) == run.MAX_MESSAGE
    stdin(data)
    run.run(parse(run, "-"), kernel.open)
    assert kernel.asked["message"].encode() == data


def test_one_byte_more_is_refused(kernel: Any, parse: Parse, stdin: Callable[[bytes], None]) -> None:
    stdin(b"x" * (run.MAX_MESSAGE + 1))
    with pytest.raises(UsageError, match="longer than 2097152 bytes"):
        run.run(parse(run, "-"), kernel.open)
    assert kernel.asked == {}


def test_what_is_not_utf_8_is_refused_with_its_place(stdin: Callable[[bytes], None]) -> None:
    stdin(b"caf\xc3")
    with pytest.raises(UsageError, match=r"not UTF-8 \(byte 3\)"):
        run.read_message("-")
    with pytest.raises(UsageError, match="not UTF-8"):
        run.read_message(os.fsdecode(b"caf\xff"))


@pytest.mark.parametrize("message", ["", " \n"])
def test_an_empty_message_is_refused(message: str) -> None:
    with pytest.raises(UsageError, match="empty"):
        run.read_message(message)


def test_a_missing_workspace_is_created_and_told(
    kernel: Any, parse: Parse, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run.run(parse(run, "--workspace", str(tmp_path / "demo"), "x"), kernel.open)
    assert (tmp_path / "demo").is_dir()
    assert f"created the workspace {tmp_path / 'demo'}" in capfd.readouterr().err


def test_a_created_workspace_goes_when_nothing_was_started(kernel: Any, parse: Parse, tmp_path: Path) -> None:
    kernel.failure = NotConfigured("no key", hint="Set one, or rehearse.")
    with pytest.raises(NotConfigured):
        run.run(parse(run, "--workspace", str(tmp_path / "demo"), "x"), kernel.open)
    assert not (tmp_path / "demo").exists()
    assert kernel.closed


def test_a_workspace_whose_parent_is_missing_is_a_typo(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be created"):
        run.open_workspace(str(tmp_path / "no" / "demo"))
    assert list(tmp_path.iterdir()) == []


def test_a_workspace_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    with pytest.raises(UsageError, match="not a directory"):
        run.open_workspace(str(tmp_path / "f"))


@pytest.mark.parametrize("access", ["workspace-write", "full"])
def test_files_that_nobody_would_find_are_not_written(kernel: Any, parse: Parse, access: str) -> None:
    with pytest.raises(UsageError, match="would be lost") as error:
        run.run(parse(run, "--file-access", access, "x"), kernel.open)
    assert "--workspace DIR" in error.value.hint
    assert kernel.asked == {}


@pytest.mark.parametrize("kept", [["--session", "s"], ["--sandbox", "k"]])
def test_a_session_or_a_sandbox_keeps_the_files(kernel: Any, parse: Parse, kept: list[str]) -> None:
    assert run.run(parse(run, "--file-access", "full", *kept, "x"), kernel.open) == 0


@pytest.mark.parametrize(("signum", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_cancels_the_turn_and_closes_the_kernel(
    kernel: Any, parse: Parse, capfd: pytest.CaptureFixture[str], signum: signal.Signals, status: int
) -> None:
    def interrupt(handle: TurnHandle) -> None:
        import asyncio

        async def cancelled() -> None:
            await handle.cancelling.wait()
            handle.finish(Outcome("cancelled", code="cancelled"))

        handle.task = asyncio.ensure_future(cancelled())
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signum)

    kernel.on_turn = interrupt
    before = signal.signal(signum, signal.SIG_DFL)  # under nohup, SIGHUP is ignored
    try:
        assert run.run(parse(run, "--json", "x"), kernel.open) == status
    finally:
        signal.signal(signum, before)
    assert kernel.closed
    last = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert (last["kind"], last["outcome"]["status"]) == ("ended", "cancelled")


def test_a_reader_that_went_away_closes_the_kernel(
    kernel: Any, parse: Parse, capfd: pytest.CaptureFixture[str]
) -> None:
    kernel.events = (Text("Hello."),)
    saved, (read, write) = os.dup(1), os.pipe()
    os.close(read)
    os.dup2(write, 1)
    try:
        with pytest.raises(BrokenPipeError):
            run.run(parse(run, "x"), kernel.open)
    finally:
        os.dup2(saved, 1)
        os.close(saved)
        os.close(write)
    assert kernel.closed
