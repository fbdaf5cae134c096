"""Route listeners: connections inside become tunnel streams outside."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stockade.errors import StockadeError
from stockade.wire.mux import MuxStream
from tests.core.inside.client import Client
from tests.core.inside.conftest import Start

ROUTES = {"model": {"key": "placeholder-1"}}


class Kernel:
    """Answers tunnels with their arguments and what was sent."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self.open = asyncio.Event()

    async def accept(self, stream: MuxStream) -> None:
        self.seen.append(dict(stream.args))
        self.open.set()
        data = b""
        while part := await stream.receive():
            data += part
        await stream.send(b"answer to " + data)
        await stream.send_end()


@pytest.fixture
def kernel() -> Kernel:
    return Kernel()


@pytest.fixture
async def client(start: Start, kernel: Kernel) -> Client:
    return (await start(accept=kernel.accept)).client


async def connect(client: Client, **args: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    url = (await client.facts(routes=ROUTES, **args))["routes"]["model"][0]
    return await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))


async def test_an_engine_reaches_a_route_through_the_channel(client: Client, kernel: Kernel) -> None:
    text, _ = await client.turn({"fetch": "model"}, routes=ROUTES)
    assert text["text"] == "answer to placeholder-1"
    assert kernel.seen == [{"route": "model", "session": "main"}]


async def test_each_session_has_a_listener_of_its_own_that_stays(client: Client, kernel: Kernel) -> None:
    one = (await client.facts(routes=ROUTES))["routes"]
    other = (await client.facts(routes=ROUTES, session="other"))["routes"]
    assert one != other
    assert (await client.facts(routes=ROUTES))["routes"] == one
    assert one["model"][0].startswith("http://127.0.0.1:")
    await client.turn({"fetch": "model"}, routes=ROUTES, session="other")
    assert kernel.seen == [{"route": "model", "session": "other"}]


async def test_a_large_transfer_is_byte_exact(client: Client) -> None:
    reader, writer = await connect(client)
    data = bytes(range(256)) * 40_000

    async def send() -> None:
        writer.write(data)
        await writer.drain()
        writer.write_eof()

    received, _ = await asyncio.gather(reader.read(), send())
    assert received == b"answer to " + data
    writer.close()


async def test_a_revoked_route_is_cut_and_refuses(client: Client, kernel: Kernel) -> None:
    reader, writer = await connect(client)
    port = writer.get_extra_info("peername")[1]
    writer.write(b"x")
    await kernel.open.wait()
    assert await client.control("revoke", route="model") == {"listeners": 1, "connections": 1}
    with pytest.raises(ConnectionError):
        while await reader.read():
            pass
        raise ConnectionResetError
    writer.close()
    with pytest.raises(ConnectionError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_a_closed_session_closes_its_listeners(client: Client) -> None:
    _, writer = await connect(client)
    port = writer.get_extra_info("peername")[1]
    assert await client.control("close_session", session="main") == {"closed": True}
    writer.close()
    with pytest.raises(ConnectionError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_a_tunnel_that_the_kernel_refuses_closes_the_connection(start: Start) -> None:
    async def refuse(stream: MuxStream) -> None:
        await stream.reset("denied", "not today")

    client = (await start(accept=refuse)).client
    reader, writer = await connect(client)
    with pytest.raises(ConnectionError):
        assert await reader.read() == b""
        raise ConnectionResetError
    writer.close()


async def test_a_connection_that_breaks_inside_resets_the_tunnel(start: Start) -> None:
    failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def stream_for_ever(stream: MuxStream) -> None:
        try:
            while True:
                await stream.send(b"x" * 65536)
        except StockadeError as error:
            failed.set_result(error.code)

    client = (await start(accept=stream_for_ever)).client
    reader, writer = await connect(client)
    await reader.readexactly(1000)
    writer.transport.abort()
    assert await failed == "reset"
    assert (await client.control("stats"))["tunnels"] == 0


async def test_connections_are_bounded(start: Start) -> None:
    async def hold(stream: MuxStream) -> None:
        await stream.send(b"!")
        await stream.receive()

    client = (await start(accept=hold)).client
    url = (await client.facts(routes=ROUTES))["routes"]["model"][0]
    held = []
    for _ in range(128):
        held.append(await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2])))
        await held[-1][0].readexactly(1)
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await reader.readexactly(1)
    for _, other in [*held, (reader, writer)]:
        other.close()
