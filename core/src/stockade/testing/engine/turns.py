"""What an engine owes in a turn that goes well: events, usage, the conversation."""

from __future__ import annotations

import json
import secrets
import sys
from pathlib import Path
from typing import Any

from stockade.model.events import Text, Thinking, ToolEnd, ToolStart
from stockade.testing.bounds import bounded
from stockade.testing.capabilities import requires
from stockade.testing.engine.base import ANSWER, EngineKit, Open, completed
from stockade.testing.engine.session import Run
from stockade.testing.rehearsal import Rehearse

MCP_SERVER = Path(__file__).parent.parent / "mcp_server.py"


def canary(name: str) -> str:
    """A word that comes from nowhere else."""
    return f"{name}-{secrets.token_hex(6)}"


class TurnTests(EngineKit):
    """Part of `EngineContract`."""

    # -- text --------------------------------------------------------------------------------------------

    @bounded
    async def test_text_arrives_once(self, open_session: Open, rehearse: Rehearse) -> None:
        """Text events are pieces that make up the answer: no snapshots, no repetition at the end (L60, L67)."""
        run = await self.play(open_session(), rehearse, {"text": ANSWER})
        assert completed(run.outcome)
        assert run.text == ANSWER

    @requires("streaming")
    @bounded
    async def test_text_arrives_in_pieces(self, open_session: Open, rehearse: Rehearse) -> None:
        """The first words are seen before the last are there."""
        run = await self.play(open_session(), rehearse, {"text": ANSWER})
        assert len(run.of(Text)) > 1, "the answer came in one event"

    @requires("thinking")
    @bounded
    async def test_thinking_is_told_apart(self, open_session: Open, rehearse: Rehearse) -> None:
        """Reasoning arrives as `Thinking`."""
        run = await self.play(open_session(), rehearse, {"thinking": "first-i-look"}, {"text": "done"})
        assert "first-i-look" in "".join(event.text for event in run.of(Thinking))

    @bounded
    async def test_events_are_sent_one_at_a_time(self, open_session: Open, rehearse: Rehearse) -> None:
        """The next event waits until the one before it is taken: so they stay in order, and a slow kernel is felt."""
        run = await self.play(open_session(), rehearse, {"text": ANSWER})
        assert run.most_emitting <= 1, f"{run.most_emitting} calls of emit at once"

    # -- tools -------------------------------------------------------------------------------------------

    @requires("tools", "shell")
    @bounded
    async def test_a_tool_call_has_a_start_and_an_end(self, open_session: Open, rehearse: Rehearse) -> None:
        """The start shows the command, the end its output."""
        script = ({"shell": "printf '%s-%s' two halves"}, {"text": "done"})
        run = await self.play(open_session(), rehearse, *script, file_access="full")
        assert completed(run.outcome)
        assert [event.kind for event in run.events if isinstance(event, (ToolStart, ToolEnd))] == [
            "tool_start",
            "tool_end",
        ]
        (start,), (end,) = run.of(ToolStart), run.of(ToolEnd)
        assert "printf" in json.dumps(start.input)
        assert "two-halves" in end.output
        assert not end.is_error

    @requires("tools", "shell")
    @bounded
    async def test_parallel_tool_calls_keep_their_ids(self, open_session: Open, rehearse: Rehearse) -> None:
        """Each end has the id of its own start, also for two calls of one tool in one reply (L76)."""
        calls = [{"shell": f"printf '%s-%s' {name} output"} for name in ("first", "second")]
        script = ({"tools": calls}, {"text": "done"})
        run = await self.play(open_session(), rehearse, *script, file_access="full")
        asked = {start.id: json.dumps(start.input) for start in run.of(ToolStart)}
        answered = {end.id: end.output for end in run.of(ToolEnd)}
        assert len(run.of(ToolStart)) == len(run.of(ToolEnd)) == len(asked) == 2
        assert asked.keys() == answered.keys()
        for identity, command in asked.items():
            assert ("first" if "first" in command else "second") + "-output" in answered[identity]

    @requires("mcp")
    @bounded
    async def test_mcp_servers_are_offered(self, open_session: Open, rehearse: Rehearse) -> None:
        """The tools of the turn's MCP servers are in the first model call (F41)."""
        server: dict[str, Any] = {"command": sys.executable, "args": ["-I", str(MCP_SERVER)]}
        async with rehearse([{"text": "done"}]) as rehearsal:
            run = await self.take(open_session(), rehearsal, mcp_servers={"kit": server})
            assert completed(run.outcome)
            assert rehearsal.mentions("look_up_in_the_kit", call=0)

    # -- usage -------------------------------------------------------------------------------------------

    @requires("usage")
    @bounded
    async def test_usage_is_reported(self, open_session: Open, rehearse: Rehearse) -> None:
        """The outcome says how many tokens went in and out."""
        run = await self.play(open_session(), rehearse, {"text": ANSWER})
        assert run.outcome.usage.input_tokens > 0
        assert run.outcome.usage.output_tokens > 0

    @requires("usage")
    @bounded
    async def test_usage_is_that_of_one_turn(self, open_session: Open, rehearse: Rehearse) -> None:
        """The same answer costs the same again, however long the conversation is."""
        first, second = await self._two_turns(open_session, rehearse, "one", "two")
        assert second.outcome.usage.output_tokens <= 1.5 * first.outcome.usage.output_tokens

    # -- the conversation --------------------------------------------------------------------------------

    @bounded
    async def test_a_second_turn_knows_the_first(self, open_session: Open, rehearse: Rehearse) -> None:
        """One engine object is one conversation."""
        first = canary("first")
        async with rehearse([{"text": "said-before"}, {"text": "done"}]) as rehearsal:
            session = open_session()
            await self.take(session, rehearsal, f"remember {first}")
            await self.take(session, rehearsal, "what was it?")
            assert rehearsal.mentions(first)
            assert rehearsal.mentions("said-before")

    @bounded
    async def test_only_the_message_is_sent(self, open_session: Open, rehearse: Rehearse) -> None:
        """What was said before is not said again: the agent has it already (L66)."""
        first = canary("first")
        async with rehearse([{"text": "done"}]) as rehearsal:
            session = open_session()
            await self.take(session, rehearsal, f"remember {first}")
            once = rehearsal.mentions(first)
            await self.take(session, rehearsal, "what was it?")
            assert rehearsal.mentions(first) <= once

    @requires("resume")
    @bounded
    async def test_the_native_session_stays(self, open_session: Open, rehearse: Rehearse) -> None:
        """Both outcomes of one conversation name the same native session (L79)."""
        first, second = await self._two_turns(open_session, rehearse, "one", "two")
        assert first.outcome.native_session
        assert second.outcome.native_session == first.outcome.native_session

    @requires("resume")
    @bounded
    async def test_a_new_engine_resumes_a_stored_session(self, open_session: Open, rehearse: Rehearse) -> None:
        """With nothing but its home and the id, another object goes on where the first one ended (L34)."""
        first = canary("first")
        async with rehearse([{"text": "done"}]) as rehearsal:
            session = open_session()
            native = (await self.take(session, rehearsal, f"remember {first}")).outcome.native_session
            await session.renew()
            run = await self.take(session, rehearsal, "what was it?", resume=native)
            assert completed(run.outcome)
            assert rehearsal.mentions(first)

    @requires("resume")
    @bounded
    async def test_an_unknown_session_is_resume_failed(self, open_session: Open, rehearse: Rehearse) -> None:
        """Never silently anew: the turn fails before the first model call, also for an id that is a path (F85)."""
        async with rehearse([{"text": "a new conversation"}]) as rehearsal:
            for native in ("5f0c4a52-3a6e-4d0b-9a55-2f6d9c1f7a10", "../../no-session"):
                run = await self.take(open_session(), rehearsal, resume=native)
                assert (run.outcome.status, run.outcome.code) == ("failed", "resume_failed"), native
            assert not rehearsal.calls

    # -- the message -------------------------------------------------------------------------------------

    @bounded
    async def test_a_long_message_arrives_as_it_is(self, open_session: Open, rehearse: Rehearse) -> None:
        """200 KiB with line ends of all kinds, quotes and emoji: more than fits an argument."""
        message = "first line\n" + 'é😀"\\\u2028\u2029\x85\r\n\t{"a": 1}\n\n' * 7500 + "last line"
        async with rehearse([{"text": "read"}]) as rehearsal:
            run = await self.take(open_session(), rehearsal, message)
            assert completed(run.outcome)
            assert rehearsal.mentions(message, call=0), "the model was not sent the message, or not as it was"

    async def _two_turns(self, open_session: Open, rehearse: Rehearse, *messages: str) -> list[Run]:
        async with rehearse([{"text": ANSWER}] * len(messages)) as rehearsal:
            session = open_session()
            return [await self.take(session, rehearsal, message) for message in messages]
