"""Route listeners: TCP ports on 127.0.0.1 whose connections become tunnel streams to the kernel.

There is one listener a route and session, so the kernel knows where a connection comes from without
believing anything that is said on it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from stockade.errors import StockadeError
from stockade.wire.mux import Mux, MuxStream

MAX_CONNECTIONS = 128
"""Connections that one listener holds at once; a further one is closed unserved."""
CHUNK = 64 * 1024

log = logging.getLogger("stockade.inside")


class Listener:
    """One route of one session. Made by `open_listener`."""

    def __init__(self, mux: Mux, route: str, session: str) -> None:
        self.route = route
        self.session = session
        self.port = 0
        self._mux = mux
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """Where engines reach the route."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._connections)

    async def start(self) -> None:
        """Listen on a port that the system chooses. Raises `OSError`."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=CHUNK)
        self.port = self._server.sockets[0].getsockname()[1]

    async def aclose(self) -> None:
        """Refuse new connections and cut the open ones. Idempotent."""
        if self._server is not None:
            self._server.close()
        connections = list(self._connections)
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= MAX_CONNECTIONS:
            log.warning("route %s: over %d connections in session %s", self.route, MAX_CONNECTIONS, self.session)
            writer.transport.abort()
            return
        task = asyncio.create_task(self._serve(reader, writer), name=f"stockade-tunnel-{self.route}")
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stream: MuxStream | None = None
        pumps: list[asyncio.Task[None]] = []
        try:
            stream = await self._mux.open("tunnel", {"route": self.route, "session": self.session})
            pumps = [asyncio.create_task(_upward(reader, stream)), asyncio.create_task(_downward(stream, writer))]
            await asyncio.gather(*pumps)
        except (StockadeError, ConnectionError) as error:
            log.debug("tunnel of route %s: %s", self.route, error)
        finally:
            for pump in pumps:
                pump.cancel()
            if stream is not None and not stream.finished:
                await stream.reset("closed", "the connection inside is gone")
                writer.transport.abort()
            writer.close()


async def _upward(reader: asyncio.StreamReader, stream: MuxStream) -> None:
    while data := await reader.read(CHUNK):
        await stream.send(data)
    await stream.send_end()


async def _downward(stream: MuxStream, writer: asyncio.StreamWriter) -> None:
    while data := await stream.receive():
        writer.write(data)
        await writer.drain()
    with contextlib.suppress(OSError):
        # The other side may be gone already; then there is no half left to close.
        writer.write_eof()
