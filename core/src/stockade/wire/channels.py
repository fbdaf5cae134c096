"""Channels over sockets and pipes, for both ends. Standard library only."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque

from stockade.contracts.channel import Channel

HIGH_WATER = 1024 * 1024
"""Bytes received and not yet read at which the transport stops reading; also of the write buffer."""


class StreamChannel(Channel):
    """A channel over one duplex transport (a socket) or two simplex ones (pipes).

    Made by `from_socket` and `from_pipes` in a running event loop.
    """

    def __init__(self) -> None:
        self._inbox: deque[bytes] = deque()
        self._held = 0
        self._ended = False
        self._lost = False
        self._reading_paused = False
        self._readable = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._source: asyncio.ReadTransport | None = None
        self._sink: asyncio.WriteTransport | None = None

    @classmethod
    async def from_socket(cls, sock: socket.socket) -> StreamChannel:
        """A channel over a connected stream socket, which is closed with the channel."""
        channel = cls()
        sock.setblocking(False)
        transport, _ = await asyncio.get_running_loop().connect_accepted_socket(lambda: _Protocol(channel), sock)
        channel._attach(transport, transport)
        return channel

    @classmethod
    async def from_pipes(cls, read_fd: int, write_fd: int) -> StreamChannel:
        """A channel over two descriptors (pipes, sockets or terminals), which are closed with the channel."""
        channel = cls()
        loop = asyncio.get_running_loop()
        source, _ = await loop.connect_read_pipe(lambda: _Protocol(channel), os.fdopen(read_fd, "rb", buffering=0))
        sink, _ = await loop.connect_write_pipe(lambda: _Protocol(channel), os.fdopen(write_fd, "wb", buffering=0))
        channel._attach(source, sink)
        return channel

    def _attach(self, source: asyncio.ReadTransport, sink: asyncio.WriteTransport) -> None:
        self._source, self._sink = source, sink
        sink.set_write_buffer_limits(high=HIGH_WATER)

    async def read(self, limit: int) -> bytes:
        """See `Channel.read`."""
        while not self._inbox:
            if self._ended:
                return b""
            self._readable.clear()
            await self._readable.wait()
        data = self._inbox.popleft()
        if len(data) > limit:
            self._inbox.appendleft(data[limit:])
            data = data[:limit]
        self._held -= len(data)
        if self._reading_paused and self._held * 2 < HIGH_WATER and self._source is not None and not self._ended:
            self._reading_paused = False
            self._source.resume_reading()
        return data

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """See `Channel.write`."""
        # Waiting comes first: many writers that wrote before they wait would overfill the buffer together, and
        # a cut stream's bytes would still be on their way long after the cut.
        while not self._writable.is_set():
            await self._writable.wait()
        if self._lost or self._sink is None or self._sink.is_closing():
            raise ConnectionResetError("the peer of the channel is gone")
        # A transport may keep a reference until the data is sent, and the caller may reuse its buffer.
        self._sink.write(data if type(data) is bytes else bytes(data))

    async def aclose(self) -> None:
        """See `Channel.aclose`."""
        self._end()
        source, sink, self._source, self._sink = self._source, self._sink, None, None
        if sink is not None and not sink.is_closing():
            sink.abort()
        if source is not None:
            source.close()  # for a socket the same transport: closing it twice is nothing

    # -- called by the transports ---------------------------------------------------------------------

    def _received(self, data: bytes) -> None:
        self._inbox.append(data)
        self._held += len(data)
        self._readable.set()
        if self._held >= HIGH_WATER and not self._reading_paused and self._source is not None:
            self._reading_paused = True
            self._source.pause_reading()

    def _end_of_input(self) -> None:
        self._ended = True
        self._readable.set()

    def _end(self) -> None:
        self._lost = True
        self._end_of_input()
        self._writable.set()


class _Protocol(asyncio.Protocol):
    """Feeds a channel from its transports."""

    def __init__(self, channel: StreamChannel) -> None:
        self._channel = channel

    def data_received(self, data: bytes) -> None:
        self._channel._received(data)

    def eof_received(self) -> bool:
        self._channel._end_of_input()
        return True  # what was received is still to be read, and the write half may still be open

    def connection_lost(self, exc: Exception | None) -> None:
        self._channel._end()

    def pause_writing(self) -> None:
        self._channel._writable.clear()

    def resume_writing(self) -> None:
        self._channel._writable.set()
