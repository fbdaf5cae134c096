"""The one pipe between the kernel and a sandbox. Standard library only."""

from __future__ import annotations

from abc import ABC, abstractmethod


class Channel(ABC):
    """An asynchronous byte stream with backpressure. The kernel is its only user."""

    @abstractmethod
    async def read(self, limit: int) -> bytes:
        """Up to ``limit`` bytes as soon as there are any; ``b""`` at the end, and from then on.

        A broken transport is an end, not an error (L82). One reader at a time.
        """

    @abstractmethod
    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """Queue ``data``; wait while the transport's buffer is over its high-water mark.

        Raises `ConnectionError` when the peer is gone. Calls from several tasks never interleave
        within one ``data``. ``data`` may be reused once the call returns.
        """

    @abstractmethod
    async def aclose(self) -> None:
        """Close both directions at once, without waiting for the peer. Idempotent, never raises."""
