"""The process of Cursor's bridge: started, greeted, watched and ended as a group. Standard library only."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stockade.errors import EngineFailed
from stockade_cursor.command import Launch

READY = 30.0
"""Seconds for the bridge to say where it listens."""
READY_LINE = b"cursor-sdk-bridge ready "

_CHUNK = 64 * 1024
_MAX_LINE = 64 * 1024
_TAIL = 40


class _Protocol(asyncio.subprocess.SubprocessStreamProtocol):
    """Says when the launcher itself ended: ``Process.wait`` also waits for whoever else holds its pipes."""

    def __init__(self) -> None:
        super().__init__(limit=_CHUNK, loop=asyncio.get_running_loop())
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        self.exited.set()


class Bridge:
    """One bridge: a launcher and the program that it starts. Made by `start`; `close` may be called more than once."""

    def __init__(self, launch: Launch, transport: asyncio.SubprocessTransport, protocol: _Protocol) -> None:
        self.launch = launch
        self._process = asyncio.subprocess.Process(transport, protocol, asyncio.get_running_loop())
        self._transport = transport
        self._exited = protocol.exited
        self._stderr: deque[str] = deque(maxlen=_TAIL)
        self._greeting: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._pump = asyncio.create_task(self._drain())
        self._closing = False

    @classmethod
    async def start(cls, launch: Launch) -> Bridge:
        """Start the bridge as a session of its own. Raises `OSError`."""
        transport, protocol = await asyncio.get_running_loop().subprocess_exec(
            _Protocol,
            *launch.argv,
            cwd=launch.cwd,
            env=dict(launch.environment),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        return cls(launch, transport, protocol)

    @property
    def alive(self) -> bool:
        return self._process.returncode is None and not self._closing

    @property
    def exit_code(self) -> int | None:
        """The launcher's exit status, negative for a signal; None while it runs."""
        return self._process.returncode

    def stderr_tail(self) -> str:
        """The last lines of standard error, without the greeting."""
        return "\n".join(self._stderr)

    async def greeting(self) -> dict[str, Any]:
        """What the bridge says about where it listens. Raises `EngineFailed` when it does not, in `READY` seconds."""
        exited = asyncio.ensure_future(self._exited.wait())
        try:
            await asyncio.wait((self._greeting, exited), timeout=READY, return_when=asyncio.FIRST_COMPLETED)
        finally:
            exited.cancel()
        if not self._greeting.done() and self._process.returncode is not None:
            await asyncio.wait((self._pump,), timeout=1.0)
        if not self._greeting.done():
            what = "ended" if self._process.returncode is not None else f"was not ready within {READY:g} s"
            raise self.failed(f"Cursor's bridge {what}")
        try:
            greeting = json.loads(self._greeting.result())
        except ValueError as error:
            raise self.failed("Cursor's bridge greeted with what is no JSON") from error
        if not isinstance(greeting, dict):
            raise self.failed("Cursor's bridge greeted with what is no JSON object")
        return greeting

    def failed(self, what: str) -> EngineFailed:
        """The typed failure, with what the process said last."""
        if self.exit_code is not None:
            what += f" (exit status {self.exit_code})"
        tail = self.stderr_tail()
        return EngineFailed(what, hint=f"The last lines of its standard error:\n{tail}" if tail else "")

    async def settled(self) -> None:
        """Give a bridge whose connection broke a moment to end, so that its exit status and last words are known."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._exited.wait(), 0.5)
            await asyncio.wait((self._pump,), timeout=0.5)

    async def close(self, grace: float) -> None:
        """SIGTERM to the whole group, ``grace`` seconds for it to end, then SIGKILL.

        Its standard error ends with the last of them: the launcher is gone at once, the program behind it is not.
        """
        self._closing = True
        try:
            self._signal(signal.SIGTERM)
            await asyncio.wait((self._pump,), timeout=grace)
        finally:
            self._signal(signal.SIGKILL)
            self._pump.cancel()
            self._greeting.cancel()
        await self._exited.wait()
        self._transport.close()

    def kill(self) -> None:
        """SIGKILL to the group, at once. `close` still has to be called."""
        self._closing = True
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    async def _drain(self) -> None:
        """Always drained, so that a chatty bridge never blocks on it (F25)."""
        assert self._process.stderr is not None
        rest = b""
        while chunk := await self._process.stderr.read(_CHUNK):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._take(line)
            rest = rest[-_MAX_LINE:]
        self._take(rest)

    def _take(self, line: bytes) -> None:
        if line.startswith(READY_LINE) and not self._greeting.done():
            self._greeting.set_result(line.removeprefix(READY_LINE))
        elif line.strip():
            self._stderr.append(line.decode(errors="replace")[:2000])


def forget_token(greeting: Mapping[str, Any]) -> None:
    """Delete the file with the bridge's bearer token once it is read: its folder is the bridge's own, in TMPDIR."""
    if isinstance(name := greeting.get("authTokenFile"), str):
        with contextlib.suppress(OSError):
            Path(name).unlink()
            Path(name).parent.rmdir()
