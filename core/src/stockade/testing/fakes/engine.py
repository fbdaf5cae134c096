"""Engines without an agent."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import ClassVar

from stockade.contracts.engine import Emitter, Engine, EngineContext
from stockade.model.events import Event, Text
from stockade.model.turn import Outcome, Turn


class NullEngine(Engine):
    """An engine by name only: the memory driver never runs it."""

    async def run_turn(self, turn: Turn, emit: Emitter) -> Outcome:
        return Outcome("completed")


class ScriptedEngine(Engine):
    """Plays `script` in every turn: sends its events in order, and ends as its last item says.

    An `Outcome` is returned, an exception raised. A script without such an end waits for the interrupt. Subclass
    it for a script of your own. It runs wherever an engine runs; ``turns`` are those that it was given.
    """

    API_VERSION = (1, 0)

    script: ClassVar[Sequence[Event | Outcome | Exception]] = (Text("done"), Outcome("completed"))

    def __init__(self, context: EngineContext) -> None:
        super().__init__(context)
        self.turns: list[Turn] = []
        self._interrupted: asyncio.Event | None = None

    async def run_turn(self, turn: Turn, emit: Emitter) -> Outcome:
        self.turns.append(turn)
        self._interrupted = asyncio.Event()
        try:
            for step in self.script:
                if isinstance(step, Outcome):
                    return step
                if isinstance(step, Exception):
                    raise step
                if self._interrupted.is_set():
                    break
                await emit(step)
            await self._interrupted.wait()
            return Outcome("cancelled", code="cancelled")
        finally:
            self._interrupted = None

    async def interrupt(self) -> None:
        if self._interrupted is not None:
            self._interrupted.set()
