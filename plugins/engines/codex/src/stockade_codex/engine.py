"""`CodexEngine`: one conversation with Codex. Standard library only at import."""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from stockade.contracts.engine import Emitter, Engine, EngineContext
from stockade.errors import EngineFailed, ResumeFailed, TurnFailed
from stockade.model.events import Notice
from stockade.model.turn import Outcome, Turn
from stockade_codex import command
from stockade_codex.endings import failure, unconfinable
from stockade_codex.permissions import APPROVALS, UNCONFINED, Permissions

if TYPE_CHECKING:
    from stockade.model.finding import Finding
    from stockade_codex.server import AppServer
    from stockade_codex.translate import Translator

T = TypeVar("T")

_INTERRUPT = 1.0
"""Seconds for Codex to end an interrupted turn itself; then its process is killed."""


class _Interrupted(Exception):
    """The running turn was interrupted. Never leaves this module."""


class CodexEngine(Engine):
    """Codex's app-server behind the SDK's client, kept between turns with its thread.

    The process is replaced, and the conversation resumed, when a turn needs another setup (model, file access, MCP
    servers, directories), and after every turn that did not complete.
    """

    API_VERSION = (1, 0)
    ROUTES: ClassVar[Mapping[str, str]] = {"model": "openai"}

    def __init__(self, context: EngineContext) -> None:
        super().__init__(context)
        self._native = ""
        self._model = ""
        self._setup: command.Setup | None = None
        self._server: AppServer | None = None
        self._permissions = UNCONFINED
        self._awaited: set[str] = set()
        self._translator: Translator | None = None
        self._running = False
        self._interrupted = asyncio.Event()

    @classmethod
    def preload(cls) -> None:
        """Import the SDK: it takes longer than a turn."""
        importlib.import_module("stockade_codex.server")
        importlib.import_module("stockade_codex.translate")

    @classmethod
    def diagnose(cls) -> Sequence[Finding]:
        """Whether there is a Codex to start; it is not started."""
        from stockade.model.finding import Finding

        try:
            return (Finding("Codex", "ok", command.find_cli(os.environ)),)
        except EngineFailed as error:
            return (Finding("Codex", "fail", error.message, error.hint),)

    async def run_turn(self, turn: Turn, emit: Emitter) -> Outcome:
        """See `Engine.run_turn`. An unknown ``turn.resume`` is `ResumeFailed`."""
        self._interrupted.clear()
        self._running = True
        completed = False
        try:
            outcome = await self._run(turn, emit)
            completed = outcome.status == "completed"
            return outcome
        except _Interrupted:
            return Outcome("cancelled", "cancelled", "The turn was cancelled", native_session=self._stored())
        finally:
            self._running = False
            self._translator = None
            if not completed or self._interrupted.is_set():
                await self._drop(0.5)

    async def interrupt(self) -> None:
        """See `Engine.interrupt`. Before the turn has begun there is nothing to ask: the process is killed."""
        if not self._running or self._interrupted.is_set():
            return
        self._interrupted.set()
        server = self._server
        if server is None:
            return
        if self._translator is None or not self._translator.turn:
            server.kill()
            return
        asyncio.get_running_loop().call_later(_INTERRUPT, server.kill)
        try:
            asking = asyncio.to_thread(server.turn_interrupt, self._native, self._translator.turn)
            await asyncio.wait_for(asking, _INTERRUPT)
        except Exception as error:  # whatever kept it from being asked: it is killed soon
            self.context.log.debug("Codex did not take the interrupt: %s", error)

    async def aclose(self) -> None:
        """See `Engine.aclose`. Codex has time to finish its rollout."""
        await self._drop(2.0)

    # -- a turn ----------------------------------------------------------------------------------

    async def _run(self, turn: Turn, emit: Emitter) -> Outcome:
        setup = command.setup(self.context, turn)
        try:
            server = await self._ready(setup, turn.resume or "", emit)
            return await self._converse(server, turn, emit)
        except (_Interrupted, TurnFailed):
            raise
        except Exception as error:
            # Everything the SDK and the pipes raise is mapped here, and only here.
            if self._interrupted.is_set():
                raise _Interrupted from error
            raise await self._failed(error) from error

    async def _ready(self, setup: command.Setup, resume: str, emit: Emitter) -> AppServer:
        if self._server is not None:
            if self._server.alive and self._setup == setup:
                return self._server
            await self._drop(2.0)
        resume = self._stored() or resume
        if resume and command.rollout(self.context, resume) is None:
            raise ResumeFailed(
                f"Codex has no conversation {resume}", hint="Start a new session, or bring back the state dir."
            )
        self._prepare(setup.launch)
        try:
            await self._in_thread(self.preload)
        except ImportError as error:
            raise EngineFailed(f"openai-codex cannot be imported: {error}", hint=command.INSTALL_HINT) from error
        from stockade_codex.server import AppServer

        self._setup, self._server = setup, AppServer(setup.launch)
        self._server.start()
        await self._in_thread(self._server.initialize)
        self._permissions = await self._confine(self._server, setup.permissions, emit)
        await self._in_thread(self._open, self._server, setup, resume)
        self._awaited = set(setup.servers)
        return self._server

    async def _confine(self, server: AppServer, wanted: Permissions, emit: Emitter) -> Permissions:
        """Try Codex's sandbox in the process that will use it, before any model call (F42, F44)."""
        if not wanted.probe:
            return wanted
        status, stderr = await self._in_thread(server.try_command, wanted.probe, self.context.workspace, wanted.policy)
        if status == 0:
            return wanted
        refusal = unconfinable(wanted.mode, status, stderr)
        if not wanted.relaxed:
            raise refusal
        await emit(Notice(f"{refusal.message}. Only the sandbox around Codex confines this turn.", "warning"))
        return UNCONFINED

    def _open(self, server: AppServer, setup: command.Setup, resume: str) -> None:
        """Start or resume the thread. Blocks."""
        from openai_codex.errors import InvalidRequestError

        params: dict[str, Any] = {
            "cwd": str(self.context.workspace),
            "approvalPolicy": APPROVALS,
            "sandbox": self._permissions.mode,
            "config": {"mcp_servers": dict(setup.servers)},
        }
        if setup.model:
            params["model"] = setup.model
        if not resume:
            started = server.thread_start(params)
            self._native, self._model = started.thread.id, started.model
            return
        try:
            resumed = server.thread_resume(resume, params | {"excludeTurns": True})
        except InvalidRequestError as error:
            raise ResumeFailed(str(error), hint="Start a new session.") from error
        self._native, self._model = resumed.thread.id, resumed.model

    async def _converse(self, server: AppServer, turn: Turn, emit: Emitter) -> Outcome:
        from stockade_codex.translate import Translator

        translator = self._translator = Translator(self._native, self._model, self._awaited)
        self._raise_if_interrupted()
        server.inbox.reading = True
        starting: asyncio.Task[None] | None = None
        try:
            while translator.ended is None:
                # Codex would wait a second for its MCP servers, and then ask the model without their tools (F41).
                if starting is None and not self._awaited:
                    starting = asyncio.create_task(self._ask(server, turn.message))
                for event in translator.events(await server.inbox.get()):
                    await emit(event)
            server.inbox.reading = False
            if translator.open:
                # Work after the outcome would belong to no turn.
                await self._in_thread(server.end_commands, self._native)
                for event in translator.unfinished():
                    await emit(event)
            return self._outcome(translator)
        finally:
            server.inbox.reading = False
            if starting is not None:
                starting.cancel()

    async def _ask(self, server: AppServer, message: str) -> None:
        """Begin the turn. Its messages are read meanwhile, or a flood of them would keep the answer out."""
        try:
            await asyncio.to_thread(server.begin, self._native, message, self._permissions.policy)
        except Exception as error:
            server.inbox.fail(error)

    def _outcome(self, translator: Translator) -> Outcome:
        ended, used = translator.ended, translator.usage
        assert ended is not None
        if ended.status.value == "completed":
            return Outcome("completed", usage=used, native_session=self._native)
        if self._interrupted.is_set():
            return Outcome("cancelled", "cancelled", "The turn was cancelled", "", used, self._stored())
        if ended.error is None:
            error = failure(None, f"Codex ended the turn with status {ended.status.value}")
        else:
            info = ended.error.codex_error_info
            error = failure(info.model_dump(by_alias=True, mode="json") if info else None, ended.error.message)
        return Outcome("failed", error.code, error.message, error.hint, used, self._stored())

    async def _failed(self, error: Exception) -> TurnFailed:
        """Why there is no result."""
        server = self._server
        if server is None or server.alive:
            return failure(None, f"Codex could not be used: {error}", server.stderr_tail() if server else "")
        status = await asyncio.to_thread(server.exit_code)
        what = f"Codex could not be started: {error}"
        if status is not None:
            what = f"Codex ended without a result (exit status {status})"
        return failure(None, what, server.stderr_tail())

    # -- the process -----------------------------------------------------------------------------

    def _prepare(self, launch: command.Launch) -> None:
        """Directories that Codex needs to start; private to the sandbox's user (L33, F48).

        A configuration file can only be one that an agent left there.
        """
        environment = dict(launch.environment)
        for name in ("CODEX_HOME", "HOME", "TMPDIR"):
            Path(environment[name]).mkdir(mode=0o700, parents=True, exist_ok=True)
        (command.config_dir(self.context) / "config.toml").unlink(missing_ok=True)

    def _stored(self) -> str:
        """The native session, once there is a rollout that a later process can resume."""
        return self._native if command.rollout(self.context, self._native) else ""

    async def _in_thread(self, call: Callable[..., T], *args: Any) -> T:
        """``call(*args)`` in a thread, or `_Interrupted` as soon as the turn is interrupted.

        The end of the process, which an interrupt brings, ends the thread's call too.
        """
        task = asyncio.ensure_future(asyncio.to_thread(call, *args))
        stop = asyncio.ensure_future(self._interrupted.wait())
        try:
            await asyncio.wait((task, stop), return_when=asyncio.FIRST_COMPLETED)
            self._raise_if_interrupted()
            return await task
        finally:
            stop.cancel()
            task.cancel()

    def _raise_if_interrupted(self) -> None:
        if self._interrupted.is_set():
            raise _Interrupted

    async def _drop(self, grace: float) -> None:
        """End the process and forget it. Idempotent."""
        server, self._server = self._server, None
        if server is not None:
            await asyncio.to_thread(server.close, grace)
