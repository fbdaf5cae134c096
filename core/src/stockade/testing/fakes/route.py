"""A route that remembers and echoes, and a connection to try any route with."""

from __future__ import annotations

import asyncio
import hmac
from collections import deque
from collections.abc import Collection

from stockade.contracts.route import Origin, Route, Stream
from stockade.errors import NotConfigured

CHUNK = 64 * 1024
"""Bytes that `MemoryStream.receive` gives at once, as the wire does."""


class MemoryStream(Stream):
    """One connection to a route, with both ends in this process.

    The route uses the methods of `Stream`; a test is the inside with `say`, `finish`, `take` and `break_off`.
    ``window`` are the bytes that the route may be ahead of `take`. ``code`` is that of the route's reset.
    """

    def __init__(self, window: int = CHUNK) -> None:
        self.code = ""
        self._window = window
        self._said: deque[bytes] = deque()
        self._answered = bytearray()
        self._finished = self._ended = self._broken = False
        self._changed = asyncio.Event()

    # -- the route's end -----------------------------------------------------------------------------------

    async def receive(self) -> bytes:
        while not self._said and not self._finished:
            self._refuse_broken()
            await self._wait()
        self._refuse_broken()
        return self._said.popleft() if self._said else b""

    async def send(self, data: bytes) -> None:
        for start in range(0, len(data), self._window):
            while len(self._answered) >= self._window and not self._broken:
                await self._wait()
            self._refuse_broken()
            if self._ended:
                raise ConnectionError("this half is closed")
            self._answered += data[start : start + self._window]
            self._notify()

    async def send_end(self) -> None:
        self._ended = True
        self._notify()

    async def reset(self, code: str, message: str = "") -> None:
        self.code = self.code or code
        self.break_off()

    # -- the inside's end ----------------------------------------------------------------------------------

    def say(self, data: bytes) -> None:
        """Bytes for the route."""
        self._said.extend(data[start : start + CHUNK] for start in range(0, len(data), CHUNK))
        self._notify()

    def finish(self) -> None:
        """Close the inside's half. Idempotent."""
        self._finished = True
        self._notify()

    def break_off(self) -> None:
        """The connection is lost. Idempotent."""
        self._broken = True
        self._notify()

    async def take(self) -> bytes:
        """The next bytes of the route, which may then send more; ``b""`` at its end, or that of the connection."""
        while not self._answered and not self._ended and not self._broken:
            await self._wait()
        taken = bytes(self._answered)
        self._answered.clear()
        self._notify()
        return taken

    def _refuse_broken(self) -> None:
        if self._broken:
            raise ConnectionResetError("the connection is lost")

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _wait(self) -> None:
        await self._changed.wait()


class RecordingRoute(Route):
    """Sends back what it is sent. The first line of a connection has to be the session's key.

    ``calls`` has the origin and the bytes of each connection that it served. Configured for ``dialects``.
    """

    def __init__(self, dialects: Collection[str] = ("echo",)) -> None:
        self.calls: list[tuple[Origin, bytearray]] = []
        self._dialects = dialects

    def preflight(self, dialect: str) -> None:
        if dialect not in self._dialects:
            raise NotConfigured(f"nothing echoes the dialect {dialect!r}", hint="Name it in RecordingRoute(dialects).")

    async def serve(self, stream: Stream, origin: Origin) -> None:
        head = b""
        while b"\n" not in head and len(head) <= 1024 and (data := await stream.receive()):
            head += data
        key, newline, rest = head.partition(b"\n")
        if not newline or not origin.key or not hmac.compare_digest(key, origin.key.encode()):
            await stream.reset("denied", "the first line is not the key of this session")
            return
        body = bytearray()
        self.calls.append((origin, body))
        while rest:
            if origin.warranted and origin.token is None:
                await stream.reset("denied", "there is no turn with a token")
                return
            body += rest
            await stream.send(rest)
            rest = await stream.receive()
        await stream.send_end()
