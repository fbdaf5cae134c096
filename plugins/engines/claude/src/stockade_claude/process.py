"""The Claude Code process, as the transport of a ``ClaudeSDKClient``. Standard library only.

It has the methods of ``claude_agent_sdk.Transport`` without importing it: Claude Code boots while the
SDK is imported. Unlike the SDK's own transport it starts the process with exactly the environment
that it is given, passes noise on standard output on instead of losing it or ending the session (F22),
and reads over a line that is too long (F18).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

from stockade_claude.command import Launch

MAX_LINE = 64 * 1024 * 1024
"""Bytes of one line of standard output that are kept."""

NOISE = "stockade_noise"
OVERLONG = "stockade_overlong"
"""Subtypes of the ``system`` messages by which this transport reports what is not a message."""

_CHUNK = 256 * 1024
_TAIL = 40
_HELD = 200
_GRACE = 5.0
_LINGER = 1.0
"""Seconds for the rest of the output after the process ended: a child of it may hold the pipes open for ever."""


class _Protocol(asyncio.subprocess.SubprocessStreamProtocol):
    """Says when the process itself ended: ``Process.wait`` also waits for whoever else holds its pipes."""

    def __init__(self) -> None:
        super().__init__(limit=_CHUNK, loop=asyncio.get_running_loop())
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        self.exited.set()


class ClaudeProcess:
    """One process. Made by `start`; `close` ends it and may be called at any time, more than once."""

    def __init__(self, launch: Launch, transport: asyncio.SubprocessTransport, protocol: _Protocol) -> None:
        self.launch = launch
        self._process = asyncio.subprocess.Process(transport, protocol, asyncio.get_running_loop())
        self._transport = transport
        self._exited = protocol.exited
        self._stderr: deque[str] = deque(maxlen=_TAIL)
        self._pump = asyncio.create_task(self._drain_stderr())
        self._gone = asyncio.create_task(self._watch())
        self._held: list[dict[str, Any]] = []
        self._answered = False
        self._closing = False
        self._writing = asyncio.Lock()

    @classmethod
    async def start(cls, launch: Launch, *, resume: str = "") -> ClaudeProcess:
        """Start Claude Code in its own process group. Raises ``OSError``."""
        argv = (*launch.argv, f"--resume={resume}") if resume else launch.argv
        transport, protocol = await asyncio.get_running_loop().subprocess_exec(
            _Protocol, *argv, cwd=launch.cwd, env=dict(launch.environment), start_new_session=True
        )
        return cls(launch, transport, protocol)

    @property
    def alive(self) -> bool:
        return self._process.returncode is None and not self._closing

    @property
    def exit_code(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""
        return self._process.returncode

    def stderr_tail(self) -> str:
        """The last lines of standard error: the only place for the reason of a failed start."""
        return "\n".join(self._stderr)

    def take_held(self) -> list[dict[str, Any]]:
        """Noise from before the first answer, which `read_messages` has not given yet."""
        held, self._held = self._held, []
        return held

    # -- the transport ---------------------------------------------------------------------------

    async def connect(self) -> None:
        """The process runs already."""

    def is_ready(self) -> bool:
        return self.alive

    async def write(self, data: str) -> None:
        """Write ``data``; waits while the process does not read.

        A process that is gone is not an error here: `read_messages` tells how it ended, to everybody
        who waits, also where nobody would look at an error of this method (L18, L82).
        """
        stdin = self._process.stdin
        async with self._writing:
            if stdin is not None and not stdin.is_closing():
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    stdin.write(data.encode())
                    await stdin.drain()

    async def end_input(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        """Messages until the process closes its output. Without `close` that is the SDK's ``ProcessError``.

        Also with exit status 0: as long as its input is open, Claude Code has no reason to end (F40).
        """
        async for line, size in self._lines():
            message = _parse(line, size)
            if message is None:
                continue
            if not self._answered and message.get("subtype") in (NOISE, OVERLONG):
                # The SDK's queue of messages has no reader yet: a full one would keep the first answer out.
                if len(self._held) < _HELD:
                    self._held.append(message)
                continue
            yield message
            if not self._answered and message["type"] == "control_response":
                self._answered = True
                for held in self.take_held():
                    yield held
        await self._exited.wait()
        await asyncio.wait((self._pump,), timeout=_LINGER)
        if not self._closing:
            from claude_agent_sdk import ProcessError

            raise ProcessError("Claude Code failed", exit_code=self._process.returncode, stderr=self.stderr_tail())

    async def close(self, grace: float = _GRACE) -> None:
        """End the process group: end of input, SIGTERM and SIGKILL, each ``grace`` seconds after the last.

        The first step lets Claude Code finish its transcript.
        """
        self._closing = True
        try:
            await self.end_input()
            if not await self._ended_within(grace):
                self._signal(signal.SIGTERM)
                if not await self._ended_within(grace):
                    self._signal(signal.SIGKILL)
                    await self._exited.wait()
        except BaseException:
            self._signal(signal.SIGKILL)
            raise
        finally:
            self._pump.cancel()
            self._gone.cancel()
            self._transport.close()

    def kill(self) -> None:
        """SIGKILL to the process group, at once. `close` still has to be called."""
        self._closing = True
        self._signal(signal.SIGKILL)

    # -- parts -----------------------------------------------------------------------------------

    async def _ended_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._exited.wait(), seconds)
        return self._process.returncode is not None

    def _signal(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    async def _watch(self) -> None:
        await self._exited.wait()
        await asyncio.sleep(_LINGER)

    async def _read(self) -> bytes:
        """Some output; empty at its end, also when only a child of the dead process holds it open."""
        assert self._process.stdout is not None
        reading = asyncio.ensure_future(self._process.stdout.read(_CHUNK))
        try:
            await asyncio.wait((reading, self._gone), return_when=asyncio.FIRST_COMPLETED)
            return reading.result() if reading.done() else b""
        finally:
            reading.cancel()

    async def _drain_stderr(self) -> None:
        """Always drained, so that a chatty process never blocks on it (F25)."""
        assert self._process.stderr is not None
        rest = b""
        while chunk := await self._process.stderr.read(_CHUNK):
            *lines, rest = (rest + chunk).split(b"\n")
            self._stderr.extend(line.decode(errors="replace")[:2000] for line in lines if line.strip())
            rest = rest[-2000:]
        if rest.strip():
            self._stderr.append(rest.decode(errors="replace"))

    async def _lines(self) -> AsyncIterator[tuple[bytes, int]]:
        """Lines and their whole size; of a line over `MAX_LINE` only the beginning."""
        parts: list[bytes] = []
        size = kept = 0
        while chunk := await self._read():
            *ends, rest = chunk.split(b"\n")
            for end in ends:
                if kept <= MAX_LINE:
                    parts.append(end)
                yield b"".join(parts), size + len(end)
                parts, size, kept = [], 0, 0
            size += len(rest)
            if rest and kept <= MAX_LINE:
                parts.append(rest)
                kept += len(rest)
        if parts:
            yield b"".join(parts), size


def _parse(line: bytes, size: int) -> dict[str, Any] | None:
    """The message on one line; anything else as a message of this transport; None for a blank line."""
    if size > MAX_LINE:
        return {"type": "system", "subtype": OVERLONG, "size": size, "head": line[:1024].decode(errors="replace")}
    if not line.strip():
        return None
    try:
        message = json.loads(line)
    except ValueError:
        message = None
    if isinstance(message, dict) and isinstance(message.get("type"), str):
        return message
    return {"type": "system", "subtype": NOISE, "text": line.decode(errors="replace")}
