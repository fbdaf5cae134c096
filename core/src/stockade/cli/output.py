"""Writing to a descriptor that may not keep up, without stopping the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import threading
from collections import deque

HIGH_WATER = 256 * 1024
"""Bytes that may wait for the reader before `Output.write` waits too."""


class Output:
    """One descriptor with a thread of its own.

    A pager that is not scrolled, or a terminal under Ctrl-S, blocks whoever writes to it. On the event
    loop that would also stop the pings, and the sandbox would take its kernel for dead. The thread is
    a daemon and uses the descriptor directly: being stuck in a write cannot keep the process alive.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._queue: deque[bytes] = deque()
        self._waiting = 0
        self._error: OSError | None = None
        self._changed = threading.Condition()
        self._room: set[asyncio.Future[None]] = set()
        threading.Thread(target=self._work, name=f"output-{fd}", daemon=True).start()

    async def write(self, data: bytes) -> None:
        """Queue ``data``; wait while more than `HIGH_WATER` bytes are queued.

        Raises `BrokenPipeError` (or what else the descriptor said) once the reader is gone; that may
        have been found by an earlier write.
        """
        self.queue(data)
        await self._until(HIGH_WATER)

    def queue(self, data: bytes) -> None:
        """Queue ``data`` without waiting; for a few bytes whose loss nobody would notice."""
        with self._changed:
            if self._error is None:
                self._queue.append(data)
                self._waiting += len(data)
                self._changed.notify()

    async def drain(self) -> None:
        """Wait until everything is written; raises like `write`."""
        await self._until(0)

    async def _until(self, limit: int) -> None:
        while True:
            with self._changed:
                if self._error is not None:
                    raise self._error
                if self._waiting <= limit:
                    return
                waiter: asyncio.Future[None] = self._loop.create_future()
                self._room.add(waiter)
            try:
                await waiter
            finally:
                self._room.discard(waiter)

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._queue:
                    self._changed.wait()
                data = b"".join(self._queue)
                self._queue.clear()
            error: OSError | None = None
            try:
                _write_all(self._fd, data)
            except OSError as failure:
                # A terminal that was closed says EIO; it is a reader that went away, as of a pipe.
                error = BrokenPipeError(*failure.args) if failure.errno == errno.EIO else failure
            with self._changed:
                self._waiting -= len(data)
                self._error = error
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._wake)
            if error is not None:
                return

    def _wake(self) -> None:
        for waiter in self._room:
            if not waiter.done():
                waiter.set_result(None)


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(fd, rest) :]
        except BlockingIOError:  # somebody made the shared terminal non-blocking
            _wait_writable(fd)


def _wait_writable(fd: int) -> None:
    import select

    select.select([], [fd], [])
