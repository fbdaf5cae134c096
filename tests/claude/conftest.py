"""Fixtures: an engine session against a scripted model, with the real or with a fake Claude Code."""

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
from stockade.model.events import Event, Notice, Text, ToolEnd, ToolStart
from stockade.model.turn import Endpoint, Outcome, Turn
from stockade_claude.engine import ClaudeEngine
from tests.claude.scripted_model import ScriptedModel, scripted_model


@dataclass
class Session:
    """One session; `run` is one turn of it. ``events`` has those of the last turn."""

    context: EngineContext
    url: str
    engine: ClaudeEngine = field(init=False)
    events: list[Event] = field(default_factory=list)
    seen: asyncio.Condition = field(default_factory=asyncio.Condition)
    turns: Iterator[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.engine = ClaudeEngine(self.context)

    async def run(self, message: str = "go", **options: Any) -> Outcome:
        self.events.clear()
        routes = {"model": Endpoint(self.url, "placeholder")}
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
    def notices(self) -> list[str]:
        return [event.message for event in self.of(Notice)]

    @property
    def calls(self) -> dict[str, tuple[str, ToolEnd]]:
        """Name and end of each tool call, by its id."""
        ends = {event.id: event for event in self.of(ToolEnd)}
        return {event.id: (event.name, ends[event.id]) for event in self.of(ToolStart)}

    def end(self, tool: str) -> ToolEnd:
        """The end of the only call of ``tool``."""
        (found,) = (end for name, end in self.calls.values() if name == tool)
        return found

    async def renew(self, **context: Any) -> None:
        """A new engine object, as after the sandbox was made again."""
        await self.engine.aclose()
        self.engine = ClaudeEngine(self.context)


@pytest.fixture(autouse=True)
async def stray_errors() -> AsyncIterator[list[dict[str, Any]]]:
    """L18: nothing that the SDK leaves in the background may reach the loop's exception handler."""
    strays: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: strays.append(context))
    yield strays
    assert strays == []


@pytest.fixture
async def model() -> AsyncIterator[ScriptedModel]:
    async with scripted_model() as served:
        yield served


@pytest.fixture
async def open_session(tmp_path: Path) -> AsyncIterator[Callable[..., Session]]:
    """Makes sessions; all of them are closed at the end, and none leaves a process."""
    sessions: list[Session] = []

    def open_one(url: str = "http://127.0.0.1:9", *, tier: int = 0, cli: Path | None = None) -> Session:
        workspace = tmp_path / "workspace"
        workspace.mkdir(exist_ok=True)
        environment = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        environment |= {"HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path / "tmp")}
        environment |= {"CLAUDE_CLI": str(cli)} if cli else {}
        log = logging.getLogger("stockade.test")
        sessions.append(Session(EngineContext("s", tmp_path / "engine", workspace, tier, environment, log), url))
        return sessions[-1]

    yield open_one
    for session in sessions:
        await session.engine.aclose()


@pytest.fixture
def fake_cli(tmp_path: Path) -> Callable[[str], Path]:
    """Writes an executable that behaves like Claude Code, in one of the ways of fake_cli.py."""

    def write(way: str) -> Path:
        path = tmp_path / f"claude-{way}"
        source = Path(__file__).with_name("fake_cli.py")
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I "{source}" {way} "$@"\n')
        path.chmod(0o755)
        return path

    return write


@pytest.fixture
async def session(model: ScriptedModel, open_session: Callable[..., Session]) -> Session:
    """A session of the real Claude Code at tier 0."""
    return open_session(model.url)


@pytest.fixture
def workspace(session: Session) -> Path:
    return session.context.workspace
