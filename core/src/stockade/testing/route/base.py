"""What the tests of a route are given: connections to it, and a way to speak."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Protocol

import pytest
import pytest_asyncio

from stockade.contracts.route import Caller, Origin, Route
from stockade.model.authority import Token
from stockade.testing.bounds import until
from stockade.testing.capabilities import Kit
from stockade.testing.fakes.route import MemoryStream

WARRANT = "warrant-that-stays-outside"


class Dialogue(Protocol):
    """How a caller inside speaks to the route under test."""

    def request(self, key: str, payload: str) -> bytes:
        """The bytes of one request that presents ``key`` and carries ``payload``, ASCII letters and digits."""

    def answers(self, payload: str, answer: bytes) -> bool:
        """Whether ``answer``, what came back so far, is the whole and right answer to ``payload``.

        What is behind the route in the test should send the payload back: mixed-up answers show only so.
        """


@dataclass
class Call:
    """One connection under way. ``answer`` is what came back; `Call.task` ends when the route has served it."""

    stream: MemoryStream
    origin: Origin
    task: asyncio.Task[None]
    answer: bytearray = field(default_factory=bytearray)
    reader: asyncio.Task[None] | None = None

    async def read(self) -> None:
        """Take whatever comes, until the end."""
        while data := await self.stream.take():
            self.answer += data

    @property
    def failure(self) -> BaseException | None:
        """What the route raised, other than that the connection broke."""
        error = self.task.exception() if self.task.done() and not self.task.cancelled() else None
        return None if isinstance(error, ConnectionError) else error

    async def ends_within(self, seconds: float) -> bool:
        """Wait for the end; whether it came."""
        await asyncio.wait({self.task}, timeout=seconds)
        return self.task.done()


Connect = Callable[..., Call]


class RouteKit(Kit):
    """The fixtures of `RouteContract`, and how its tests ask."""

    dialect: str = ""
    """A dialect for which ``route`` is configured."""

    @pytest.fixture
    def route(self) -> Route:
        """The route under test, configured, new for each test. To be given."""
        raise NotImplementedError("give a fixture `route` that returns the route")

    @pytest.fixture
    def dialogue(self) -> Dialogue:
        """How to speak to it. To be given."""
        raise NotImplementedError("give a fixture `dialogue` with the methods of stockade.testing.route.Dialogue")

    @pytest.fixture
    def unconfigured(self) -> Route:
        """A route of the kind, without settings. To be given, unless ``preflight`` is not claimed."""
        raise NotImplementedError("give a fixture `unconfigured`, or say Capabilities(preflight=False)")

    @pytest_asyncio.fixture
    async def connect(self, route: Route) -> AsyncIterator[Connect]:
        """Opens connections to the route; all are over after the test."""
        calls: list[Call] = []

        def open_one(*, key: str | None = None, window: int = 64 * 1024) -> Call:
            number = len(calls)
            origin = Origin(
                sandbox=f"sb-{number}",
                session=f"session-{number}",
                route="kit",
                key=secrets.token_hex(16) if key is None else key,
                warranted=True,
                caller=Caller(turn=f"turn-{number}", token=Token(f"token-{number}", WARRANT)),
            )
            stream = MemoryStream(window)
            call = Call(stream, origin, asyncio.create_task(route.serve(stream, origin)))
            call.reader = asyncio.create_task(call.read())
            calls.append(call)
            return call

        yield open_one
        for call in calls:
            call.stream.break_off()
            call.task.cancel()
        tasks = {task for call in calls for task in (call.task, call.reader) if task is not None}
        if tasks:
            await asyncio.wait(tasks, timeout=self.patience)
        try:
            await route.aclose()
        except Exception:
            logging.getLogger("stockade.testing").debug("not closed", exc_info=True)

    async def ask(self, call: Call, dialogue: Dialogue, payload: str) -> bool:
        """Send a request with the connection's own key; whether the right answer came."""
        call.stream.say(dialogue.request(call.origin.key, payload))
        seen = -1

        def answered() -> bool:
            # Not at each piece of a long answer: it is looked at when no more has come for a moment.
            nonlocal seen
            grown, seen = len(call.answer) != seen, len(call.answer)
            return call.task.done() or (not grown and dialogue.answers(payload, bytes(call.answer)))

        return await until(answered, self.patience) and dialogue.answers(payload, bytes(call.answer))

    async def refuses(self, right: Call, calls: dict[str, Call], dialogue: Dialogue) -> None:
        """See that the route answers ``right``, and none of ``calls``, which have sent their request."""
        # By the time that the right caller has its answer, the others could have theirs.
        await self.ask(right, dialogue, "hello")
        for call in calls.values():
            call.stream.finish()
            await call.ends_within(self.patience)
        served = [what for what, call in calls.items() if dialogue.answers("hello", bytes(call.answer))]
        assert not served, f"served: {served}"
