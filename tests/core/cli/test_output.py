from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from stockade.cli.output import HIGH_WATER, Output


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read, write = os.pipe()
    yield read, write
    for fd in (read, write):
        try:
            os.close(fd)
        except OSError:
            continue


async def read_exactly(fd: int, size: int) -> bytes:
    data = b""
    while len(data) < size and (piece := await asyncio.to_thread(os.read, fd, 65536)):
        data += piece
    return data


async def test_everything_arrives_in_order(pipe: tuple[int, int]) -> None:
    out = Output(pipe[1])
    for number in range(1000):
        await out.write(b"%d\n" % number)
    await out.drain()
    expected = b"".join(b"%d\n" % number for number in range(1000))
    assert await read_exactly(pipe[0], len(expected)) == expected


async def test_a_reader_that_stopped_does_not_stop_the_event_loop(pipe: tuple[int, int]) -> None:
    out = Output(pipe[1])
    size = HIGH_WATER + 200_000
    await out.write(b"x" * 100_000)  # more than the pipe holds: the thread is stuck in it now
    writing = asyncio.ensure_future(out.write(b"x" * (size - 100_000)))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not writing.done()
    assert len(await read_exactly(pipe[0], size)) == size
    await writing
    await out.drain()


async def test_a_reader_that_went_away_is_a_broken_pipe(pipe: tuple[int, int]) -> None:
    os.close(pipe[0])
    out = Output(pipe[1])
    with pytest.raises(BrokenPipeError):
        await out.write(b"x")
        await out.drain()
    with pytest.raises(BrokenPipeError):
        await out.write(b"y")


async def test_a_descriptor_that_does_not_block_is_waited_for(pipe: tuple[int, int]) -> None:
    os.set_blocking(pipe[1], False)
    out = Output(pipe[1])
    await out.write(b"x" * 200_000)
    assert await read_exactly(pipe[0], 200_000) == b"x" * 200_000
    await out.drain()
