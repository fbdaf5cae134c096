"""An engine for the agent that misbehaves, and how to read such an agent. Standard library only at import.

The entry is ``stockade.testing.faults:FaultEngine``. It does what any engine should that reads lines of JSON
from a program: bounded lines, one decoding of whole lines, what is no message passed on, no waiting for
whoever only holds the pipe, and the end of stderr in the error.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO, Any

from stockade.contracts.engine import Emitter, Engine, EngineContext
from stockade.errors import EngineFailed
from stockade.model.events import Started, Text, Truncated, Unparsed
from stockade.model.turn import Outcome, Turn, Usage
from stockade.testing import agent

ENTRY = f"{__name__}:FaultEngine"
"""The engine, as a turn names it."""

MAX_LINE = 1024 * 1024
"""Bytes of a line that are kept; of a longer one only the head (F18)."""
HEAD = 1024
IDLE_DRAIN = 0.1
"""Seconds without output after the agent's own end at which nobody is waited for any more (F6)."""
GRACE = 0.5
TAIL = 2000
"""Bytes of stderr that an error shows."""


class FaultEngine(Engine):
    """Starts `stockade.testing.agent` for each turn; the message is its prompt.

    The session's name is on the command line of everything that the agent starts.
    """

    def __init__(self, context: EngineContext) -> None:
        super().__init__(context)
        self._agent: _Agent | None = None
        self._interrupted = False

    async def run_turn(self, turn: Turn, emit: Emitter) -> Outcome:
        """See `Engine.run_turn`. The result decides the outcome, not how the process ends (F12)."""
        self._interrupted = False
        self._agent = await _Agent.start(self.context, turn)
        try:
            await emit(Started("fault", turn.model or ""))
            outcome = await self._listen(self._agent, emit)
        finally:
            code = await self._agent.end()
        if self._interrupted:
            return Outcome("cancelled", "cancelled", "the agent was interrupted")
        if outcome is None:
            how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            words = self._agent.tail()
            raise EngineFailed(f"the agent ended without a result: {how}" + (f"\n{words}" if words else ""))
        return outcome

    async def interrupt(self) -> None:
        """See `Engine.interrupt`."""
        if self._agent is not None:
            self._interrupted = True
            await self._agent.end()

    async def _listen(self, agent: _Agent, emit: Emitter) -> Outcome | None:
        """Pass on what the agent says, until its result or its end."""
        async for lines in agent.lines():
            # Text of one reading is one event: it is a delta, and a flood is no reason for a million frames.
            words: list[str] = []
            for line, size in lines:
                message = None if size > MAX_LINE else _message(line)
                if message is not None and message["type"] == "text":
                    words.append(message["text"])
                    continue
                if words:
                    await emit(Text("".join(words)))
                    words = []
                if message is not None:
                    return Outcome(
                        "completed", usage=Usage(output_tokens=message["tokens"]), native_session=message["session"]
                    )
                head = line[:HEAD].decode(errors="replace")
                if size > MAX_LINE:
                    await emit(Truncated(size, head))
                elif line.strip():
                    await emit(Unparsed(line.decode(errors="replace")))
            if words:
                await emit(Text("".join(words)))
        return None


_TYPES: dict[str, dict[str, type]] = {"text": {"text": str}, "result": {"session": str, "tokens": int}}


def _message(line: bytes) -> dict[str, Any] | None:
    """The message on one line; None for anything else."""
    try:
        message = json.loads(line)
        fields = _TYPES[message["type"]]
        return message if all(isinstance(message[name], kind) for name, kind in fields.items()) else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


class Lines:
    """Cuts bytes into lines at ``\\n`` and nowhere else; holds no more than `MAX_LINE` bytes of an unfinished one."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._kept = 0
        self._size = 0

    def feed(self, data: bytes) -> list[tuple[bytes, int]]:
        """The lines that ended, each with its whole size; of one over `MAX_LINE` only its beginning."""
        *ends, rest = data.split(b"\n")
        found = []
        for end in ends:
            self._add(end)
            found += self.flush()
        self._add(rest)
        return found

    def flush(self) -> list[tuple[bytes, int]]:
        """The unfinished line as one that ended."""
        line = b"".join(self._parts), self._size
        self._parts, self._kept, self._size = [], 0, 0
        return [line]

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._kept <= MAX_LINE and piece:
            self._parts.append(piece)
            self._kept += len(piece)


class _Agent:
    """One process of the agent. Made by `start`; `end` may be called at any time, more than once."""

    def __init__(self, process: subprocess.Popen[bytes], stdout: _Pipe, stderr: _Pipe) -> None:
        self._process = process
        self._stdout, self._transport = stdout
        self._stderr = b""
        self._exit = asyncio.create_task(asyncio.to_thread(process.wait), name="fault-agent-exit")
        self._drain = asyncio.create_task(self._drain_stderr(*stderr), name="fault-agent-stderr")

    @classmethod
    async def start(cls, context: EngineContext, turn: Turn) -> _Agent:
        """Start it in a session of its own, with the prompt on a standard input that ends (F31)."""
        process = _spawn(context, turn.session)
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        with contextlib.suppress(BrokenPipeError), process.stdin as stdin:
            stdin.write(json.dumps({"prompt": turn.message}).encode() + b"\n")
        return cls(process, await _open(process.stdout), await _open(process.stderr))

    async def lines(self) -> AsyncIterator[list[tuple[bytes, int]]]:
        """Lines with their sizes, as many at a time as came. Ends with the output, or after the agent itself."""
        lines = Lines()
        while data := await self._read():
            if found := lines.feed(data):
                yield found
        if (rest := lines.flush()) != [(b"", 0)]:
            yield rest

    async def _read(self) -> bytes:
        """Some output; empty at its end, also when the dead agent's children hold the pipe (F6)."""
        reading = asyncio.ensure_future(self._stdout.read(256 * 1024))
        try:
            await asyncio.wait({reading, self._exit}, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                await asyncio.wait({reading}, timeout=IDLE_DRAIN)
            return reading.result() if reading.done() else b""
        finally:
            reading.cancel()

    async def end(self) -> int:
        """SIGTERM to its group, `GRACE` seconds, SIGKILL (F7). Its exit code, negative for a signal."""
        self._signal(signal.SIGTERM)
        await asyncio.wait({self._exit}, timeout=GRACE)
        self._signal(signal.SIGKILL)
        code = await asyncio.shield(self._exit)
        await asyncio.wait({self._drain}, timeout=IDLE_DRAIN)
        self._drain.cancel()
        self._transport.close()
        return code

    def tail(self) -> str:
        """The end of what it said on stderr."""
        return self._stderr.decode(errors="replace").strip()

    def _signal(self, number: int) -> None:
        if not self._exit.done():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    async def _drain_stderr(self, stderr: asyncio.StreamReader, transport: asyncio.ReadTransport) -> None:
        try:
            while data := await stderr.read(64 * 1024):
                self._stderr = (self._stderr + data)[-TAIL:]
        finally:
            transport.close()


def _spawn(context: EngineContext, mark: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(Path(agent.__file__)), mark],
        cwd=context.workspace,
        env=dict(context.environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        bufsize=0,
    )


_Pipe = tuple[asyncio.StreamReader, asyncio.ReadTransport]


async def _open(pipe: IO[bytes]) -> _Pipe:
    reader = asyncio.StreamReader(limit=256 * 1024)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    return reader, transport
