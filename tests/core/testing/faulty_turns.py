"""Engines whose turns go wrong. Standard library only, as an engine's module has to be."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar

from stockade.contracts.engine import Emitter
from stockade.errors import EngineFailed
from stockade.model.events import Ended, Event, Text, ToolEnd
from stockade.model.finding import Finding
from stockade.model.turn import Outcome, Turn, Usage
from tests.core.testing.faults import fails
from tests.core.testing.toy_engine import Item, Toy

# -- the class -------------------------------------------------------------------------------------------


@fails("test_it_is_written_for_this_contract")
class FromTheFuture(Toy):
    API_VERSION = (2, 0)


@fails("test_diagnose_answers_with_findings")
class NoFix(Toy):
    @classmethod
    def diagnose(cls) -> Sequence[Finding]:
        return [Finding("agent", "fail", "it is not there")]


@fails("test_preload_works_in_a_thread")
class PreloadsInTheLoop(Toy):
    @classmethod
    def preload(cls) -> None:
        asyncio.get_running_loop()


# -- outcomes --------------------------------------------------------------------------------------------


class Dressed:
    """Has the fields of an outcome, and is none."""

    def __init__(self, outcome: Outcome) -> None:
        for name in outcome.__slots__:
            setattr(self, name, getattr(outcome, name))


@fails("test_a_turn_returns_an_outcome")
class NoOutcome(Toy):
    def completed(self) -> Any:
        return Dressed(super().completed())


@fails("test_the_outcome_is_returned_and_not_sent")
class TwoOutcomes(Toy):
    async def answer(self, turn: Turn, emit: Emitter) -> Outcome:
        outcome = await super().answer(turn, emit)
        await emit(Ended(outcome))
        return outcome


@fails("test_nothing_is_sent_after_the_outcome")
class SpeaksAfterTheOutcome(Toy):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.rest: list[asyncio.Task[None]] = []

    async def run_turn(self, turn: Turn, emit: Emitter) -> Outcome:
        outcome = await super().run_turn(turn, emit)
        self.rest.append(asyncio.ensure_future(self.think("one more thing", emit)))
        return outcome


# -- events ----------------------------------------------------------------------------------------------


@fails("test_text_arrives_once")
class Snapshots(Toy):
    def pieces(self, text: str) -> list[Event]:
        return [Text(text[: i + 20]) for i in range(0, len(text), 20)]


@fails("test_text_arrives_in_pieces")
class OnePiece(Toy):
    def pieces(self, text: str) -> list[Event]:
        return [Text(text)]


@fails("test_thinking_is_told_apart")
class LosesThoughts(Toy):
    async def think(self, text: str, emit: Emitter) -> None:
        pass


@fails("test_events_are_sent_one_at_a_time")
class DoesNotWait(Toy):
    async def say(self, text: str, emit: Emitter) -> None:
        self.words += len(text)
        self.conversation.append(text)
        await asyncio.gather(*map(emit, self.pieces(text)))


@fails("test_a_tool_call_has_a_start_and_an_end")
class EndsFirst(Toy):
    async def call(self, calls: Sequence[Item], turn: Turn, emit: Emitter) -> None:
        events: list[Event] = []

        async def keep(event: Event) -> None:
            events.append(event)

        await super().call(calls, turn, keep)
        for event in events if len(calls) > 1 else reversed(events):
            await emit(event)


@fails("test_parallel_tool_calls_keep_their_ids")
class SwapsIds(Toy):
    def ordered(self, ends: list[ToolEnd]) -> list[ToolEnd]:
        swapped = zip(ends, reversed(ends), strict=True)
        return [ToolEnd(one.id, other.output, other.is_error) for one, other in swapped]


@fails("test_mcp_servers_are_offered")
class ForgetsServers(Toy):
    """Claims them, that is all."""


@fails("test_usage_is_reported")
class NoUsage(Toy):
    def completed(self) -> Outcome:
        return Outcome("completed", native_session=self.native)


@fails("test_usage_is_that_of_one_turn")
class AddsUp(Toy):
    total = 0

    def completed(self) -> Outcome:
        self.total += self.words
        return Outcome("completed", usage=Usage(1, self.total), native_session=self.native)


# -- conversations ---------------------------------------------------------------------------------------


@fails("test_a_second_turn_knows_the_first")
class ForgetsAnswers(Toy):
    async def say(self, text: str, emit: Emitter) -> None:
        await super().say(text, emit)
        self.conversation.remove(text)


@fails("test_only_the_message_is_sent")
class RepeatsHistory(Toy):
    def hear(self, turn: Turn) -> None:
        self.conversation.append("\n".join([*self.conversation, turn.message]) if self.conversation else turn.message)
        self.store()


@fails("test_the_native_session_stays")
class RenamesItself(Toy):
    def completed(self) -> Outcome:
        if len(self.conversation) > 2:
            self.native = self.native[::-1]
            self.store()
        return super().completed()


@fails("test_a_new_engine_resumes_a_stored_session")
class ForgetsToResume(Toy):
    def recall(self, turn: Turn) -> None:
        super().recall(turn)
        if turn.resume:
            self.conversation = []


@fails("test_an_unknown_session_is_resume_failed")
class StartsAnew(Toy):
    def recall(self, turn: Turn) -> None:
        try:
            super().recall(turn)
        except EngineFailed:
            raise
        except Exception:
            self.native = "anew"


@fails("test_a_long_message_arrives_as_it_is")
class NormalizesLines(Toy):
    def hear(self, turn: Turn) -> None:
        self.conversation.append("\n".join(turn.message.splitlines()))
        self.store()


@fails("test_two_sessions_do_not_mix")
class MergesSessions(Toy):
    everything: ClassVar[dict[str, list[str]]] = {}

    def hear(self, turn: Turn) -> None:
        shared = self.everything.setdefault(str(self.context.home), [])
        self.conversation = shared if len(shared) >= len(self.conversation) else self.conversation
        super().hear(turn)
