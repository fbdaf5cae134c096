"""One command in a sandbox, as its caller holds it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stockade.errors import ProtocolError, SandboxLost
from stockade.wire.mux import MuxStream, StreamReset

if TYPE_CHECKING:
    from stockade.runtime.entry import Entry
    from stockade.runtime.runner import Runner

STDOUT, STDERR, RESULT = 1, 2, 3


@dataclass(frozen=True, slots=True)
class ExecResult:
    """How a command ended: an exit code, or a signal. ``truncated``: output over the cap was dropped."""

    exit_code: int | None
    signal: int | None = None
    timed_out: bool = False
    truncated: bool = False


class ExecHandle:
    """Returned by `Kernel.exec`. Iterate for ``(1, stdout)`` and ``(2, stderr)`` bytes; then `result`."""

    def __init__(self, runner: Runner, entry: Entry, stream: MuxStream) -> None:
        self._runner = runner
        self._entry = entry
        self._stream = stream
        self._result: ExecResult | None = None
        self._released = False

    @property
    def sandbox(self) -> str:
        """The sandbox's id."""
        return self._entry.id

    async def send(self, data: bytes) -> None:
        """Bytes for the command's stdin; ignored once it has ended."""
        try:
            await self._stream.send(data)
        except (StreamReset, SandboxLost):
            return

    async def send_end(self) -> None:
        """Close the command's stdin. Idempotent."""
        try:
            await self._stream.send_end()
        except (StreamReset, SandboxLost):
            return

    async def __aiter__(self) -> AsyncIterator[tuple[int, bytes]]:
        try:
            while data := await self._stream.receive():
                if data[0] == RESULT:
                    self._result = _result(data[1:], self._entry.id)
                elif data[0] in (STDOUT, STDERR):
                    yield data[0], data[1:]
                else:
                    raise ProtocolError(f"output of unknown kind {data[0]}", sandbox=self._entry.id)
        except (StreamReset, SandboxLost) as error:
            if self._result is not None:
                return
            if isinstance(error, StreamReset) and self._entry.usable:
                raise SandboxLost(f"the command was dropped: {error.message}", sandbox=self._entry.id) from error
            raise self._runner.failure(self._entry, error) from error

    async def result(self) -> ExecResult:
        """Wait for the end, dropping output that was not read. Raises `TurnFailed` when the sandbox was lost."""
        if self._result is None:
            async for _ in self:
                pass
        if self._result is None:
            raise ProtocolError("the command ended without a result", sandbox=self._entry.id)
        return self._result

    async def aclose(self) -> None:
        """Kill the command if it runs, and give the sandbox back. Idempotent."""
        await self._stream.reset("cancelled")
        if not self._released:
            self._released = True
            await self._runner.release(self._entry)

    async def __aenter__(self) -> ExecHandle:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _result(payload: bytes, sandbox: str) -> ExecResult:
    try:
        body = json.loads(payload)
        code, signal = body["exit_code"], body["signal"]
        if not all(v is None or (isinstance(v, int) and -1 < v < 256) for v in (code, signal)):
            raise ValueError
        return ExecResult(code, signal, bool(body["timed_out"]), bool(body["truncated"]))
    except (ValueError, KeyError, TypeError) as error:
        raise ProtocolError("the command's result is malformed", sandbox=sandbox) from error
