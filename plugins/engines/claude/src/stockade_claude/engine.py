"""`ClaudeEngine`: one conversation with Claude Code. Standard library only at import."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from stockade.contracts.engine import Emitter, Engine, EngineContext
from stockade.errors import EngineFailed, ResumeFailed, TurnFailed
from stockade.model.events import Unparsed
from stockade.model.turn import Outcome, Turn
from stockade_claude import command
from stockade_claude.endings import failure
from stockade_claude.permissions import Permissions, permissions
from stockade_claude.process import ClaudeProcess

if TYPE_CHECKING:
    from claude_agent_sdk import ClaudeSDKClient, Message, PermissionResult, ResultMessage, ToolPermissionContext

    from stockade.model.finding import Finding
    from stockade_claude.translate import Translator

T = TypeVar("T")

_INTERRUPT = 1.0
"""Seconds for Claude Code to end an interrupted turn itself; then its process is killed."""


class _Interrupted(Exception):
    """The running turn was interrupted. Never leaves this module."""


class ClaudeEngine(Engine):
    """Claude Code behind a live ``ClaudeSDKClient``, kept between turns.

    The process is replaced, and the conversation resumed, when a turn needs another command line or
    environment (model, file access, MCP servers, directories), and after every turn that did not complete.
    """

    API_VERSION = (1, 0)
    ROUTES: ClassVar[Mapping[str, str]] = {"model": "anthropic"}

    def __init__(self, context: EngineContext) -> None:
        super().__init__(context)
        self._native = ""
        self._process: ClaudeProcess | None = None
        self._client: ClaudeSDKClient | None = None
        self._permissions: Permissions | None = None
        self._denied: dict[str, str] = {}
        self._running = False
        self._querying = False
        self._interrupted = asyncio.Event()

    @classmethod
    def preload(cls) -> None:
        """Import the SDK: it takes longer than a turn."""
        importlib.import_module("stockade_claude.translate")

    @classmethod
    def diagnose(cls) -> Sequence[Finding]:
        """Whether there is a Claude Code to start; it is not started."""
        from stockade.model.finding import Finding

        try:
            return (Finding("Claude Code", "ok", command.find_cli(os.environ)),)
        except EngineFailed as error:
            return (Finding("Claude Code", "fail", error.message, error.hint),)

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
            self._running = self._querying = False
            if not completed or self._interrupted.is_set():
                await self._drop(0.5)

    async def interrupt(self) -> None:
        """See `Engine.interrupt`. Before the message was sent there is nothing to ask: the process is killed."""
        if not self._running or self._interrupted.is_set():
            return
        self._interrupted.set()
        if self._process is None:
            return
        if self._client is not None and self._querying:
            asyncio.get_running_loop().call_later(_INTERRUPT, self._process.kill)
            try:
                await asyncio.wait_for(self._client.interrupt(), _INTERRUPT)
            except Exception as error:  # whatever kept it from being asked: it is killed soon
                self.context.log.debug("Claude Code did not take the interrupt: %s", error)
        else:
            self._process.kill()

    async def aclose(self) -> None:
        """See `Engine.aclose`. Claude Code has time to finish its transcript."""
        await self._drop(2.0)

    # -- a turn ----------------------------------------------------------------------------------

    async def _run(self, turn: Turn, emit: Emitter) -> Outcome:
        self._permissions = permissions(turn, self.context.workspace, self.context.tier)
        try:
            client = await self._connected(turn)
            return await self._converse(client, turn, emit)
        except (_Interrupted, TurnFailed):
            raise
        except Exception as error:
            # Everything the SDK and the pipes raise is mapped here, and only here.
            if self._interrupted.is_set():
                raise _Interrupted from error
            raise self._failed(error) from error
        finally:
            for noise in self._process.take_held() if self._process else ():
                await emit(Unparsed(str(noise.get("text", noise.get("head")))))

    async def _connected(self, turn: Turn) -> ClaudeSDKClient:
        launch = command.launch(self.context, turn, self._permissions_now())
        if self._client is not None and self._process is not None:
            if self._process.alive and self._process.launch == launch:
                return self._client
            await self._drop(2.0)
        resume = self._stored() or turn.resume or ""
        if resume and command.transcript(self.context, resume) is None:
            raise ResumeFailed(
                f"Claude Code has no conversation {resume}", hint="Start a new session, or bring back the state dir."
            )
        self._prepare(launch)
        try:
            self._client = await self._start(launch, resume)
        finally:
            launch.servers_file.unlink(missing_ok=True)
        return self._client

    async def _start(self, launch: command.Launch, resume: str) -> ClaudeSDKClient:
        # Claude Code boots while the SDK is imported: the first turn waits for the longer of the two.
        self._process = await ClaudeProcess.start(launch, resume=resume)
        try:
            await self._unless_interrupted(asyncio.to_thread(self.preload))
        except ImportError as error:
            raise EngineFailed(f"claude-agent-sdk cannot be imported: {error}", hint=command.INSTALL_HINT) from error
        from claude_agent_sdk import ResultError

        try:
            return await self._unless_interrupted(self._connect(self._process))
        except ResultError as error:
            if not resume:
                raise
            # Nothing was asked yet: a *result* at this point can only be about the resume.
            raise ResumeFailed(str(error), hint="Start a new session.") from error

    async def _connect(self, process: ClaudeProcess) -> ClaudeSDKClient:
        from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient

        options = ClaudeAgentOptions(can_use_tool=self._decide, verbatim_prompts=True)
        client = ClaudeSDKClient(options, transport=process)  # type: ignore[arg-type]  # has its methods, not its base
        await client.connect()
        return client

    async def _converse(self, client: ClaudeSDKClient, turn: Turn, emit: Emitter) -> Outcome:
        from claude_agent_sdk import ResultMessage

        from stockade_claude.translate import Translator, answers

        self._denied.clear()
        translator = Translator(turn.file_access, self._denied)
        prompt = str(uuid.uuid4())
        self._querying = True
        self._raise_if_interrupted()
        await client.query(_message(turn.message, prompt))
        async with aclosing(self._messages(client, emit)) as messages:
            async for message in messages:
                if isinstance(message, ResultMessage) and not answers(message, prompt):
                    continue
                for event in translator.events(message):
                    await emit(event)
                self._native = translator.native or self._native
                if isinstance(message, ResultMessage):
                    return self._outcome(message, translator)
        self._raise_if_interrupted()
        raise self._failed(None)

    async def _messages(self, client: ClaudeSDKClient, emit: Emitter) -> AsyncGenerator[Message, None]:
        """The SDK's messages; one that it cannot read is passed on as `Unparsed` (F22)."""
        from claude_agent_sdk._errors import MessageParseError

        while True:
            try:
                async for message in client.receive_messages():
                    yield message
                return
            except MessageParseError as error:
                await emit(Unparsed(json.dumps(error.data)[:64_000]))

    def _outcome(self, result: ResultMessage, translator: Translator) -> Outcome:
        from stockade_claude.translate import usage

        used = usage(result)
        if not result.is_error:
            return Outcome("completed", usage=used, native_session=self._native)
        if self._interrupted.is_set():
            return Outcome("cancelled", "cancelled", "The turn was cancelled", "", used, self._stored())
        message = result.result or "; ".join(result.errors or ()) or f"Claude Code ended with {result.subtype}"
        error = failure(result.api_error_status, translator.error, message)
        return Outcome("failed", error.code, error.message, error.hint, used, self._stored())

    def _failed(self, error: Exception | None) -> TurnFailed:
        """Why there is no result."""
        process = self._process
        if isinstance(error, TimeoutError):
            what = "Claude Code did not answer"
        elif process is None or process.exit_code is None:
            what = f"Claude Code could not be used: {error}"
        else:
            what = f"Claude Code ended without a result (exit status {process.exit_code})"
        return failure(None, "", what, process.stderr_tail() if process else "")

    # -- permissions -----------------------------------------------------------------------------

    async def _decide(self, tool: str, arguments: dict[str, Any], context: ToolPermissionContext) -> PermissionResult:
        """Answers in a person's place (L65). The notice is sent with the tool's result, in order."""
        from claude_agent_sdk import PermissionResultAllow, PermissionResultDeny

        if reason := self._permissions_now().refusal(tool, arguments):
            self._denied[context.tool_use_id or ""] = reason
            return PermissionResultDeny(message=reason)
        return PermissionResultAllow()

    def _permissions_now(self) -> Permissions:
        assert self._permissions is not None
        return self._permissions

    # -- the process -----------------------------------------------------------------------------

    def _prepare(self, launch: command.Launch) -> None:
        """Directories and the file that Claude Code needs to start; private to the sandbox's user (L33, F48)."""
        environment = dict(launch.environment)
        for name in ("CLAUDE_CONFIG_DIR", "HOME", "TMPDIR"):
            Path(environment[name]).mkdir(mode=0o700, parents=True, exist_ok=True)
        launch.servers_file.touch(mode=0o600)
        launch.servers_file.write_text(launch.servers)

    def _stored(self) -> str:
        """The native session, once there is a transcript that a later process can resume."""
        return self._native if command.transcript(self.context, self._native) else ""

    async def _unless_interrupted(self, work: Coroutine[Any, Any, T]) -> T:
        """``await work``, or `_Interrupted` as soon as the turn is interrupted."""
        task = asyncio.ensure_future(work)
        stop = asyncio.ensure_future(self._interrupted.wait())
        try:
            await asyncio.wait((task, stop), return_when=asyncio.FIRST_COMPLETED)
            self._raise_if_interrupted()
            return await task
        finally:
            stop.cancel()
            if not task.done():
                task.cancel()
                await asyncio.wait((task,), timeout=_INTERRUPT)

    def _raise_if_interrupted(self) -> None:
        if self._interrupted.is_set():
            raise _Interrupted

    async def _drop(self, grace: float) -> None:
        """End the process and forget the client. Idempotent."""
        client, process = self._client, self._process
        self._client = self._process = None
        if process is not None:
            # First the process: the SDK's own close would wait for it without a bound that we choose.
            await process.close(grace)
        if client is not None:
            await client.disconnect()


async def _message(text: str, identity: str) -> AsyncIterator[dict[str, Any]]:
    """Only the turn's message (L66), through standard input: argv holds 128 KiB a string."""
    yield {
        "type": "user",
        "message": {"role": "user", "content": text},
        "parent_tool_use_id": None,
        "uuid": identity,
    }
