"""A small agent in one class, which keeps every promise of an engine. Faulty ones override a method of it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import secrets
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from stockade.contracts.engine import Emitter, Engine, EngineContext
from stockade.errors import AuthFailed, Cancelled, EngineFailed, ResumeFailed
from stockade.model.events import Event, Notice, Started, Text, Thinking, ToolEnd, ToolStart
from stockade.model.turn import Endpoint, Outcome, Turn, Usage
from stockade.testing.rehearsal import Rehearsal

Item = Mapping[str, Any]


class Model:
    """A scripted model in this process. Found by its URL, which no other process could."""

    by_url: ClassVar[dict[str, Model]] = {}

    def __init__(self, script: Sequence[Item]) -> None:
        self.rehearsal = Rehearsal({"model": Endpoint(f"toy://{secrets.token_hex(4)}", "key")})
        self._script = iter(script)
        self._last: Item = script[-1]

    async def ask(self, conversation: Sequence[str]) -> list[Item]:
        """The items of one reply."""
        self.rehearsal.calls.append(list(conversation))
        reply: list[Item] = []
        while not reply or "thinking" in reply[-1]:
            item = next(self._script, self._last)
            if "delay" in item:
                await asyncio.sleep(item["delay"])
            else:
                reply.append(item)
        return reply


@contextlib.asynccontextmanager
async def rehearse(script: Sequence[Item]) -> AsyncIterator[Rehearsal]:
    model = Model(script)
    url = model.rehearsal.routes["model"].url
    Model.by_url[url] = model
    try:
        yield model.rehearsal
    finally:
        del Model.by_url[url]


class Toy(Engine):
    """Plays the model's replies: text, thinking, shell commands and files."""

    API_VERSION = (1, 0)
    ROUTES: ClassVar[Mapping[str, str]] = {"model": "toy"}
    _numbers = itertools.count(1)

    def __init__(self, context: EngineContext) -> None:
        super().__init__(context)
        self.native = ""
        self.conversation: list[str] = []
        self.commands: list[asyncio.subprocess.Process] = []
        self.interrupted = asyncio.Event()
        self.running = False
        self.words = 0

    async def run_turn(self, turn: Turn, emit: Emitter) -> Outcome:
        self.interrupted.clear()
        self.running = True
        self.words = 0
        try:
            return await self.unless_interrupted(self.answer(turn, emit))
        finally:
            self.running = False
            self.end_commands()

    async def unless_interrupted(self, work: Any) -> Outcome:
        task, stop = asyncio.ensure_future(work), asyncio.ensure_future(self.interrupted.wait())
        try:
            await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                return Outcome("cancelled", Cancelled.code, native_session=self.native)
            return task.result()  # type: ignore[no-any-return]
        finally:
            for each in (task, stop):
                each.cancel()
            await asyncio.gather(task, stop, return_exceptions=True)

    async def answer(self, turn: Turn, emit: Emitter) -> Outcome:
        model = self.model(turn)
        self.recall(turn)
        await emit(Started("toy"))
        self.hear(turn)
        while True:
            calls: list[Item] = []
            for item in await model.ask(self.conversation):
                if "error" in item:
                    raise self.failure(item["error"]["status"])
                if "thinking" in item:
                    await self.think(item["thinking"], emit)
                elif "text" in item:
                    await self.say(item["text"], emit)
                else:
                    calls += item.get("tools", [item])
            if not calls:
                break
            await self.call(calls, turn, emit)
        self.store()
        return self.completed()

    def completed(self) -> Outcome:
        return Outcome(
            "completed", usage=Usage(len("".join(self.conversation)), self.words), native_session=self.native
        )

    # -- the model ---------------------------------------------------------------------------------------

    def model(self, turn: Turn) -> Model:
        if "model" not in turn.routes:
            raise EngineFailed("no route to the model", hint="Install a plugin that offers the route model.")
        return Model.by_url[turn.routes["model"].url]

    def failure(self, status: int) -> Exception:
        return AuthFailed("refused") if status == 401 else EngineFailed(f"status {status}")

    # -- the conversation --------------------------------------------------------------------------------

    def recall(self, turn: Turn) -> None:
        if self.native:
            return
        if turn.resume:
            self.native = turn.resume
            if not turn.resume.isalnum() or not self.path().exists():
                raise ResumeFailed(f"no conversation {turn.resume}", hint="Start a new session.")
            self.conversation = json.loads(self.path().read_text())
        else:
            self.native = secrets.token_hex(8)

    def path(self) -> Path:
        return self.context.home / f"{self.native}.json"

    def hear(self, turn: Turn) -> None:
        self.conversation.append(turn.message)
        self.store()

    def store(self) -> None:
        self.path().write_text(json.dumps(self.conversation))

    # -- answers -----------------------------------------------------------------------------------------

    async def think(self, text: str, emit: Emitter) -> None:
        await emit(Thinking(text))

    async def say(self, text: str, emit: Emitter) -> None:
        self.words += len(text)
        self.conversation.append(text)
        for event in self.pieces(text):
            await emit(event)

    def pieces(self, text: str) -> list[Event]:
        return [Text(text[i : i + 20]) for i in range(0, len(text), 20)]

    # -- tools -------------------------------------------------------------------------------------------

    async def call(self, calls: Sequence[Item], turn: Turn, emit: Emitter) -> None:
        ids = [f"call-{next(self._numbers)}" for _ in calls]
        for identity, item in zip(ids, calls, strict=True):
            await emit(ToolStart(identity, next(iter(item)), dict(item)))
        ends = await asyncio.gather(*(self.use(i, item, turn) for i, item in zip(ids, calls, strict=True)))
        for end in self.ordered(ends):
            if end.is_error:
                await self.refused(end, emit)
            self.conversation.append(end.output)
            await emit(end)

    def ordered(self, ends: list[ToolEnd]) -> list[ToolEnd]:
        return ends

    async def refused(self, end: ToolEnd, emit: Emitter) -> None:
        await emit(Notice(end.output, "warning"))

    async def use(self, identity: str, item: Item, turn: Turn) -> ToolEnd:
        if not self.may(item, turn):
            return ToolEnd(identity, f"File access is {turn.file_access}.", True)
        if "shell" in item:
            return ToolEnd(identity, await self.shell(item["shell"]))
        (self.context.workspace / item["write"]["path"]).write_text(item["write"]["content"])
        return ToolEnd(identity, "written")

    def may(self, item: Item, turn: Turn) -> bool:
        return turn.file_access != "read-only"

    async def shell(self, command: str) -> str:
        process = await asyncio.create_subprocess_exec(
            "sh",
            "-c",
            command,
            cwd=self.context.workspace,
            env=self.environment(),
            stdin=self.input(),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        self.commands.append(process)
        output, _ = await process.communicate()
        return output.decode()

    def environment(self) -> dict[str, str]:
        return dict(self.context.environment)

    def input(self) -> int | None:
        return asyncio.subprocess.DEVNULL

    def end_commands(self) -> None:
        for process in self.commands:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)

    # -- the end -----------------------------------------------------------------------------------------

    async def interrupt(self) -> None:
        if self.running:
            self.interrupted.set()

    async def aclose(self) -> None:
        self.end_commands()
        await asyncio.gather(*(process.wait() for process in self.commands))
        self.commands.clear()
