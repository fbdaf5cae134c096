"""Codex's app-server, as a client of the SDK with a transport of its own. Importing this module imports the SDK.

The SDK has no interface for a transport: it is the methods `start`, `close`, ``_read_message`` and
``_write_message`` of its client, which are replaced here. Unlike the SDK's it starts the process in its own group with
exactly the environment that it is given, passes noise on standard output on instead of ending the session (F22), reads
over a line that is too long (F18), and says no to every question, where the SDK says yes.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from openai_codex.client import CodexClient, CodexConfig
from openai_codex.errors import TransportClosedError
from openai_codex.generated.v2_all import CommandExecResponse, TurnStartResponse
from openai_codex.models import JsonObject, JsonValue
from pydantic import BaseModel

from stockade_codex.command import Launch
from stockade_codex.inbox import Inbox, Noise, Overlong, Refused

MAX_LINE = 64 * 1024 * 1024
"""Bytes of one line of standard output that are kept."""

_TAIL = 40
_LINGER = 1.0
"""Seconds for the rest of the output after the process ended: a child of it may hold the pipes open for ever."""

_NO: dict[str, JsonObject] = {
    "item/commandExecution/requestApproval": {"decision": "decline"},
    "item/fileChange/requestApproval": {"decision": "decline"},
    "item/permissions/requestApproval": {"permissions": {}},
    "item/tool/requestUserInput": {"answers": {}},
    "mcpServer/elicitation/request": {"action": "decline"},
}


class _Empty(BaseModel):
    """A response that says nothing."""


class AppServer(CodexClient):
    """One process. `start` begins it; `close` ends it and may be called at any time, more than once.

    Requests are the SDK's own methods: they block, so call them in a thread; the end of the process ends them all
    with ``TransportClosedError``. Notifications come through ``inbox``, in order, with what is no message.
    """

    def __init__(self, launch: Launch) -> None:
        config = CodexConfig(client_name="stockade", client_title="Stockade", client_version="0.1.0")
        super().__init__(config, self._refuse)
        self.launch = launch
        self.inbox = Inbox()
        self._process: subprocess.Popen[bytes] | None = None
        self._tail: deque[str] = deque(maxlen=_TAIL)
        self._reader = threading.Thread(target=self._read_all, name="codex-reader", daemon=True)
        self._drain = threading.Thread(target=self._drain_stderr, name="codex-stderr", daemon=True)
        self._exited = threading.Event()
        self._ended = threading.Event()
        self._writing = threading.Lock()

    @property
    def alive(self) -> bool:
        """Whether it can be asked something."""
        return self._process is not None and not self._exited.is_set() and not self._ended.is_set()

    def start(self) -> None:
        """Start Codex in its own process group. Raises ``OSError``."""
        self._process = subprocess.Popen(
            self.launch.argv,
            cwd=self.launch.cwd,
            env=dict(self.launch.environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        threading.Thread(target=self._watch, name="codex-watch", daemon=True).start()
        self._reader.start()
        self._drain.start()

    def exit_code(self) -> int | None:
        """The exit status, negative for a signal; None while it runs. Waits a moment for one that is ending."""
        if self._process is None:
            return None
        self._exited.wait(_LINGER)
        self._drain.join(_LINGER)
        return self._process.returncode

    def stderr_tail(self) -> str:
        """The last lines of standard error: the only place for the reason of a failed start."""
        return "\n".join(self._tail)

    def kill(self) -> None:
        """SIGKILL to the process group, at once. `close` still has to be called."""
        self._signal(signal.SIGKILL)

    def close(self, grace: float = 2.0) -> None:
        """End the process group: end of input, SIGTERM and SIGKILL, each ``grace`` seconds after the last.

        The first step lets Codex finish its rollout and end its commands.
        """
        if self._process is None:
            return
        assert self._process.stdin is not None
        if self._writing.acquire(timeout=grace):  # else a write waits for a process that does not read
            try:
                self._process.stdin.close()
            finally:
                self._writing.release()
        if not self._exited.wait(grace):
            self._signal(signal.SIGTERM)
            if not self._exited.wait(grace):
                self._signal(signal.SIGKILL)
                self._exited.wait()
        self._process.stdin.close()
        self._end()
        self._reader.join(_LINGER)
        self._drain.join(_LINGER)

    # -- requests for which the SDK has no method --------------------------------------------------

    def try_command(self, argv: Sequence[str], cwd: Path, policy: JsonObject) -> tuple[int, str]:
        """Run a command in Codex's sandbox, as the agent's commands will run; its exit status and standard error."""
        params: JsonObject = {"command": list(argv), "cwd": str(cwd), "sandboxPolicy": policy}
        done = self.request("command/exec", params, response_model=CommandExecResponse)
        return done.exit_code, done.stderr

    def begin(self, thread: str, message: str, policy: JsonObject) -> None:
        """Start a turn with only its message (L66). What it says comes through ``inbox``."""
        content: JsonObject = {"type": "text", "text": message}
        params: JsonObject = {"threadId": thread, "input": [content], "sandboxPolicy": policy}
        self.request("turn/start", params, response_model=TurnStartResponse)

    def end_commands(self, thread: str) -> None:
        """End the commands that still run."""
        self.request("thread/backgroundTerminals/clean", {"threadId": thread}, response_model=_Empty)

    # -- the transport ---------------------------------------------------------------------------

    def _write_message(self, payload: JsonObject) -> None:
        if not self.alive or self._process is None or self._process.stdin is None:
            raise TransportClosedError("Codex is not running")
        data = memoryview(json.dumps(payload).encode() + b"\n")
        with self._writing:
            try:
                while data:
                    data = data[os.write(self._process.stdin.fileno(), data) :]
            except (OSError, ValueError) as error:
                raise TransportClosedError(f"Codex does not take its input: {error}") from error

    def _read_message(self) -> dict[str, JsonValue]:
        """The next response or question; all else goes to ``inbox``."""
        while line := self._line():
            message = _parse(line)
            if message is None:
                if line.strip():
                    self.inbox.put(Noise(line.decode(errors="replace").rstrip("\r\n")))
            elif "id" in message:
                return message
            else:
                self.inbox.put(self._coerce_notification(str(message["method"]), message.get("params")))
        raise TransportClosedError("Codex closed its output")

    def _line(self) -> bytes:
        """A line; empty at the end. One over `MAX_LINE` is reported, and read over."""
        assert self._process is not None
        assert self._process.stdout is not None
        while len(line := self._process.stdout.readline(MAX_LINE)) == MAX_LINE and not line.endswith(b"\n"):
            head, size = line[:1024].decode(errors="replace"), len(line)
            while rest := self._process.stdout.readline(MAX_LINE):
                size += len(rest)
                if rest.endswith(b"\n"):
                    break
            self.inbox.put(Overlong(size, head))
        return line

    def _refuse(self, method: str, _: JsonObject | None) -> JsonObject:
        """Answers in a person's place (L65)."""
        self.inbox.put(Refused(method))
        return _NO.get(method, {})

    # -- threads ---------------------------------------------------------------------------------

    def _read_all(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        with self._process.stdout:
            self._reader_loop()
        self._end()

    def _drain_stderr(self) -> None:
        """Always drained, so that a chatty process never blocks on it (F25)."""
        assert self._process is not None
        assert self._process.stderr is not None
        with self._process.stderr as stderr:
            while line := stderr.readline(2000):
                if line.strip():
                    self._tail.append(line.decode(errors="replace").rstrip())

    def _watch(self) -> None:
        assert self._process is not None
        self._process.wait()
        self._exited.set()
        self._reader.join(_LINGER)
        self._end()

    def _end(self) -> None:
        """Nothing more will be said: release whoever waits for it. Idempotent."""
        self._ended.set()
        self.inbox.close()
        # Again after `_ended`: a request that came between the SDK's own call and this one would wait for ever.
        self._router.fail_all(TransportClosedError("Codex closed its output"))

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and not self._exited.is_set():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)


def _parse(line: bytes) -> dict[str, Any] | None:
    """The JSON-RPC message on a line, or None."""
    try:
        message = json.loads(line)
    except ValueError:
        return None
    if isinstance(message, dict) and ("id" in message or isinstance(message.get("method"), str)):
        return message
    return None
