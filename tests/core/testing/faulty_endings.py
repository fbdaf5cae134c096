"""Engines that end badly, or touch what is not theirs. Standard library only, as an engine's module has to be."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from typing import ClassVar

from stockade.contracts.engine import Emitter
from stockade.errors import EngineFailed
from stockade.model.events import ToolEnd
from stockade.model.turn import Outcome, Turn
from tests.core.testing.faults import fails
from tests.core.testing.toy_engine import Item, Model, Toy

# -- failures --------------------------------------------------------------------------------------------


@fails("test_a_refused_credential_is_auth")
class NoAuth(Toy):
    def failure(self, status: int) -> Exception:
        return EngineFailed(f"status {status}")


@fails("test_a_failing_model_is_engine_failed")
class AlwaysCompletes(Toy):
    async def answer(self, turn: Turn, emit: Emitter) -> Outcome:
        try:
            return await super().answer(turn, emit)
        except EngineFailed:
            if not turn.routes:
                raise
            return Outcome("completed", native_session=self.native)


@fails("test_failures_have_known_codes")
class OwnCodes(Toy):
    async def answer(self, turn: Turn, emit: Emitter) -> Outcome:
        try:
            return await super().answer(turn, emit)
        except EngineFailed as error:
            if "status 4" not in error.message:
                raise
            return Outcome("failed", "rate_limit_error", error.message)


@fails("test_a_missing_route_says_what_to_do")
class KeyErrors(Toy):
    def model(self, turn: Turn) -> Model:
        return Model.by_url[turn.routes["model"].url]


@fails("test_no_error_is_left_to_the_loop")
class LeavesErrors(Toy):
    async def answer(self, turn: Turn, emit: Emitter) -> Outcome:
        async def fail() -> None:
            raise RuntimeError("the input stream is closed")

        if turn.message == "go":
            asyncio.ensure_future(fail())  # noqa: RUF006
        return await super().answer(turn, emit)


# -- interrupts and ends ---------------------------------------------------------------------------------


@fails("test_an_interrupt_ends_a_model_call")
class WaitsForTheModel(Toy):
    commanding = False

    async def shell(self, command: str) -> str:
        self.commanding = True
        return await super().shell(command)

    async def interrupt(self) -> None:
        if self.commanding:
            await super().interrupt()


@fails("test_an_interrupt_ends_a_command")
class WaitsForCommands(Toy):
    commanding = False

    async def shell(self, command: str) -> str:
        self.commanding = True
        return await super().shell(command)

    async def interrupt(self) -> None:
        if not self.commanding:
            await super().interrupt()


@fails("test_no_process_is_left_after_an_interrupt")
class LeaksACommand(Toy):
    leaked: ClassVar[list[asyncio.subprocess.Process]] = []

    def end_commands(self) -> None:
        if self.interrupted.is_set():
            # Kept for ever, because asyncio kills the process of an object that nobody has any more.
            self.leaked.extend(self.commands)
            self.commands.clear()
        super().end_commands()


@fails("test_a_second_interrupt_does_no_harm")
class InterruptsOnce(Toy):
    async def interrupt(self) -> None:
        if self.running and self.interrupted.is_set():
            raise RuntimeError("it is being interrupted")
        await super().interrupt()


@fails("test_an_interrupt_between_turns_does_nothing")
class RemembersInterrupts(Toy):
    asked = False

    async def run_turn(self, turn: Turn, emit: Emitter) -> Outcome:
        asked, self.asked = self.asked, False
        return Outcome("cancelled", "cancelled") if asked else await super().run_turn(turn, emit)

    async def interrupt(self) -> None:
        self.asked = not self.running
        await super().interrupt()


@fails("test_the_turn_after_an_interrupt_works")
class NamesNoConversation(Toy):
    async def run_turn(self, turn: Turn, emit: Emitter) -> Outcome:
        outcome = await super().run_turn(turn, emit)
        return Outcome("cancelled", "cancelled", native_session="lost") if outcome.status == "cancelled" else outcome


@fails("test_closing_ends_every_process")
class LeavesADaemon(Toy):
    async def aclose(self) -> None:
        if self.conversation and not self.interrupted.is_set():
            daemon = subprocess.Popen(["tail", "-f", "/dev/null"], env=self.environment())
            daemon.returncode = 0  # so that it may outlive this object without a warning
        await super().aclose()


@fails("test_closing_is_idempotent")
class ClosesOnce(Toy):
    closed = False

    async def aclose(self) -> None:
        if self.closed:
            raise RuntimeError("it is closed")
        self.closed = True
        await super().aclose()


# -- boundaries ------------------------------------------------------------------------------------------


@fails("test_the_hosts_environment_stays_as_it_is")
class ChangesTheEnvironment(Toy):
    async def answer(self, turn: Turn, emit: Emitter) -> Outcome:
        os.environ["TOY_TURN"] = turn.id
        try:
            return await super().answer(turn, emit)
        finally:
            os.environ.pop("TOY_TURN", None)


@fails("test_commands_get_the_sessions_environment")
class InheritsTheEnvironment(Toy):
    def environment(self) -> dict[str, str]:
        return os.environ | super().environment()


@fails("test_the_message_is_on_no_command_line")
class MessageAsArgument(Toy):
    async def answer(self, turn: Turn, emit: Emitter) -> Outcome:
        agent = await asyncio.create_subprocess_exec(
            "sh", "-c", "read line", "agent", turn.message[:1000], stdin=subprocess.PIPE, env=self.environment()
        )
        try:
            return await super().answer(turn, emit)
        finally:
            agent.kill()
            await agent.wait()


@fails("test_it_writes_only_where_it_may")
class WritesAtHome(Toy):
    def store(self) -> None:
        super().store()
        if "HOME" in os.environ and "pytest" in os.environ["HOME"]:
            with open(os.path.join(os.environ["HOME"], ".toy.json"), "w") as file:
                file.write("{}")


@fails("test_nobody_is_asked")
class AsksAPerson(Toy):
    async def shell(self, command: str) -> str:
        if sys.stdin.isatty():
            try:
                print("Allow?", sys.stdin.readline())
            except EOFError:
                print("nobody answers")
        return await super().shell(command)


@fails("test_nobody_is_asked")
class InheritsTheInput(Toy):
    def input(self) -> int | None:
        return None


@fails("test_read_only_writes_nothing")
class AlwaysWrites(Toy):
    async def use(self, identity: str, item: Item, turn: Turn) -> ToolEnd:
        end = await super().use(identity, item, turn)
        if end.is_error and "write" in item:
            (self.context.workspace / item["write"]["path"]).write_text("")
        return end


@fails("test_read_only_refuses_aloud")
class RefusesInSilence(Toy):
    async def use(self, identity: str, item: Item, turn: Turn) -> ToolEnd:
        end = await super().use(identity, item, turn)
        return ToolEnd(identity, "done") if end.is_error else end


@fails("test_workspace_write_writes_in_the_workspace")
class WritesElsewhere(Toy):
    def may(self, item: Item, turn: Turn) -> bool:
        return turn.file_access == "full"
