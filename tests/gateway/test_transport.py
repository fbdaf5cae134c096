"""HTTP over a stream: flow control, ends that are clean, and ends that are not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest
from aiohttp import web

from stockade.contracts.route import Stream
from stockade_gateway import transport
from stockade_gateway.transport import HIGH_WATER, StreamTransport

from .conftest import ORIGIN

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


@dataclass
class MemoryStream(Stream):
    """A stream whose other end is the test. ``credit`` unset: nothing more is taken."""

    inbound: asyncio.Queue[bytes | Exception] = field(default_factory=asyncio.Queue)
    credit: asyncio.Event = field(default_factory=asyncio.Event)
    taken: bytearray = field(default_factory=bytearray)
    took: asyncio.Condition = field(default_factory=asyncio.Condition)
    ended: int = 0
    resets: list[str] = field(default_factory=list)

    async def receive(self) -> bytes:
        data = await self.inbound.get()
        if isinstance(data, Exception):
            raise data
        return data

    async def send(self, data: bytes) -> None:
        await self.credit.wait()
        self.taken += data
        async with self.took:
            self.took.notify_all()

    async def send_end(self) -> None:
        self.ended += 1

    async def reset(self, code: str, message: str = "") -> None:
        self.resets.append(code)

    async def until(self, data: bytes) -> None:
        async with self.took:
            await self.took.wait_for(lambda: data in self.taken)


@dataclass
class Served:
    """One connection to a handler that the test steers."""

    stream: MemoryStream
    task: asyncio.Task[None]
    begun: asyncio.Event
    cancelled: asyncio.Event
    written: list[int]


Serve = Callable[..., Served]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    tasks: list[asyncio.Task[None]] = []

    def start(size: int = 0, then: Callable[[web.BaseRequest], None] | None = None, wait: bool = False) -> Served:
        begun, cancelled, written = asyncio.Event(), asyncio.Event(), [0]

        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            begun.set()
            response = web.StreamResponse()
            await response.prepare(request)
            try:
                while written[0] < size:
                    await response.write(b"x" * 1024)
                    written[0] += 1024
                if wait:
                    await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise
            if then is not None:
                then(request)
            return response

        server = web.Server(handle, handler_cancellation=True)
        stream = MemoryStream()
        task = asyncio.ensure_future(StreamTransport(stream, ORIGIN).run(server()))
        tasks.append(task)
        return Served(stream, task, begun, cancelled, written)

    yield start
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_caller_that_takes_nothing_stops_the_server(serve: Serve) -> None:
    served = serve(size=100 * HIGH_WATER)
    served.stream.inbound.put_nowait(GET)
    await served.begun.wait()
    for _ in range(100):  # as often as the server could go on
        await asyncio.sleep(0)
    stopped = served.written[0]
    for _ in range(100):
        await asyncio.sleep(0)
    assert served.written[0] == stopped <= 3 * HIGH_WATER
    served.stream.credit.set()
    await served.stream.until(b"\r\n0\r\n\r\n")
    assert served.written[0] == 100 * HIGH_WATER


async def test_one_connection_serves_several_requests(serve: Serve) -> None:
    served = serve()
    served.stream.credit.set()
    for _ in range(3):
        served.stream.inbound.put_nowait(GET)
        await served.stream.until(b"0\r\n\r\n")
        assert served.stream.taken.startswith(b"HTTP/1.1 200")
        served.stream.taken.clear()
    served.stream.inbound.put_nowait(b"")
    await served.task
    assert (served.stream.ended, served.stream.resets) == (1, [])


@pytest.mark.requirement("F78")
async def test_cutting_the_stream_cancels_the_request(serve: Serve) -> None:
    served = serve(wait=True)
    served.stream.inbound.put_nowait(GET)
    await served.begun.wait()
    served.task.cancel()
    await served.cancelled.wait()


@pytest.mark.parametrize("end", [b"", ConnectionResetError("gone")])
async def test_a_caller_that_leaves_cancels_the_request(serve: Serve, end: bytes | Exception) -> None:
    served = serve(wait=True)
    served.stream.credit.set()
    served.stream.inbound.put_nowait(GET)
    await served.begun.wait()
    served.stream.inbound.put_nowait(end)
    await served.cancelled.wait()
    await served.task


async def test_a_caller_that_ends_its_half_and_takes_nothing_is_dropped(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "DRAIN_TIME", 0.01)
    served = serve(size=10 * HIGH_WATER)
    served.stream.inbound.put_nowait(GET)
    await served.begun.wait()
    served.stream.inbound.put_nowait(b"")
    await served.cancelled.wait()
    await served.task
    assert served.stream.resets == ["broken"]


async def test_an_aborted_answer_is_a_reset_and_no_clean_end(serve: Serve) -> None:
    def abort(request: web.BaseRequest) -> None:
        assert request.transport is not None
        request.transport.abort()

    served = serve(then=abort)
    served.stream.credit.set()
    served.stream.inbound.put_nowait(GET)
    await served.task
    assert (served.stream.ended, served.stream.resets) == (0, ["broken"])


async def test_an_answer_broken_off_before_http_1_1_is_a_reset(serve: Serve) -> None:
    served = serve(then=transport.break_off)
    served.stream.credit.set()
    served.stream.inbound.put_nowait(GET.replace(b"1.1", b"1.0"))
    await served.task
    assert (served.stream.ended, served.stream.resets) == (0, ["broken"])
