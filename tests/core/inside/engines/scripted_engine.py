"""An engine for the tests: does what the message, a JSON object, says. Standard library only."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from stockade import errors
from stockade.contracts.engine import Emitter, Engine, EngineContext
from stockade.model.events import Text
from stockade.model.turn import Outcome, Turn, Usage

_numbers = itertools.count(1)


class Scripted(Engine):
    """Each key of the message is an act, done in the order of the message."""

    def __init__(self, context: EngineContext) -> None:
        super().__init__(context)
        self.number = next(_numbers)
        self.turns = 0
        self.asked = asyncio.Event()
        self.closed = self.context.workspace / f"closed-{self.number}"

    @classmethod
    def preload(cls) -> None:
        if "STOCKADE_TEST_PRELOADED" in os.environ:
            Path(os.environ["STOCKADE_TEST_PRELOADED"]).write_text("preloaded")

    async def run_turn(self, turn: Turn, emit: Emitter) -> Outcome:
        self.turns += 1
        self.asked.clear()
        outcome: Any = Outcome("completed", usage=Usage(input_tokens=3, output_tokens=5))
        for act, value in json.loads(turn.message).items():
            outcome = await getattr(self, f"do_{act}")(value, turn, emit) or outcome
        return outcome  # type: ignore[no-any-return]

    async def interrupt(self) -> None:
        self.asked.set()

    async def aclose(self) -> None:
        self.closed.write_text("closed")

    async def do_say(self, value: Any, turn: Turn, emit: Emitter) -> None:
        for text in [value] if isinstance(value, str) else value:
            await emit(Text(text))

    async def do_shout(self, value: int, turn: Turn, emit: Emitter) -> None:
        await emit(Text("A" * value))

    async def do_count(self, value: int, turn: Turn, emit: Emitter) -> None:
        for number in range(value):
            await emit(Text(str(number)))

    async def do_facts(self, value: Any, turn: Turn, emit: Emitter) -> None:
        facts = {
            "engine": self.number,
            "turns": self.turns,
            "session": self.context.session,
            "home": str(self.context.home),
            "workspace": str(self.context.workspace),
            "tier": self.context.tier,
            "environment": dict(self.context.environment),
            "cwd": os.getcwd(),
            "resume": turn.resume,
            "model": turn.model,
            "file_access": turn.file_access,
            "routes": {name: [endpoint.url, endpoint.key] for name, endpoint in turn.routes.items()},
            "modules": sorted(sys.modules),
        }
        await emit(Text(json.dumps(facts)))

    async def do_native(self, value: str, turn: Turn, emit: Emitter) -> Outcome:
        return Outcome("completed", native_session=value)

    async def do_fail(self, value: str, turn: Turn, emit: Emitter) -> Outcome:
        return Outcome("failed", code=value, message="as asked")

    async def do_raise(self, value: str, turn: Turn, emit: Emitter) -> None:
        if value == "SystemExit":
            sys.exit(7)
        if value in ("ValueError", "CancelledError"):
            raise {"ValueError": ValueError, "CancelledError": asyncio.CancelledError}[value]("as asked")
        raise getattr(errors, value)("as asked", hint="ask for less")

    async def do_give(self, value: Any, turn: Turn, emit: Emitter) -> Any:
        return value

    async def do_print(self, value: str, turn: Turn, emit: Emitter) -> None:
        print(value, flush=True)
        os.write(1, value.encode())
        subprocess.run(["printf", "%s", value], check=True)
        await emit(Text(repr(sys.stdin.read())))

    async def do_late(self, value: str, turn: Turn, emit: Emitter) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(0.01, lambda: asyncio.ensure_future(emit(Text(value))))

    async def do_stray(self, value: Any, turn: Turn, emit: Emitter) -> None:
        async def fail() -> None:
            raise RuntimeError("stray rejection")

        self.stray = asyncio.ensure_future(fail())
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        await asyncio.sleep(0)

    async def do_shell(self, value: str, turn: Turn, emit: Emitter) -> None:
        subprocess.Popen(["sh", "-c", value], env=dict(self.context.environment))

    async def do_await_file(self, value: str, turn: Turn, emit: Emitter) -> None:
        while True:
            if await asyncio.to_thread((self.context.workspace / value).exists):
                return

    async def do_until_interrupted(self, value: Any, turn: Turn, emit: Emitter) -> Outcome:
        await emit(Text("waiting"))
        await self.asked.wait()
        return Outcome("cancelled", code="cancelled", native_session=str(value), usage=Usage(input_tokens=9))

    async def do_ignore_everything(self, value: Any, turn: Turn, emit: Emitter) -> None:
        await emit(Text("waiting"))
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await emit(Text("not me"))

    async def do_fetch(self, value: str, turn: Turn, emit: Emitter) -> None:
        endpoint = turn.routes[value]
        reader, writer = await asyncio.open_connection("127.0.0.1", int(endpoint.url.rpartition(":")[2]))
        writer.write(endpoint.key.encode())
        writer.write_eof()
        await emit(Text((await reader.read()).decode()))
        writer.close()


class Other(Scripted):
    """Another engine for the same session."""


class FromTheFuture(Scripted):
    """Written for a contract that does not exist yet."""

    API_VERSION = (1, 99)


NOT_AN_ENGINE = "nothing"
