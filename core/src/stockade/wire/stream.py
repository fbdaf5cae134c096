"""One stream of the mux: bytes both ways, with credit. Standard library only."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stockade.errors import StockadeError
from stockade.wire import frames

if TYPE_CHECKING:
    from stockade.wire.mux import Mux

WINDOW = 256 * 1024
"""Bytes that may be on their way to a receiver that has not consumed them (credit a stream)."""


class StreamReset(StockadeError):
    """The peer, or this end, dropped the stream. ``reset_code`` says why."""

    code = "reset"

    def __init__(self, reset_code: str, message: str = "") -> None:
        super().__init__(message or f"stream reset: {reset_code}")
        self.reset_code = reset_code


class MuxStream:
    """Made by `Mux.open` or handed to ``accept``. One reader and one writer at a time."""

    def __init__(self, mux: Mux, id: int, kind: str, args: Mapping[str, Any]) -> None:
        self.id = id
        self.kind = kind
        self.args = args
        self._mux = mux
        self._inbox: deque[bytes] = deque()
        self._credit = WINDOW
        self._window = WINDOW
        self._consumed = 0
        self._sent_end = False
        self._got_end = False
        self._failure: StockadeError | None = None
        self._readable = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._gone = asyncio.Event()

    def __repr__(self) -> str:
        state = "reset" if self._failure else f"{'<' if self._got_end else ''}{'>' if self._sent_end else ''}" or "open"
        return f"<MuxStream {self.id} {self.kind} {state}>"

    # -- used by the owner --------------------------------------------------------------------------

    async def send(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes; wait for the peer's credit and for the channel.

        Up to `frames.CHUNK` bytes arrive as one piece: ``exec`` marks each of its pieces with a first byte.
        Raises `StreamReset` after a reset, and the mux's own failure after its end.
        """
        view = memoryview(data)
        while view:
            size = min(len(view), frames.CHUNK)
            while self._credit < size and self._failure is None:
                self._writable.clear()
                await self._writable.wait()
            if self._failure is not None:
                raise self._failure
            if self._sent_end:
                raise StreamReset("closed", "this half of the stream is closed")
            self._credit -= size
            try:
                await self._mux.write(frames.encode(frames.DATA, self.id, view[:size]))
            except BaseException:
                self._credit += size  # nothing of it was sent
                raise
            view = view[size:]

    async def send_end(self) -> None:
        """Close this half. Idempotent; does nothing on a stream that is gone."""
        if self._sent_end or self._failure is not None:
            return
        self._sent_end = True
        await self._mux.write(frames.encode(frames.END, self.id))
        self._mux.forget_finished(self)

    async def receive(self) -> bytes:
        """The next bytes as they came, ``b""`` at the end of the peer's half, and from then on.

        What arrived before a reset is delivered first; then `StreamReset` or the mux's failure is raised.
        """
        while not self._inbox:
            if self._got_end:
                return b""
            if self._failure is not None:
                raise self._failure
            self._readable.clear()
            await self._readable.wait()
        data = self._inbox.popleft()
        self._consumed += len(data)
        if self._consumed * 2 >= WINDOW and not self._got_end and self._failure is None:
            grant, self._consumed = self._consumed, 0
            self._window += grant
            await self._mux.write(frames.encode(frames.CREDIT, self.id, grant.to_bytes(4, "big")))
        return data

    @property
    def buffered(self) -> bool:
        """Whether `receive` would return bytes at once."""
        return bool(self._inbox)

    async def reset(self, code: str, message: str = "") -> None:
        """Drop both directions. Idempotent; a stream that ended both ways stays ended."""
        if self.drop(code, message):
            await self.tell_reset(code, message)

    def drop(self, code: str, message: str = "") -> bool:
        """The part of `reset` that takes no time; False when there was nothing to drop. `tell_reset` follows."""
        if self._failure is not None or self.finished:
            return False
        self.fail(StreamReset(code, message))
        self._mux.forget(self)
        return True

    async def tell_reset(self, code: str, message: str = "") -> None:
        """The other part: the peer learns of it."""
        await self._mux.send_reset(self.id, code, message)

    async def wait_reset(self) -> None:
        """Return when the stream was dropped, by either end or with the connection; also after the peer's END."""
        await self._gone.wait()

    # -- used by the mux: synchronous, state only -----------------------------------------------------

    @property
    def finished(self) -> bool:
        """Both halves closed."""
        return self._sent_end and self._got_end

    def feed(self, data: bytes) -> bool:
        """Queue received bytes; False when the peer went over its credit or sent after its end."""
        if self._got_end or len(data) > self._window:
            return False
        self._window -= len(data)
        if data:
            self._inbox.append(data)
            self._readable.set()
        return True

    def feed_end(self) -> bool:
        """The peer closed its half; False when it had already."""
        if self._got_end:
            return False
        self._got_end = True
        self._readable.set()
        return True

    def grant(self, credit: int) -> bool:
        """The peer can take ``credit`` more bytes; False when that is more than any honest peer gives."""
        self._credit += credit
        self._writable.set()
        return self._credit <= WINDOW

    def fail(self, failure: StockadeError) -> None:
        """End the stream with an error; the first one stays."""
        if self._failure is None:
            self._failure = failure
            self._gone.set()
            self._readable.set()
            self._writable.set()
