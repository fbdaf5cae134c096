"""A stream in a thread's hands: for work that blocks, such as reading and writing files. Standard library only."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from stockade.wire.stream import MuxStream

T = TypeVar("T")

PIECE = 256 * 1024
"""Bytes that cross between the thread and the event loop at a time: each crossing costs a switch of threads."""


class BlockingStream:
    """Made on the event loop; `send`, `flush` and `receive` are called from the thread of `run`."""

    def __init__(self, stream: MuxStream) -> None:
        self._stream = stream
        self._loop = asyncio.get_running_loop()
        self._out = bytearray()
        self._sending: Future[None] | None = None
        self._receiving: Future[bytes] | None = None

    async def run(self, work: Callable[[BlockingStream], T]) -> T:
        """``work`` in a thread of its own, to its end: a caller that is cancelled drops the stream and waits.

        So whatever ``work`` undoes when its stream fails is undone when this returns, or raises what ``work`` raised.
        """
        ended: asyncio.Future[T] = self._loop.create_future()

        def body() -> None:
            try:
                settle = functools.partial(ended.set_result, work(self))
            except BaseException as error:
                settle = functools.partial(ended.set_exception, error)
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(settle)

        threading.Thread(target=body, name=f"stockade-{self._stream.kind}", daemon=True).start()
        try:
            return await asyncio.shield(ended)
        except asyncio.CancelledError:
            waiting: list[asyncio.Future[Any]] = [ended]
            if self._stream.drop("cancelled"):
                waiting.append(asyncio.ensure_future(self._stream.tell_reset("cancelled")))
            while not all(one.done() for one in waiting):
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait(waiting)
            ended.exception()  # the caller hears of the cancellation alone
            raise

    def send(self, data: bytes) -> None:
        """Send bytes, by and by; raises as `MuxStream.send`, perhaps later."""
        self._out += data
        if len(self._out) >= PIECE:
            self._hand_over()

    def flush(self) -> None:
        """Wait until everything is sent."""
        self._hand_over()
        if self._sending is not None:
            self._sending.result()

    def receive(self) -> bytes:
        """The next bytes, ``b""`` at the end; raises as `MuxStream.receive`. The ones after are on their way."""
        waiting = self._receiving or self._ask()
        data = waiting.result()
        self._receiving = self._ask() if data else None
        return data

    def _hand_over(self) -> None:
        if self._sending is not None:
            self._sending.result()
        data, self._out = self._out, bytearray()
        self._sending = asyncio.run_coroutine_threadsafe(self._stream.send(data), self._loop)

    def _ask(self) -> Future[bytes]:
        return asyncio.run_coroutine_threadsafe(self._gather(), self._loop)

    async def _gather(self) -> bytes:
        data = await self._stream.receive()
        if not data or not self._stream.buffered:
            return data
        pieces = [data]
        size = len(data)
        while size < PIECE and self._stream.buffered:
            pieces.append(await self._stream.receive())
            size += len(pieces[-1])
        return b"".join(pieces)
