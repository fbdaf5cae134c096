"""The installed command line in processes of its own, against a state root of its own."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import pytest

STOCKADE = [sys.executable, "-m", "stockade"]
FOREIGN = ("ANTHROPIC_", "OPENAI_", "CODEX_", "CURSOR_", "CLAUDE", "STOCKADE_", "AWS_", "GOOGLE_")
LIMIT = 50.0
"""Seconds that one command line may take on a busy machine."""


def wait_for(condition: Callable[[], Any], seconds: float = 30.0) -> Any:
    """The first true value of ``condition``; fails after ``seconds``."""
    pause, end = threading.Event(), time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > end:
            pytest.fail(f"waited {seconds:g} s for {condition}")
        pause.wait(0.02)
    return value


class CommandLine:
    """Runs ``stockade`` with a clean environment. Whatever is left at the end of the test is killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        (folder / "user").mkdir()
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        self.env |= {"STOCKADE_HOME": str(self.home), "HOME": str(folder / "user")}
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, *argv: str, env: Mapping[str, str] | None = None, **options: Any) -> subprocess.Popen[bytes]:
        """Start it; all three streams are pipes unless ``options`` say otherwise."""
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        process = subprocess.Popen(
            [*STOCKADE, *argv], cwd=self.folder, env={**self.env, **(env or {})}, **{**streams, **options}
        )
        self._started.append(process)
        return process

    def __call__(
        self, *argv: str, input: bytes = b"", env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """Run it to its end."""
        process = self.start(*argv, env=env)
        out, err = process.communicate(input, timeout=LIMIT)
        return subprocess.CompletedProcess(argv, process.returncode, out, err)

    def script(self, text: str) -> str:
        """A rehearsal script of the test's own; its path."""
        path = self.folder / "script.yaml"
        path.write_text(textwrap.dedent(text))
        return str(path)

    def processes(self) -> list[str]:
        """Command lines of all processes that carry this state root in their environment."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and str(self.home).encode() in (entry / "environ").read_bytes():
                    found.append(f"{entry.name}: {(entry / 'cmdline').read_bytes()!r}")
            except OSError:
                continue  # it ended, or is another user's
        return found

    def registered(self) -> list[dict[str, Any]]:
        """What ``sandboxes list`` says, from another process."""
        done = self("sandboxes", "list", "--json")
        assert done.returncode == 0, done.stderr
        rows: list[dict[str, Any]] = json.loads(done.stdout)
        return rows

    def assert_nothing_left(self) -> None:
        """No process and no row, at the latest after 5 s."""
        wait_for(lambda: not self.processes(), 5.0)
        assert self.registered() == []

    def kill(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.communicate()
        for line in self.processes():
            os.kill(int(line.partition(":")[0]), signal.SIGKILL)


@pytest.fixture
def stockade(tmp_path: Path) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path)
    yield line
    line.kill()


def events(out: bytes) -> list[dict[str, Any]]:
    """The lines of ``--json``."""
    return [json.loads(line) for line in out.splitlines()]


def read_until(stream: IO[bytes], part: bytes) -> bytes:
    """Lines of a pipe up to the first that contains ``part``."""
    seen = b""
    for line in stream:
        seen += line
        if part in line:
            return seen
    pytest.fail(f"the output ended without {part!r}: {seen!r}")


class Terminal:
    """A command line on a pseudo-terminal, as the leader of its foreground."""

    def __init__(self, line: CommandLine, *argv: str) -> None:
        self.shown = b""
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.chdir(line.folder)
            os.execve(STOCKADE[0], [*STOCKADE, *argv], {**line.env, "TERM": "xterm"})

    def until(self, part: bytes) -> None:
        """Read until ``part`` was shown."""
        end = time.monotonic() + LIMIT
        while part not in self.shown:
            assert time.monotonic() < end, self.shown
            assert self._read(1.0), f"ended without {part!r}: {self.shown!r}"

    def type(self, keys: bytes) -> None:
        """Press keys; the terminal turns ^C into SIGINT for the whole foreground."""
        os.write(self._fd, keys)

    def end(self) -> int:
        """Read to the end; the exit status."""
        end = time.monotonic() + LIMIT
        while self._read(1.0):
            assert time.monotonic() < end, self.shown
        _, status = os.waitpid(self.pid, 0)
        os.close(self._fd)
        return os.waitstatus_to_exitcode(status)

    def _read(self, seconds: float) -> bool:
        if not select.select([self._fd], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self._fd, 65536)
        except OSError:  # EIO: the other side is closed
            return False
        self.shown += data
        return bool(data)


@pytest.fixture
def terminal(stockade: CommandLine) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def open_terminal(*argv: str) -> Terminal:
        opened.append(Terminal(stockade, *argv))
        return opened[-1]

    yield open_terminal
    for one in opened:
        try:
            os.kill(one.pid, signal.SIGKILL)
            os.waitpid(one.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            continue
