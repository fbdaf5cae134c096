"""Puts load on an HTTP server, with as little of our own work in the numbers as Python allows."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

PACE = 0.025
"""Seconds between two chunks of a stream."""
MESSAGE = "Explain in two sentences what a reverse proxy does, and when one would want two of them. " * 4


@dataclass(frozen=True)
class Target:
    """A server on 127.0.0.1, and the credential that it wants."""

    port: int
    credential: str = "none"

    def request(self, *, stream: bool = False) -> bytes:
        """One call, whole."""
        messages = [{"role": "user", "content": MESSAGE}]
        body = json.dumps({"model": "m", "max_tokens": 64, "messages": messages, "stream": stream}).encode()
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {self.credential}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


def whole(data: bytes) -> bool:
    """Whether one answer is complete. Raises `RuntimeError` when it is no success."""
    head, found, body = data.partition(b"\r\n\r\n")
    if not found:
        return False
    if not head.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(f"the server answered: {data[:300]!r}")
    lower = head.lower()
    if b"transfer-encoding: chunked" in lower:
        return body.endswith(b"0\r\n\r\n")
    length = lower.partition(b"content-length:")[2].partition(b"\r\n")[0]
    return len(body) >= int(length)


def latencies(target: Target, count: int) -> list[float]:
    """Seconds of each of ``count`` calls, one after the other on one connection."""
    request, samples = target.request(), []
    with socket.create_connection(("127.0.0.1", target.port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(count):
            started = time.perf_counter()
            connection.sendall(request)
            data = b""
            while not whole(data):
                received = connection.recv(65536)
                if not received:
                    raise RuntimeError("the server closed the connection")
                data += received
            samples.append(time.perf_counter() - started)
    return samples


class _Caller(asyncio.Protocol):
    """One connection that calls again as soon as it was answered."""

    def __init__(self, request: bytes, answered: Callable[[], bool]) -> None:
        self._request = request
        self._answered = answered
        self._data = b""
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._data += data
        try:
            if not whole(self._data):
                return
        except RuntimeError as error:
            self._end(error)
            return
        self._data = b""
        if self._answered():
            self._transport.write(self._request)
        else:
            self._end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc or RuntimeError("the server closed the connection"))

    def _end(self, error: Exception | None) -> None:
        if not self.over.done():
            if error is None:
                self.over.set_result(None)
            else:
                self.over.set_exception(error)
        self._transport.close()


async def throughput(target: Target, connections: int, seconds: float) -> float:
    """Calls a second that are answered on so many connections."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    count = 0

    def answered() -> bool:
        nonlocal count
        count += 1
        return loop.time() - begun < seconds

    request = target.request()
    callers: list[_Caller] = []
    for _ in range(connections):
        _, caller = await loop.create_connection(lambda: _Caller(request, answered), "127.0.0.1", target.port)
        callers.append(caller)
    await asyncio.gather(*(caller.over for caller in callers))
    return count / (loop.time() - begun)


async def delays(target: Target, streams: int) -> list[float]:
    """Seconds from an upstream's writing of a chunk to its arrival here, for all chunks of so many streams at once.

    They begin one after the other, spread over the time between two chunks: streams of different agents are not in
    step, and in step one would measure how long a queue of fifty is.
    """
    samples: list[float] = []

    async def one(number: int) -> None:
        await asyncio.sleep(number * PACE / streams)
        reader, writer = await asyncio.open_connection("127.0.0.1", target.port)
        writer.write(target.request(stream=True))
        async for line in reader:
            if line.startswith(b"data: {"):
                samples.append(time.monotonic() - float(json.loads(line[6:])["created"]))
            elif line.startswith(b"data: [DONE]"):
                break
        else:
            raise RuntimeError("a stream was broken off")
        writer.close()

    await asyncio.gather(*(one(number) for number in range(streams)))
    return samples
