"""The agent: asks the model, runs the commands that it wants, until it has an answer.

Standard library only, here and in what this imports: an engine is loaded inside the sandbox.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from stockade import Engine, EngineContext, Outcome
from stockade.contracts.engine import Emitter
from stockade.errors import Cancelled, EngineFailed, ResumeFailed
from stockade.model.events import Notice, Started, Text, ToolEnd, ToolStart
from stockade.model.turn import Turn, Usage
from stockade_acme import model, shell

NEEDS_FULL = "commands cannot be confined by this engine: it runs them with the file access full only"


class AcmeEngine(Engine):
    """One conversation. It speaks Anthropic's Messages API on the route ``model``."""

    API_VERSION: ClassVar[tuple[int, int]] = (1, 0)
    ROUTES: ClassVar[Mapping[str, str]] = {"model": "anthropic"}

    def __init__(self, context: EngineContext) -> None:
        super().__init__(context)
        self._native = secrets.token_hex(8)
        self._messages: list[dict[str, Any]] = []
        self._answering: asyncio.Task[Outcome] | None = None
        self._interrupted = False

    async def run_turn(self, turn: Turn, emit: Emitter) -> Outcome:
        """See `Engine.run_turn`."""
        if turn.resume not in (None, self._native):
            self._recall(turn.resume or "")
        if "model" not in turn.routes or not turn.model:
            raise EngineFailed("there is no model", hint="Install a plugin with the route model, and name a model.")
        self._interrupted = False
        self._answering = asyncio.ensure_future(self._answer(turn, turn.model, emit))
        try:
            return await self._answering
        except asyncio.CancelledError:
            if not self._interrupted:
                raise
            # The next turn goes on from the last that was completed, if there is one.
            native = self._native if self._messages else ""
            return Outcome("cancelled", Cancelled.code, "the turn was interrupted", native_session=native)
        finally:
            self._answering = None

    async def interrupt(self) -> None:
        """See `Engine.interrupt`. A command that runs ends with the turn."""
        if self._answering is not None:
            self._interrupted = True
            self._answering.cancel()

    async def _answer(self, turn: Turn, name: str, emit: Emitter) -> Outcome:
        await emit(Started("acme", name))
        if turn.file_access == "workspace-write":
            await emit(Notice(NEEDS_FULL, "warning"))
        messages = [*self._messages, {"role": "user", "content": turn.message}]
        tools = [shell.TOOL] if turn.file_access == "full" else []
        usage = Usage()
        while True:
            request = {"model": name, "max_tokens": 8192, "messages": messages, "tools": tools}
            reply = await model.ask(turn.routes["model"], request)
            usage = Usage(usage.input_tokens + reply.input_tokens, usage.output_tokens + reply.output_tokens)
            messages.append({"role": "assistant", "content": reply.content})
            for block in reply.content:
                if block["type"] == "text":
                    await emit(Text(block["text"]))
            calls = [block for block in reply.content if block["type"] == "tool_use"]
            if not calls:
                break
            messages.append({"role": "user", "content": [await self._call(call, turn, emit) for call in calls]})
        if not reply.content:
            raise EngineFailed("the model ended without an answer", hint="Try again, or another model.")
        self._messages = messages
        self._store()
        return Outcome("completed", usage=usage, native_session=self._native)

    async def _call(self, call: Mapping[str, Any], turn: Turn, emit: Emitter) -> dict[str, Any]:
        """One tool call, as the model is told of it. A model may call what it was never offered."""
        await emit(ToolStart(call["id"], call["name"], call["input"]))
        if call["name"] == shell.TOOL["name"] and turn.file_access == "full":
            output, failed = await shell.run(call["input"]["command"], self.context)
        else:
            output, failed = f"{call['name']} is refused: {NEEDS_FULL}", True
        await emit(ToolEnd(call["id"], output, failed))
        return {"type": "tool_result", "tool_use_id": call["id"], "content": output, "is_error": failed}

    def _path(self) -> Path:
        return self.context.home / f"{self._native}.json"

    def _store(self) -> None:
        new = self._path().with_suffix(".new")
        new.write_text(json.dumps(self._messages))
        os.replace(new, self._path())

    def _recall(self, native: str) -> None:
        try:
            if not re.fullmatch("[0-9a-f]{16}", native):
                raise ValueError("no id of ours")
            self._native = native
            self._messages = json.loads(self._path().read_text())
        except (OSError, ValueError) as error:
            raise ResumeFailed(f"no conversation {native!r} can be read", hint="Begin a new session.") from error
