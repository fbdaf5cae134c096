"""Fixtures: an engine session on the real or on a fake bridge, and a fake backend."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from stockade.contracts.engine import EngineContext
from stockade.inside import proc
from stockade.model.events import Event, Notice, Text, Thinking, ToolEnd, ToolStart
from stockade.model.turn import Endpoint, Outcome, Turn
from stockade.testing.bounds import until
from stockade_cursor.engine import CursorEngine
from tests.cursor.backend import Backend, serve

KEY = "key_of_the_account_4711"
PLACEHOLDER = "placeholder"


@dataclass
class Session:
    """One session; `run` is one turn of it. ``events`` has those of the last turn."""

    context: EngineContext
    url: str
    engine: CursorEngine = field(init=False)
    events: list[Event] = field(default_factory=list)
    seen: asyncio.Condition = field(default_factory=asyncio.Condition)
    turns: Iterator[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.engine = CursorEngine(self.context)

    async def run(self, message: str = "go", **options: Any) -> Outcome:
        self.events.clear()
        routes = {"cursor": Endpoint(self.url, PLACEHOLDER)}
        turn = Turn(f"t{next(self.turns)}", self.context.session, message, routes=routes, **options)
        return await self.engine.run_turn(turn, self._emit)

    async def _emit(self, event: Event) -> None:
        async with self.seen:
            self.events.append(event)
            self.seen.notify_all()

    async def until(self, kind: type[Any]) -> None:
        """Wait for an event of this kind in the running turn."""
        async with self.seen:
            await self.seen.wait_for(lambda: bool(self.of(kind)))

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.of(Text))

    @property
    def thinking(self) -> str:
        return "".join(event.text for event in self.of(Thinking))

    @property
    def notices(self) -> list[str]:
        return [event.message for event in self.of(Notice)]

    @property
    def calls(self) -> dict[str, tuple[str, ToolEnd]]:
        """Name and end of each tool call, by its id."""
        ends = {event.id: event for event in self.of(ToolEnd)}
        return {event.id: (event.name, ends[event.id]) for event in self.of(ToolStart)}

    @property
    def home(self) -> Path:
        """The session's own folder in the engine's home."""
        (home,) = (path for path in self.context.home.iterdir() if path.is_dir())
        return home

    def processes(self) -> list[int]:
        """What runs of this session."""
        entry = f"STOCKADE_SCOPE={self.context.environment['STOCKADE_SCOPE']}".encode()
        return sorted(pid for pid in proc.snapshot() if proc.carries(pid, entry))

    async def ended(self) -> None:
        """Wait until nothing of this session runs."""
        assert await until(lambda: not self.processes(), 10), self.processes()

    async def renew(self) -> None:
        """A new engine object, as after the sandbox was made again."""
        await self.engine.aclose()
        self.engine = CursorEngine(self.context)


@pytest.fixture(autouse=True)
async def stray_errors() -> AsyncIterator[list[dict[str, Any]]]:
    """L18: nothing that the SDK leaves in the background may reach the loop's exception handler."""
    strays: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: strays.append(context))
    yield strays
    assert strays == []


@pytest.fixture
async def backend() -> AsyncIterator[Backend]:
    async with serve(Backend()) as served:
        yield served


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Where a session lives."""
    return tmp_path


@pytest.fixture
async def open_session(place: Path) -> AsyncIterator[Callable[..., Session]]:
    """Makes sessions; all of them are closed at the end, and none leaves a process."""
    sessions: list[Session] = []
    numbers = itertools.count()

    def open_one(
        url: str = "http://127.0.0.1:9", *, tier: int = 0, bridge: Path | None = None, key: str = KEY
    ) -> Session:
        workspace = place / "workspace"
        for folder in (workspace, place / "tmp"):
            folder.mkdir(exist_ok=True)
        environment = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        environment |= {"HOME": str(place / "home"), "TMPDIR": str(place / "tmp")}
        environment |= {"STOCKADE_SCOPE": f"cursor-{os.getpid()}-{place.name}-{next(numbers)}"}
        environment |= {"CURSOR_API_KEY": key} if key else {}
        environment |= {"CURSOR_SDK_BRIDGE_BIN": str(bridge)} if bridge else {}
        log = logging.getLogger("stockade.test")
        sessions.append(Session(EngineContext("s", place / "engine", workspace, tier, environment, log), url))
        return sessions[-1]

    yield open_one
    for session in sessions:
        await session.engine.aclose()
        await session.ended()


@pytest.fixture
def fake_bridge(tmp_path: Path) -> Callable[[str], Path]:
    """Writes an executable that behaves like the bridge, in one of the ways of fake_bridge.py."""

    def write(way: str) -> Path:
        path = tmp_path / f"bridge-{way}"
        source = Path(__file__).with_name("fake_bridge.py")
        path.write_text(f'#!/bin/sh\n"{sys.executable}" -I "{source}" {way} "$@"\n')
        path.chmod(0o755)
        return path

    return write


@pytest.fixture
async def session(backend: Backend, open_session: Callable[..., Session]) -> Session:
    """A session of the real bridge at tier 0, straight to the fake backend: no route between them."""
    return open_session(backend.url)
