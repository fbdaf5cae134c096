"""A channel without a transport."""

from __future__ import annotations

import asyncio

from stockade.contracts.channel import Channel


class MemoryChannel(Channel):
    """One end of a pair made by `pair`."""

    def __init__(self) -> None:
        self._reader = asyncio.StreamReader()
        self._other: MemoryChannel | None = None
        self._closed = False

    @classmethod
    def pair(cls) -> tuple[MemoryChannel, MemoryChannel]:
        """Two connected ends."""
        one, other = cls(), cls()
        one._other, other._other = other, one
        return one, other

    async def read(self, limit: int) -> bytes:
        return await self._reader.read(limit)

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        other = self._other
        if self._closed or other is None or other._closed:
            raise BrokenPipeError("the other end is closed")
        other._reader.feed_data(bytes(data))
        await asyncio.sleep(0)

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            self._reader.feed_eof()
            if self._other is not None and not self._other._closed:
                self._other._reader.feed_eof()
