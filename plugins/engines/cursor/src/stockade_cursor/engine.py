"""`CursorEngine`: one conversation with Cursor's agent. Standard library only at import."""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from stockade.contracts.engine import Emitter, Engine, EngineContext
from stockade.errors import EngineFailed, ResumeFailed, TurnFailed
from stockade.model.events import Notice
from stockade.model.turn import Outcome, Turn
from stockade_cursor import command
from stockade_cursor.bridge import Bridge
from stockade_cursor.endings import code_in, failure

if TYPE_CHECKING:
    from cursor_sdk import AsyncAgent, AsyncRun, RunResult

    from stockade.model.finding import Finding
    from stockade_cursor.agents import Connection
    from stockade_cursor.translate import Translator

T = TypeVar("T")

_INTERRUPT = 1.0
"""Seconds for Cursor to end a cancelled run itself; then its bridge is killed."""
_LINGER = 1.0
"""Seconds for the stream to end after the result; what is still at work then ends with the bridge (F12)."""


class _Interrupted(Exception):
    """The running turn was interrupted. Never leaves this module."""


class CursorEngine(Engine):
    """Cursor's agent behind a live bridge, kept between turns.

    The bridge is replaced, and the agent resumed, when a turn needs other options (model, file access, MCP servers,
    directories), after every turn that did not complete, and after one that left something at work.
    """

    API_VERSION = (1, 0)
    ROUTES: ClassVar[Mapping[str, str]] = {"cursor": "connect"}
    PROVIDER_KEYS: ClassVar[tuple[str, ...]] = (command.KEY,)

    def __init__(self, context: EngineContext) -> None:
        super().__init__(context)
        self._native = ""
        self._bridge: Bridge | None = None
        self._connection: Connection | None = None
        self._agent: AsyncAgent | None = None
        self._run: AsyncRun | None = None
        self._running = False
        self._interrupted = asyncio.Event()

    @classmethod
    def preload(cls) -> None:
        """Import the SDK: it takes about as long as a turn."""
        importlib.import_module("stockade_cursor.agents")

    @classmethod
    def diagnose(cls) -> Sequence[Finding]:
        """Whether there is a bridge to start; it is not started."""
        from stockade.model.finding import Finding

        try:
            return (Finding("bridge", "ok", command.find_bridge(os.environ)),)
        except EngineFailed as error:
            return (Finding("bridge", "fail", error.message, error.hint),)

    async def run_turn(self, turn: Turn, emit: Emitter) -> Outcome:
        """See `Engine.run_turn`. Without a key it is `AuthFailed`, an unknown ``turn.resume`` is `ResumeFailed`."""
        self._interrupted.clear()
        self._running = True
        keep = False
        try:
            outcome, keep = await self._turn(turn, emit)
            return outcome
        except _Interrupted:
            return Outcome("cancelled", "cancelled", "The turn was cancelled", native_session=self._native)
        finally:
            self._running, self._run = False, None
            if not keep or self._interrupted.is_set():
                await self._drop(0.5)

    async def interrupt(self) -> None:
        """See `Engine.interrupt`. Cursor is asked to cancel its run; before there is one, the bridge is killed."""
        if not self._running or self._interrupted.is_set():
            return
        self._interrupted.set()
        if self._bridge is None:
            return
        if self._run is not None and self._connection is not None:
            asyncio.get_running_loop().call_later(_INTERRUPT, self._bridge.kill)
            try:
                await asyncio.wait_for(self._connection.cancel(self._run), _INTERRUPT)
            except Exception as error:  # whatever kept it from being cancelled: the bridge is killed soon
                self.context.log.debug("Cursor did not cancel its run: %s", type(error).__name__)
        else:
            self._bridge.kill()

    async def aclose(self) -> None:
        """See `Engine.aclose`. The bridge has time to close its store."""
        await self._drop(2.0)

    # -- a turn ----------------------------------------------------------------------------------

    async def _turn(self, turn: Turn, emit: Emitter) -> tuple[Outcome, bool]:
        """The outcome, and whether the bridge can serve the next turn."""
        key = command.api_key(self.context)
        try:
            agent = await self._connected(turn, key)
            return await self._converse(agent, turn, emit)
        except (_Interrupted, TurnFailed):
            raise
        except Exception as error:
            # Everything the SDK and the pipes raise is mapped here, and only here.
            if self._interrupted.is_set():
                raise _Interrupted from error
            raise await self._failed(error) from error

    async def _connected(self, turn: Turn, key: str) -> AsyncAgent:
        launch = command.launch(self.context, turn)
        if self._agent is not None and self._bridge is not None:
            if self._bridge.alive and self._bridge.launch == launch:
                return self._agent
            await self._drop(2.0)
        launch.prepare()
        # The bridge boots while the SDK is imported: the first turn waits for the longer of the two.
        self._bridge = await Bridge.start(launch)
        try:
            await self._unless_interrupted(asyncio.to_thread(self.preload))
        except ImportError as error:
            raise EngineFailed(f"cursor-sdk cannot be imported: {error}", hint=command.INSTALL_HINT) from error
        from stockade_cursor.agents import Connection

        greeting = await self._unless_interrupted(self._bridge.greeting())
        self._connection = Connection(greeting)
        self._agent = await self._unless_interrupted(self._open(self._connection, launch, key, turn.resume or ""))
        self._native = self._agent.agent_id
        return self._agent

    async def _open(self, connection: Connection, launch: command.Launch, key: str, resume: str) -> AsyncAgent:
        """The session's agent: resumed by its id, else created."""
        from cursor_sdk import AgentNotFoundError, ConfigurationError

        native = self._native or resume
        try:
            return await connection.open(native, launch, key)
        except AgentNotFoundError as error:
            raise ResumeFailed(
                f"Cursor has no agent {native}", hint="Start a new session, or bring back the state dir."
            ) from error
        except ConfigurationError as error:
            raise EngineFailed(
                f"Cursor refuses these options: {error.message}",
                hint="Its read-only and workspace-write need user namespaces and Landlock where the agent runs."
                if launch.permissions.policy
                else "",
            ) from error

    async def _converse(self, agent: AsyncAgent, turn: Turn, emit: Emitter) -> tuple[Outcome, bool]:
        from stockade_cursor.translate import Translator

        assert self._connection is not None
        translator = Translator(turn.model or (agent.model.id if agent.model else ""))
        run, busy = await self._unless_interrupted(self._connection.send(agent, turn.message))
        self._run = run
        if busy:
            await emit(Notice("Cursor was still busy with an earlier run, which was cancelled", "warning"))
        events = run.events()
        async for message in events:
            for event in translator.events(message):
                await emit(event)
            if translator.result is not None:
                outcome = self._outcome(translator.result, translator, run)
                return outcome, await self._connection.finished(events, _LINGER) and outcome.status == "completed"
        raise EngineFailed("Cursor ended the stream without a result")

    def _outcome(self, result: RunResult, translator: Translator, run: AsyncRun) -> Outcome:
        from stockade_cursor.translate import usage

        used = usage(run.usage)
        if result.status == "finished":
            return Outcome("completed", usage=used, native_session=self._native)
        if self._interrupted.is_set():
            return Outcome("cancelled", "cancelled", "The turn was cancelled", "", used, self._native)
        message = result.error_message or translator.error or f"Cursor's run ended as {result.status}"
        error = failure(result.error_code or code_in(message), message)
        return Outcome("failed", error.code, error.message, error.hint, used, self._native)

    async def _failed(self, error: Exception) -> TurnFailed:
        """Why there is no result."""
        from cursor_sdk import CursorSDKError

        code = (error.proto_error_code or error.code or "") if isinstance(error, CursorSDKError) else ""
        message = error.message if isinstance(error, CursorSDKError) else f"{type(error).__name__}: {error}"
        if self._bridge is None:
            return failure(code, f"Cursor's bridge could not be started: {message}")
        if not code:
            await self._bridge.settled()
            if self._bridge.exit_code is not None:
                return self._bridge.failed("Cursor's bridge ended without a result")
        return failure(code, f"Cursor could not be used: {message}", self._bridge.stderr_tail())

    # -- parts -----------------------------------------------------------------------------------

    async def _unless_interrupted(self, work: Coroutine[Any, Any, T]) -> T:
        """``await work``, or `_Interrupted` as soon as the turn is interrupted."""
        task = asyncio.ensure_future(work)
        stop = asyncio.ensure_future(self._interrupted.wait())
        try:
            await asyncio.wait((task, stop), return_when=asyncio.FIRST_COMPLETED)
            if self._interrupted.is_set():
                raise _Interrupted
            return await task
        finally:
            stop.cancel()
            if not task.done():
                task.cancel()
                await asyncio.wait((task,), timeout=_INTERRUPT)

    async def _drop(self, grace: float) -> None:
        """End the bridge and what it started, then forget the client. Idempotent."""
        bridge, connection = self._bridge, self._connection
        self._bridge = self._connection = self._agent = None
        if bridge is not None:
            await bridge.close(grace)
        if connection is not None:
            await connection.aclose()
