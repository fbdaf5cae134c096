"""What Codex says, on its way from the thread that reads to the event loop. Standard library only."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from dataclasses import dataclass
from typing import Any

AHEAD = 1000
"""Messages that may wait. In a turn the reader then waits, and so does Codex; outside a turn the rest is dropped."""

_LOOK = 0.1
"""Seconds after which a reader that waits looks whether the turn is over."""


@dataclass(frozen=True, slots=True)
class Noise:
    """A line that is no message (F22)."""

    text: str


@dataclass(frozen=True, slots=True)
class Overlong:
    """A line that is too long to be kept (F18)."""

    size: int
    head: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A question of Codex that was answered with no (L65)."""

    method: str


class Inbox:
    """Made in the event loop. `put` is for the reader's thread, `close` for any, the rest for the event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._messages: asyncio.Queue[Any] = asyncio.Queue()
        self._room = threading.Semaphore(AHEAD)
        self._closed = threading.Event()
        self.reading = False
        """Whether a turn takes the messages."""

    def put(self, message: Any) -> None:
        """Add a message. Waits for room while a turn is there to make it."""
        while not self._closed.is_set():
            if self._room.acquire(timeout=_LOOK if self.reading else 0):
                self._pass_on(message)
                return
            if not self.reading:
                return

    async def get(self) -> Any:
        """The next message. Raises what `fail` was given, and ``EOFError`` after the last message."""
        message = await self._messages.get()
        self._room.release()
        if isinstance(message, BaseException):
            self._messages.put_nowait(message)
            raise message
        return message

    def fail(self, error: BaseException) -> None:
        """Nothing more will come, because of ``error``."""
        self._messages.put_nowait(error)

    def close(self) -> None:
        """Nothing more will come. Idempotent."""
        if not self._closed.is_set():
            self._closed.set()
            self._pass_on(EOFError("Codex closed its output"))

    def _pass_on(self, message: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the event loop is closed: nobody is left to be told
            self._loop.call_soon_threadsafe(self._messages.put_nowait, message)
