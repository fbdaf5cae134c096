"""Channels over real sockets and pipes."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator

import pytest

from stockade.wire.channels import HIGH_WATER, StreamChannel

Pair = tuple[StreamChannel, StreamChannel]


@pytest.fixture(params=["socket", "pipes"])
async def pair(request: pytest.FixtureRequest) -> AsyncIterator[Pair]:
    """Two connected channels."""
    if request.param == "socket":
        one, other = socket.socketpair()
        channels = await StreamChannel.from_socket(one), await StreamChannel.from_socket(other)
    else:
        (read_one, write_one), (read_other, write_other) = os.pipe(), os.pipe()
        channels = (
            await StreamChannel.from_pipes(read_one, write_other),
            await StreamChannel.from_pipes(read_other, write_one),
        )
    yield channels
    for channel in channels:
        await channel.aclose()


async def read_exactly(channel: StreamChannel, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = await channel.read(65536)
        assert part
        data += part
    return data


async def test_bytes_go_both_ways(pair: Pair) -> None:
    one, other = pair
    await one.write(b"ping")
    assert await other.read(100) == b"ping"
    await other.write(b"pong")
    assert await one.read(100) == b"pong"


async def test_a_read_gives_at_most_its_limit(pair: Pair) -> None:
    one, other = pair
    await one.write(b"abcdef")
    assert await other.read(4) == b"abcd"
    assert await other.read(4) == b"ef"


async def test_a_buffer_may_be_reused_after_a_write(pair: Pair) -> None:
    one, other = pair
    buffer = bytearray(b"x" * 500_000)
    await one.write(buffer)
    buffer[:] = b"y" * 500_000
    assert await read_exactly(other, 500_000) == b"x" * 500_000


@pytest.mark.slow
@pytest.mark.requirement("L82")
async def test_a_writer_waits_for_a_slow_reader(pair: Pair) -> None:
    one, other = pair
    written = 0

    async def write() -> None:
        nonlocal written
        for _ in range(320):
            await one.write(b"z" * 65536)
            written += 65536

    writing = asyncio.create_task(write())
    # It stands still when the buffers of the writer, the system and the reader are full.
    last = -1
    while last != written:
        last = written
        done, _ = await asyncio.wait({writing}, timeout=0.2)
        assert not done
    assert written <= 4 * HIGH_WATER
    await read_exactly(other, 320 * 65536)
    await writing


async def test_writes_of_several_tasks_do_not_mix(pair: Pair) -> None:
    one, other = pair
    writes = [one.write(bytes([number]) * 100_000) for number in range(20)]
    _, received = await asyncio.gather(asyncio.gather(*writes), read_exactly(other, 2_000_000))
    assert [set(received[at : at + 100_000]) for at in range(0, 2_000_000, 100_000)] == [{n} for n in range(20)]


async def test_the_end_comes_after_what_was_written_and_stays(pair: Pair) -> None:
    one, other = pair
    await one.write(b"last words")
    await one.aclose()
    await one.aclose()
    assert await read_exactly(other, 10) == b"last words"
    assert await other.read(10) == b""
    assert await other.read(10) == b""


@pytest.mark.requirement("L82", "L5")
async def test_a_peer_that_is_gone_is_a_connection_error_for_the_writer(pair: Pair) -> None:
    one, other = pair
    await other.aclose()
    with pytest.raises(ConnectionError):
        while True:
            await one.write(b"x" * 65536)
    assert await one.read(10) == b""


async def test_a_closed_channel_reads_its_end_and_refuses_writes(pair: Pair) -> None:
    one, _ = pair
    reading = asyncio.create_task(one.read(10))
    await asyncio.sleep(0)
    await one.aclose()
    assert await reading == b""
    with pytest.raises(ConnectionError):
        await one.write(b"x")


@pytest.mark.requirement("L82")
async def test_many_writers_together_do_not_overfill_the_channel(pair: Pair) -> None:
    one, other = pair
    writers = [asyncio.create_task(one.write(b"z" * 65536)) for _ in range(200)]
    await asyncio.sleep(0)
    assert one._sink is not None
    fullest = 0
    for _ in range(100):
        fullest = max(fullest, one._sink.get_write_buffer_size())
        if all(writer.done() for writer in writers):
            break
        await other.read(65536)
    for writer in writers:
        writer.cancel()
    await asyncio.wait(writers)
    assert fullest <= HIGH_WATER + 65536
