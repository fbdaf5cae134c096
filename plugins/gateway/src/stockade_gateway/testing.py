"""For tests of engines: a route on a loopback port, without a kernel, and a scripted model behind it."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import yaml
from aiohttp import web

from stockade.contracts.route import Origin, Route, Stream
from stockade.model.turn import Endpoint
from stockade.testing.rehearsal import Rehearsal
from stockade_gateway.rehearsal.offers import offered
from stockade_gateway.rehearsal.script import Script, parse
from stockade_gateway.rehearsal.stage import Stage
from stockade_gateway.route import ModelRoute
from stockade_gateway.taps import Tap


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


class _Rehearsing(ModelRoute):
    """A route of one script, which shows what it was asked."""

    def __init__(self, script: Script, calls: list[object]) -> None:
        super().__init__({})
        self._stage = _Recorder(script, calls)


class _Recorder(Stage):
    """Keeps the requests that take an item of the script."""

    def __init__(self, script: Script, calls: list[object]) -> None:
        super().__init__(script)
        self._calls = calls

    async def perform(
        self, request: web.BaseRequest, dialect: str, body: dict[str, Any], origin: Origin, taps: Sequence[Tap] = ()
    ) -> web.StreamResponse:
        if offered(body):
            self._calls.append(body)
        return await super().perform(request, dialect, body, origin, taps)


@contextlib.asynccontextmanager
async def rehearse(script: Sequence[Mapping[str, Any]]) -> AsyncIterator[Rehearsal]:
    """A scripted model in both dialects on 127.0.0.1: what `stockade.testing.EngineContract` asks for.

    ``script`` are the items of a rehearsal. Raises `UsageError` for one that is none.
    """
    origin = Origin(sandbox="kit", session="kit", route="model", key=secrets.token_hex(16))
    calls: list[object] = []
    parsed = parse("of the test", yaml.safe_dump([dict(item) for item in script]))
    async with serve_tcp(_Rehearsing(parsed, calls), origin) as url:
        yield Rehearsal({"model": Endpoint(url, origin.key)}, calls)
