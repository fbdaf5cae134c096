"""Lets aiohttp's HTTP server speak over a route's stream: no listener on the host (L70)."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import HttpVersion11, web

from stockade.contracts.route import Origin, Stream

HIGH_WATER = 64 * 1024
"""Bytes that wait for the inside before the server is told to pause."""

DRAIN_TIME = 10.0
"""Seconds for the last bytes to a caller that has closed its half; then the connection is dropped."""

LINGER_TIME = 2.0
"""Seconds for a caller to close after the server did; a reset any sooner could overtake the answer."""


class StreamTransport(asyncio.Transport):
    """Writes queue up; one task sends them with the stream's own flow control.

    As with TCP, ``close`` sends what is queued and then ends; ``abort`` drops the queue and resets.
    """

    def __init__(self, stream: Stream, origin: Origin) -> None:
        super().__init__({"origin": origin, "peername": origin.sandbox})
        self._stream = stream
        self._protocol: asyncio.BaseProtocol | None = None
        self._queue = bytearray()
        self._wake = asyncio.Event()
        self._reading = asyncio.Event()
        self._reading.set()
        self._aborted = asyncio.Event()
        self._closing = False
        self._paused = False

    async def run(self, protocol: asyncio.Protocol) -> None:
        """Serve until either side ends; the stream is then ended, or reset when that was no clean end.

        Cancelling it cancels the request that is being served. Raises what broke in the server, never
        that the caller has gone.
        """
        self._protocol = protocol
        protocol.connection_made(self)
        reader = asyncio.ensure_future(self._read(protocol))
        writer = asyncio.ensure_future(self._write(protocol))
        aborted = asyncio.ensure_future(self._aborted.wait())
        lost = False
        try:
            await asyncio.wait({reader, writer, aborted}, return_when=asyncio.FIRST_COMPLETED)
            if _ended(reader) and not writer.done():
                # The inside closed its half. As with TCP this is the end, after what is already queued.
                self.close()
                await asyncio.wait({writer, aborted}, timeout=DRAIN_TIME, return_when=asyncio.FIRST_COMPLETED)
            self._closing = lost = True
            protocol.connection_lost(_failure(reader, writer))
            if _ended(writer) and not reader.done():
                await asyncio.wait({reader}, timeout=LINGER_TIME)
            clean = _ended(reader) and _ended(writer)
        finally:
            self._closing = True
            for task in (reader, writer, aborted):
                task.cancel()
            await asyncio.gather(reader, writer, aborted, return_exceptions=True)
            if not lost:
                protocol.connection_lost(None)
        if not clean:
            await self._stream.reset("broken", "the connection was broken off")
        failure = _failure(reader, writer)
        if failure is not None and not isinstance(failure, ConnectionError):
            raise failure

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
            if self._aborted.is_set():
                raise ConnectionAbortedError("the server dropped the connection")
            if self._closing:
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
        # The writer is not woken: it would end the stream cleanly, and `run` cancels it in any case.
        self._queue.clear()
        self._closing = True
        self._reading.set()
        self._aborted.set()

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


def break_off(request: web.BaseRequest) -> None:
    """End the answer to ``request`` so that nobody can take it for a whole one."""
    if request.transport is None:
        return
    if request.version >= HttpVersion11:
        request.transport.close()  # what came still arrives; the missing last chunk tells
    else:
        request.transport.abort()  # before HTTP/1.1, a clean end of the connection is a clean end of the answer


def _ended(task: asyncio.Future[None]) -> bool:
    """Done, and well."""
    return task.done() and not task.cancelled() and task.exception() is None


def _failure(*tasks: asyncio.Future[None]) -> Exception | None:
    """The first task's exception that is one; all are looked at, so that none is reported as unseen."""
    failures = [t.exception() for t in tasks if t.done() and not t.cancelled()]
    return next((f for f in failures if isinstance(f, Exception)), None)
