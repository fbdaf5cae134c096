"""An engine under test, held as the inside program holds it: one object a session, one task a turn."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from stockade.contracts.engine import Engine, EngineContext
from stockade.errors import EngineFailed, TurnFailed
from stockade.inside import tree
from stockade.inside.proc import Process
from stockade.model.events import Event, Text
from stockade.model.turn import FileAccess, Outcome, Turn
from stockade.runtime.environment import sandbox_environment
from stockade.testing.bounds import until
from stockade.testing.rehearsal import Rehearsal

E = TypeVar("E")

_turns = itertools.count(1)


class Run:
    """A turn under way, or done. ``late`` are the events that came after `Engine.run_turn` had returned."""

    def __init__(self, engine: Engine, turn: Turn, watch: Callable[[], object]) -> None:
        self.turn = turn
        self.events: list[Event] = []
        self.late: list[Event] = []
        self.returned: object = None
        self.error: BaseException | None = None
        self.emitting = self.most_emitting = 0
        self._watch = watch
        self.task = asyncio.create_task(self._run(engine))

    async def _run(self, engine: Engine) -> None:
        try:
            self.returned = await engine.run_turn(self.turn, self._emit)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self.error = error

    async def _emit(self, event: Event) -> None:
        (self.late if self.task.done() else self.events).append(event)
        self._watch()
        self.emitting += 1
        self.most_emitting = max(self.emitting, self.most_emitting)
        # The kernel is never quicker than this.
        await asyncio.sleep(0)
        self.emitting -= 1

    @property
    def outcome(self) -> Any:
        """As the inside program makes it: what was returned, or the ending that was raised. `Outcome` or alike."""
        if isinstance(self.error, TurnFailed):
            status = "cancelled" if self.error.code == "cancelled" else "failed"
            return Outcome(status, self.error.code, self.error.message, self.error.hint)  # type: ignore[arg-type]
        if self.error is not None:
            return Outcome("failed", EngineFailed.code, repr(self.error))
        return self.returned

    def of(self, kind: type[E]) -> list[E]:
        """The events of this kind."""
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def text(self) -> str:
        """What the agent said."""
        return "".join(event.text for event in self.of(Text))

    async def ends_within(self, seconds: float) -> bool:
        """Wait for the end; whether it came."""
        await asyncio.wait({self.task}, timeout=seconds)
        return self.task.done()


class Session:
    """One session of the engine, with a home, a workspace and an environment as the kernel makes them."""

    def __init__(
        self, engine: type[Engine], root: Path, name: str, variables: Mapping[str, str], host: Mapping[str, str]
    ) -> None:
        state = root / "state"
        self.scope = tree.new_scope()
        environment = sandbox_environment(host, state, "kit", variables)
        self.context = EngineContext(
            session=name,
            home=state / "engines" / "kit" / "person",
            workspace=root / "workspace",
            tier=0,
            environment=environment | {tree.SCOPE: self.scope},
            log=logging.getLogger("stockade.engine.kit"),
        )
        for folder in (self.context.home, self.context.workspace, state / "home", state / "tmp"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._class = engine
        self.engine = engine(self.context)
        self._find = tree.scope_finder(self.scope)

    def start(
        self,
        message: str,
        rehearsal: Rehearsal | None,
        *,
        file_access: FileAccess = "read-only",
        model: str | None = None,
        resume: str | None = None,
        mcp_servers: Mapping[str, Mapping[str, Any]] | None = None,
        watch: Callable[[], object] = lambda: None,
    ) -> Run:
        """Begin a turn; ``watch`` is called at each event of it."""
        turn = Turn(
            id=f"turn-{next(_turns)}",
            session=self.context.session,
            message=message,
            model=model,
            file_access=file_access,
            routes=rehearsal.routes if rehearsal is not None else {},
            mcp_servers=mcp_servers or {},
            resume=resume,
        )
        return Run(self.engine, turn, watch)

    async def renew(self) -> None:
        """Close the engine, and make another, as in a sandbox that was made again."""
        await self.engine.aclose()
        self.engine = self._class(self.context)

    def processes(self) -> Mapping[int, Process]:
        """What the engine started and what runs."""
        return self._find()

    async def is_empty_within(self, seconds: float) -> bool:
        """Wait until no process of the session runs; whether that came true."""
        return await until(lambda: not self.processes(), seconds)

    async def end(self, run: Run, seconds: float) -> None:
        """Interrupt a turn and make sure that it is over, whatever the engine makes of that."""
        try:
            async with asyncio.timeout(seconds):
                await self.engine.interrupt()
        except Exception:
            self.context.log.debug("not interrupted", exc_info=True)
        if not await run.ends_within(seconds):
            run.task.cancel()
            await asyncio.wait({run.task}, timeout=seconds)

    async def close(self, seconds: float) -> None:
        """After a test: nothing of the session is left, and no fault of the engine shows here."""
        try:
            async with asyncio.timeout(seconds):
                await self.engine.aclose()
        except Exception:
            self.context.log.debug("not closed", exc_info=True)
        if self.processes():
            await tree.end(self._find, grace=0)
