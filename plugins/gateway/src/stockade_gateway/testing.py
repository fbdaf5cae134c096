"""For tests of engines: a route on a loopback port, without a kernel."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from stockade.contracts.route import Origin, Route, Stream


class SocketStream(Stream):
    """A TCP connection as a route sees it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def receive(self) -> bytes:
        return await self._reader.read(64 * 1024)

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def send_end(self) -> None:
        if self._writer.can_write_eof() and not self._writer.is_closing():
            self._writer.write_eof()

    async def reset(self, code: str, message: str = "") -> None:
        self._writer.transport.abort()


@contextlib.asynccontextmanager
async def serve_tcp(route: Route, origin: Origin) -> AsyncIterator[str]:
    """Serve ``route`` on 127.0.0.1 as if everything came from ``origin``; gives ``http://127.0.0.1:PORT``.

    Ends all connections on leaving, and closes the route.
    """
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await route.serve(SocketStream(reader, writer), origin)
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await route.aclose()
