"""One command a stream: bytes in, bytes out, and how it ended."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from stockade.errors import ProtocolError, StockadeError
from stockade.inside import proc, tree
from stockade.wire.mux import MuxStream

STDOUT, STDERR, RESULT = 1, 2, 3
CHUNK = 32 * 1024
IDLE_DRAIN = 0.1
"""Seconds without output after the command's own end at which a grandchild's hold on the pipe ends (F6)."""
MAX_DRAIN = 2.0
"""Seconds after the command's own end at which a grandchild that keeps printing is cut off."""
GRACE = 2.0

log = logging.getLogger("stockade.inside")


@dataclass(frozen=True, slots=True)
class ExecRequest:
    """What the kernel asks for. ``timeout`` and ``grace`` in seconds, ``max_output`` in bytes of both streams."""

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    timeout: float | None
    max_output: int | None
    grace: float

    @classmethod
    def parse(cls, args: Mapping[str, Any]) -> ExecRequest:
        """Raises `ProtocolError` for malformed arguments."""
        argv, env = args.get("argv"), args.get("env") or {}
        if not (isinstance(argv, list) and argv and all(isinstance(word, str) and "\0" not in word for word in argv)):
            raise ProtocolError("exec without a command")
        if not (isinstance(env, dict) and all(isinstance(v, str) for v in env.values())):
            raise ProtocolError("exec with a malformed environment")
        timeout, limit = args.get("timeout"), args.get("max_output")
        return cls(
            tuple(argv),
            str(args.get("cwd") or ""),
            env,
            None if timeout is None else float(timeout),
            None if limit is None else int(limit),
            float(args.get("grace") or GRACE),
        )


async def serve(stream: MuxStream, workspace: Path, environment: Mapping[str, str]) -> None:
    """Run the command of ``stream`` and report it. The command's tree is ended when the stream is dropped.

    What a command leaves running in the background lives on with the sandbox, as in a shell; a timeout
    ends the whole tree of this command and nothing else (F15).
    """
    request = ExecRequest.parse(stream.args)
    scope = tree.new_scope()
    env = {**environment, **request.env, tree.SCOPE: scope}
    try:
        process = _spawn(request, workspace, env)
    except (OSError, ValueError) as error:
        await _report_unstarted(stream, request, env, error)
        return
    await _Exec(stream, request, scope, process).run()


def _spawn(request: ExecRequest, workspace: Path, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        request.argv,
        cwd=workspace / request.cwd,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        bufsize=0,
    )


async def _report_unstarted(
    stream: MuxStream, request: ExecRequest, env: Mapping[str, str], error: OSError | ValueError
) -> None:
    """As a shell does: 127 for a command that is not there, 126 for one that cannot be run."""
    name = request.argv[0]
    # A directory on PATH that may not be read makes an unknown name a "permission denied" too.
    missing = isinstance(error, FileNotFoundError) or (
        "/" not in name and shutil.which(name, os.F_OK, env.get("PATH")) is None
    )
    await stream.send(bytes([STDERR]) + f"stockade: {name}: {error}\n".encode(errors="replace"))
    await _send_result(stream, exit_code=127 if missing else 126)


async def _send_result(
    stream: MuxStream,
    *,
    exit_code: int | None = None,
    signal: int | None = None,
    timed_out: bool = False,
    truncated: bool = False,
) -> None:
    result = {"exit_code": exit_code, "signal": signal, "timed_out": timed_out, "truncated": truncated}
    await stream.send(bytes([RESULT]) + json.dumps(result).encode())
    await stream.send_end()


class _Exec:
    """One running command."""

    def __init__(self, stream: MuxStream, request: ExecRequest, scope: str, process: subprocess.Popen[bytes]) -> None:
        self._stream = stream
        self._request = request
        self._find = tree.scope_finder(scope, proc.read(process.pid))
        self._process = process
        self._left = request.max_output
        self._truncated = False
        self._last_output = time.monotonic()
        self._sending = 0
        self._send_lock = asyncio.Lock()

    async def run(self) -> None:
        """Pump until the command has ended, then report."""
        process, stream = self._process, self._stream
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        feeding = asyncio.create_task(self._feed(process.stdin))
        pumps = {
            asyncio.create_task(self._pump(process.stdout, STDOUT)),
            asyncio.create_task(self._pump(process.stderr, STDERR)),
        }
        exited = asyncio.create_task(tree.exit_code(process))
        dropped = asyncio.create_task(stream.wait_reset())
        timed_out = False
        try:
            await asyncio.wait({exited, dropped}, timeout=self._request.timeout, return_when=asyncio.FIRST_COMPLETED)
            if not exited.done():
                timed_out = not dropped.done()
                await self._kill(self._request.grace)
            code = await exited
            await self._drain(pumps, dropped)
        except BaseException:
            await asyncio.shield(self._kill(0))
            raise
        finally:
            for task in (feeding, dropped, *pumps, exited):
                task.cancel()
            await asyncio.gather(feeding, dropped, *pumps, exited, return_exceptions=True)
        await _send_result(
            stream,
            exit_code=code if code >= 0 and not timed_out else None,
            signal=-code if code < 0 else None,
            timed_out=timed_out,
            truncated=self._truncated,
        )

    async def _kill(self, grace: float) -> None:
        left = await tree.end(self._find, grace=grace)
        if left:
            log.error("exec %s: %d processes could not be killed", self._request.argv[0], len(left))

    async def _drain(self, pumps: set[asyncio.Task[None]], dropped: asyncio.Task[None]) -> None:
        """Let the pumps come to their end, but wait for nobody who only holds the pipe."""
        limit = time.monotonic() + MAX_DRAIN
        self._last_output = time.monotonic()
        while (pumps := {pump for pump in pumps if not pump.done()}) and not dropped.done():
            idle_for = time.monotonic() - self._last_output
            # A consumer that is slow is no reason to lose output that was read.
            if not self._sending and (idle_for >= IDLE_DRAIN or time.monotonic() >= limit):
                return
            await asyncio.wait(
                {*pumps, dropped},
                timeout=max(0.005, IDLE_DRAIN - idle_for),
                return_when=asyncio.FIRST_COMPLETED,
            )

    async def _feed(self, pipe: IO[bytes]) -> None:
        """The stream's bytes to stdin; its end closes stdin (F31)."""
        transport, protocol = await asyncio.get_running_loop().connect_write_pipe(_StdinProtocol, pipe)
        try:
            while data := await self._stream.receive():
                transport.write(data)
                await protocol.writable.wait()
        except StockadeError as error:
            log.debug("stdin of %s: %s", self._request.argv[0], error)
        finally:
            transport.close()

    async def _pump(self, pipe: IO[bytes], kind: int) -> None:
        reader = asyncio.StreamReader(limit=CHUNK)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        try:
            while data := await reader.read(CHUNK):
                self._last_output = time.monotonic()
                self._sending += 1
                try:
                    await self._send(kind, data)
                finally:
                    self._sending -= 1
                self._last_output = time.monotonic()
        finally:
            transport.close()

    async def _send(self, kind: int, data: bytes) -> None:
        """Forward output up to the cap; what is over it is read and dropped, and says so once (F26)."""
        async with self._send_lock:
            if self._left is not None:
                if self._truncated:
                    return
                over = len(data) > self._left
                data = data[: self._left]
                self._left -= len(data)
            else:
                over = False
            if data:
                await self._stream.send(bytes([kind]) + data)
            if over:
                self._truncated = True
                mark = f"[stockade: output truncated after {self._request.max_output} bytes]\n"
                await self._stream.send(bytes([STDERR]) + mark.encode())


class _StdinProtocol(asyncio.BaseProtocol):
    """Backpressure of a command's stdin."""

    def __init__(self) -> None:
        self.writable = asyncio.Event()
        self.writable.set()

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        # The command closed its stdin or ended: what comes for it is read and dropped.
        self.writable.set()
