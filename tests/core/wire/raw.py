"""The far end of a connection as bare frames, to send what no honest peer would."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, Literal

from stockade.testing.fakes import MemoryChannel
from stockade.wire import frames
from stockade.wire.frames import Frame
from stockade.wire.hello import dump_object
from stockade.wire.mux import Accept, Hello, Mux, MuxStream

Side = Literal["kernel", "inside"]
OTHER: dict[Side, Side] = {"kernel": "inside", "inside": "kernel"}


class RawPeer:
    """Writes any bytes to a mux under test and reads the frames that it answers."""

    def __init__(self, channel: MemoryChannel) -> None:
        self._channel = channel
        self._decoder = frames.Decoder()
        self._frames: list[Frame] = []

    async def write(self, data: bytes) -> None:
        """Any bytes; a mux that has hung up already is what some tests are about."""
        with contextlib.suppress(ConnectionError):
            await self._channel.write(data)

    async def send(self, type_: int, stream: int = 0, payload: bytes = b"") -> None:
        """One well-formed frame of any kind."""
        await self.write(frames.encode(type_, stream, payload))

    async def greet(self, **changes: Any) -> None:
        """A HELLO."""
        await self.send(frames.HELLO, 0, Hello(**changes).encode())

    async def open(self, stream: int, kind: str = "echo") -> None:
        """An OPEN."""
        await self.send(frames.OPEN, stream, dump_object({"kind": kind, "args": {}}))

    async def next(self, type_: int) -> Frame:
        """The next frame of this type; others before it are dropped."""
        while True:
            while self._frames:
                frame = self._frames.pop(0)
                if frame.type == type_:
                    return frame
            data = await self._channel.read(65536)
            assert data, f"the mux hung up before it sent {frames.NAMES[type_]}"
            self._frames += self._decoder.feed(data)

    async def hang_up(self) -> None:
        """End the connection."""
        await self._channel.aclose()


@contextlib.asynccontextmanager
async def connected(accept: Accept | None = None, *, side: Side = "kernel") -> AsyncIterator[tuple[Mux, RawPeer]]:
    """A mux that has been greeted by a raw peer."""
    near, far = MemoryChannel.pair()
    mux, raw = Mux(near, side=side, hello=Hello(), accept=accept), RawPeer(far)
    await raw.greet()
    await mux.start(5)
    try:
        yield mux, raw
    finally:
        await mux.aclose()
        await raw.hang_up()


@contextlib.asynccontextmanager
async def pair(accept: Accept | None = None) -> AsyncIterator[tuple[Mux, Mux]]:
    """Two honest ends: the kernel's, and the inside's with ``accept``."""
    near, far = MemoryChannel.pair()
    kernel = Mux(near, side="kernel", hello=Hello(epoch="k"))
    inside = Mux(far, side="inside", hello=Hello(("turn",), "i"), accept=accept)
    await asyncio.gather(kernel.start(5), inside.start(5))
    try:
        yield kernel, inside
    finally:
        await kernel.aclose()
        await inside.aclose()


async def echo(stream: MuxStream) -> None:
    """Send back all that comes."""
    while data := await stream.receive():
        await stream.send(data)
    await stream.send_end()
