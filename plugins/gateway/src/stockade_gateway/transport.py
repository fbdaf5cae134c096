"""Lets aiohttp's HTTP server speak over a route's stream: no listener on the host (L70)."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from stockade.contracts.route import Origin, Stream

HIGH_WATER = 64 * 1024
"""Bytes that wait for the inside before the server is told to pause."""


class StreamTransport(asyncio.Transport):
    """Writes queue up; one task sends them with the stream's own flow control."""

    def __init__(self, stream: Stream, origin: Origin) -> None:
        super().__init__({"origin": origin, "peername": origin.sandbox})
        self._stream = stream
        self._protocol: asyncio.BaseProtocol | None = None
        self._queue = bytearray()
        self._wake = asyncio.Event()
        self._reading = asyncio.Event()
        self._reading.set()
        self._closing = False
        self._paused = False

    async def run(self, protocol: asyncio.Protocol) -> None:
        """Serve until either side ends. The stream is closed, or reset when the server aborted."""
        self._protocol = protocol
        protocol.connection_made(self)
        reader = asyncio.ensure_future(self._read(protocol))
        writer = asyncio.ensure_future(self._write(protocol))
        failure: BaseException | None = None
        try:
            await asyncio.wait({reader, writer}, return_when=asyncio.FIRST_COMPLETED)
            # The inside's client is gone, or the server is done. HTTP clients do not close one half only.
            failure = next((t.exception() for t in (reader, writer) if t.done() and t.exception()), None)
        finally:
            self._closing = True
            for task in (reader, writer):
                task.cancel()
            await asyncio.wait({reader, writer})
            protocol.connection_lost(failure if isinstance(failure, Exception) else None)

    async def _read(self, protocol: asyncio.Protocol) -> None:
        while data := await self._stream.receive():
            protocol.data_received(data)
            await self._reading.wait()

    async def _write(self, protocol: asyncio.Protocol) -> None:
        while True:
            while self._queue:
                data = bytes(self._queue)
                self._queue.clear()
                if self._paused:
                    self._paused = False
                    protocol.resume_writing()
                await self._stream.send(data)
            if self._closing:
                with contextlib.suppress(ConnectionError):
                    await self._stream.send_end()
                return
            self._wake.clear()
            await self._wake.wait()

    # -- asyncio.Transport -----------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self._closing:
            return
        self._queue += data
        self._wake.set()
        if len(self._queue) > HIGH_WATER and not self._paused and self._protocol is not None:
            self._paused = True
            self._protocol.pause_writing()

    def close(self) -> None:
        self._closing = True
        self._reading.set()
        self._wake.set()

    def abort(self) -> None:
        self._queue.clear()
        self.close()

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        self._reading.clear()

    def resume_reading(self) -> None:
        self._reading.set()

    def is_reading(self) -> bool:
        return self._reading.is_set()

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return len(self._queue)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol
