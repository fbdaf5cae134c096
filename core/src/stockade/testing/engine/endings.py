"""How turns end: one outcome, typed failures, interrupts, and nothing left behind."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from stockade.contracts.engine import Engine
from stockade.errors import ENDINGS
from stockade.model.events import Ended
from stockade.model.turn import Outcome
from stockade.testing.bounds import bounded, until
from stockade.testing.capabilities import requires
from stockade.testing.engine.base import ANSWER, EngineKit, Open, completed
from stockade.testing.engine.session import Run, Session
from stockade.testing.rehearsal import Rehearse

WAITING = ({"delay": 3600}, {"text": "too late"})
FOREVER = ({"shell": "echo $$ > started; exec tail -f /dev/null"}, {"text": "too late"})


class EndingTests(EngineKit):
    """Part of `EngineContract`."""

    # -- one outcome -------------------------------------------------------------------------------------

    @bounded
    async def test_a_turn_returns_an_outcome(self, open_session: Open, rehearse: Rehearse) -> None:
        """`Engine.run_turn` returns an `Outcome`, not something like it."""
        run = await self.play(open_session(), rehearse, {"text": ANSWER})
        assert run.error is None
        assert isinstance(run.returned, Outcome), type(run.returned).__name__

    @bounded
    async def test_the_outcome_is_returned_and_not_sent(self, open_session: Open, rehearse: Rehearse) -> None:
        """The kernel makes the last event of a turn: with one from the engine there would be two outcomes."""
        run = await self.play(open_session(), rehearse, {"text": ANSWER})
        assert not run.of(Ended)

    @bounded
    async def test_nothing_is_sent_after_the_outcome(self, open_session: Open, rehearse: Rehearse) -> None:
        """What is sent after `Engine.run_turn` returned belongs to no turn."""
        async with rehearse([{"text": ANSWER}]) as rehearsal:
            session = open_session()
            runs = [await self.take(session, rehearsal) for _ in range(2)]
            await session.renew()
            await asyncio.sleep(0)
            assert [run.late for run in runs] == [[], []]

    # -- failures ----------------------------------------------------------------------------------------

    @bounded
    async def test_a_refused_credential_is_auth(self, open_session: Open, rehearse: Rehearse) -> None:
        """HTTP status 401 of the model."""
        run = await self.play(open_session(), rehearse, *[{"error": {"status": 401}}] * 20)
        assert (run.outcome.status, run.outcome.code) == ("failed", "auth")

    @bounded
    async def test_a_failing_model_is_engine_failed(self, open_session: Open, rehearse: Rehearse) -> None:
        """HTTP status 500 of the model, however often it is tried. Never a completed turn without an answer (L35)."""
        run = await self.play(open_session(), rehearse, *[{"error": {"status": 500}}] * 20)
        assert (run.outcome.status, run.outcome.code) == ("failed", "engine_failed")

    @bounded
    async def test_a_missing_route_says_what_to_do(self, open_session: Open, engine: type[Engine]) -> None:
        """Without the route that it needs, the turn ends as ``engine_failed`` with a hint."""
        if not engine.ROUTES:
            pytest.skip("not claimed: ROUTES of the engine is empty")
        run = open_session().start("go", None, model=self.model)
        assert await run.ends_within(self.patience)
        assert (run.outcome.status, run.outcome.code) == ("failed", "engine_failed")
        assert run.outcome.hint, "a hint says what to do next"

    # -- interrupts --------------------------------------------------------------------------------------

    @bounded
    async def test_an_interrupt_ends_a_model_call(self, open_session: Open, rehearse: Rehearse) -> None:
        """The turn is cancelled soon, although the model never answers."""
        async with rehearse(WAITING) as rehearsal:
            session = open_session()
            run = session.start("go", rehearsal, model=self.model)
            assert await until(lambda: rehearsal.calls, self.patience), "no model call was made"
            await self._is_cancelled(session, run)

    @requires("shell")
    @bounded
    async def test_an_interrupt_ends_a_command(self, open_session: Open, rehearse: Rehearse) -> None:
        """The turn is cancelled soon, although the command never ends."""
        async with rehearse(FOREVER) as rehearsal:
            session = open_session()
            run = await self._in_a_command(session, rehearsal)
            await self._is_cancelled(session, run)

    @requires("shell")
    @bounded
    async def test_no_process_is_left_after_an_interrupt(self, open_session: Open, rehearse: Rehearse) -> None:
        """With the engine closed, neither the command runs nor the agent (F2)."""
        async with rehearse(FOREVER) as rehearsal:
            session = open_session()
            run = await self._in_a_command(session, rehearsal)
            await session.end(run, self.patience)
            await session.engine.aclose()
            assert await session.is_empty_within(self.patience), f"still there: {session.processes()}"

    @bounded
    async def test_a_second_interrupt_does_no_harm(self, open_session: Open, rehearse: Rehearse) -> None:
        """`Engine.interrupt` is idempotent."""
        async with rehearse(WAITING) as rehearsal:
            session = open_session()
            run = session.start("go", rehearsal, model=self.model)
            assert await until(lambda: rehearsal.calls, self.patience), "no model call was made"
            await session.engine.interrupt()
            await session.engine.interrupt()
            await session.end(run, self.patience)

    @bounded
    async def test_an_interrupt_between_turns_does_nothing(self, open_session: Open, rehearse: Rehearse) -> None:
        """Not to the turn before, not to the next."""
        async with rehearse([{"text": "done"}]) as rehearsal:
            session = open_session()
            for _ in range(2):
                await session.engine.interrupt()
                assert completed((await self.take(session, rehearsal)).outcome)

    @bounded
    async def test_the_turn_after_an_interrupt_works(self, open_session: Open, rehearse: Rehearse) -> None:
        """In a new engine, with the native session that the cancelled turn named, if it named one."""
        session = open_session()
        async with rehearse(WAITING) as rehearsal:
            run = session.start("go", rehearsal, model=self.model)
            await until(lambda: rehearsal.calls, self.patience)
            await session.end(run, self.patience)
        await session.renew()
        native = run.outcome.native_session if run.outcome is not None else ""
        async with rehearse([{"text": "done"}]) as rehearsal:
            run = await self.take(session, rehearsal, resume=native or None)
            assert completed(run.outcome)

    # -- closing -----------------------------------------------------------------------------------------

    @bounded
    async def test_closing_ends_every_process(self, open_session: Open, rehearse: Rehearse) -> None:
        """Nothing of the agent runs on (F9)."""
        session = open_session()
        await self.play(session, rehearse, {"text": "done"})
        await session.engine.aclose()
        assert await session.is_empty_within(self.patience), f"still there: {session.processes()}"

    @bounded
    async def test_closing_is_idempotent(self, open_session: Open, rehearse: Rehearse) -> None:
        """Also of an engine that never had a turn."""
        session = open_session()
        await open_session("unused").engine.aclose()
        await self.play(session, rehearse, {"text": "done"})
        for _ in range(2):
            await session.engine.aclose()

    @bounded
    async def test_no_error_is_left_to_the_loop(self, open_session: Open, rehearse: Rehearse) -> None:
        """Neither a good turn, nor a failed, nor an interrupted one leaves a task whose error nobody sees (L18)."""
        strays: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: strays.append(context))
        session = open_session()
        await self.play(session, rehearse, {"text": "done"})
        await self.play(session, rehearse, *[{"error": {"status": 401}}] * 20)
        await session.renew()
        async with rehearse(WAITING) as rehearsal:
            run = session.start("go", rehearsal, model=self.model)
            await until(lambda: rehearsal.calls, self.patience)
            await session.end(run, self.patience)
        await session.renew()
        await asyncio.sleep(0)
        del run
        gc.collect()
        assert strays == []

    @bounded
    async def test_failures_have_known_codes(self, open_session: Open, rehearse: Rehearse) -> None:
        """A failed turn's code is one of `stockade.errors.ENDINGS`; callers tell failures by it (L85)."""
        for status in (400, 429):
            run = await self.play(open_session(), rehearse, *[{"error": {"status": status}}] * 20)
            if run.outcome.status == "failed":
                assert run.outcome.code in ENDINGS, f"HTTP status {status}"

    async def _in_a_command(self, session: Session, rehearsal: Any) -> Run:
        run = session.start("go", rehearsal, file_access="full", model=self.model)
        started = session.context.workspace / "started"
        # What the shell wrote, and not only that it opened the file.
        assert await until(lambda: started.exists() and started.read_text().strip(), self.patience), "no command ran"
        return run

    async def _is_cancelled(self, session: Session, run: Run) -> None:
        await session.engine.interrupt()
        assert await run.ends_within(self.patience), "the turn did not end"
        assert run.outcome.status == "cancelled"
