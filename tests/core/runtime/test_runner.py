"""Sandboxes by key: shared creation, admission first, one end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from stockade.errors import DestroyFailed
from stockade.model.authority import Constraints, Verdict
from stockade.model.events import Text
from stockade.model.spec import SandboxSpec
from stockade.model.turn import Outcome
from stockade.runtime.entry import MAX_SESSIONS, Entry
from stockade.testing.fakes import FakeTurn, MemorySandbox


async def until(condition: Callable[[], Any]) -> None:
    """Wait for a condition; the test's time limit is the bound."""
    while not condition():  # noqa: ASYNC110 - a condition, and no sleep
        await asyncio.sleep(0)


async def wait_for_cancel(turn: FakeTurn) -> Outcome:
    await turn.cancelled.wait()
    return Outcome("cancelled", "cancelled")


@pytest.mark.requirement("L1", "L2", "F58")
async def test_fifty_turns_for_one_new_key_make_one_sandbox(bench: Any) -> None:
    turns = await asyncio.gather(*(bench.turn(sandbox="shared", session=f"s{i}") for i in range(50)))
    outcomes = await asyncio.gather(*(t.outcome() for t in turns))
    assert {o.status for o in outcomes} == {"completed"}
    assert len(bench.driver.sandboxes) == 1
    assert [r.key for r in bench.kernel.sandboxes()] == ["shared"]


@pytest.mark.requirement("L1")
async def test_fifty_turns_for_fifty_keys_make_fifty_sandboxes(bench: Any) -> None:
    turns = await asyncio.gather(*(bench.turn(sandbox=f"k{i}") for i in range(50)))
    outcomes = await asyncio.gather(*(t.outcome() for t in turns))
    assert {o.status for o in outcomes} == {"completed"}
    assert len(bench.driver.sandboxes) == 50
    assert len(bench.kernel.sandboxes()) == 50


@pytest.mark.requirement("L3")
async def test_a_failed_creation_is_not_replayed_to_later_turns(bench: Any) -> None:
    async def fail(spec: SandboxSpec) -> None:
        raise RuntimeError("no room")

    bench.driver.before_create = fail
    first = await (await bench.turn(sandbox="k")).outcome()
    assert (first.status, first.code) == ("failed", "create_failed")
    assert "no room" in first.message
    assert bench.kernel.sandboxes() == []
    bench.driver.before_create = None
    assert (await (await bench.turn(sandbox="k")).outcome()).status == "completed"


@pytest.mark.slow
@pytest.mark.requirement("L4", "L5", "L75", "F65")
async def test_a_lost_channel_destroys_the_sandbox_through_its_driver_once(bench: Any) -> None:
    await (await bench.turn(sandbox="k")).outcome()
    [sandbox] = bench.driver.sandboxes
    await sandbox.mux.aclose()
    await until(lambda: not bench.kernel.sandboxes())
    assert sandbox.destroyed == 1
    assert (await (await bench.turn(sandbox="k")).outcome()).status == "completed"
    assert len(bench.driver.sandboxes) == 2


@pytest.mark.requirement("L6")
async def test_a_turn_whose_sandbox_is_lost_before_any_event_runs_once_more(bench: Any) -> None:
    async def crash_first(turn: FakeTurn) -> Outcome:
        if len(bench.driver.sandboxes) == 1:
            await turn.sandbox.crash()
            await asyncio.Event().wait()
        return Outcome("completed")

    bench.driver.behaviour = crash_first
    assert (await (await bench.turn(sandbox="k")).outcome()).status == "completed"
    assert len(bench.driver.sandboxes) == 2


@pytest.mark.requirement("L6", "F74", "F94")
async def test_a_turn_that_emitted_is_lost_and_not_run_again(bench: Any) -> None:
    async def emit_then_crash(turn: FakeTurn) -> Outcome:
        await turn.emit(Text("half"))
        await asyncio.sleep(0)
        await turn.sandbox.crash(evidence="exit status 9")
        await asyncio.Event().wait()
        raise AssertionError

    bench.driver.behaviour = emit_then_crash
    turn = await bench.turn(sandbox="k")
    outcome = await turn.outcome()
    assert (outcome.status, outcome.code) == ("failed", "lost")
    assert "exit status 9" in outcome.message
    assert [e.kind async for e in turn] == ["text", "ended"]
    assert len(bench.driver.sandboxes) == 1


@pytest.mark.requirement("L6")
async def test_a_sandbox_that_is_lost_again_is_not_tried_a_third_time(bench: Any) -> None:
    async def crash(turn: FakeTurn) -> Outcome:
        await turn.sandbox.crash()
        await asyncio.Event().wait()
        raise AssertionError

    bench.driver.behaviour = crash
    outcome = await (await bench.turn(sandbox="k")).outcome()
    assert outcome.code == "lost"
    assert len(bench.driver.sandboxes) == 2


@pytest.mark.requirement("L7", "L8")
async def test_a_turn_that_waited_for_a_sandbox_that_died_gets_a_new_one(bench: Any) -> None:
    async def crash_on_demand(turn: FakeTurn) -> Outcome:
        if turn.message == "crash":
            await turn.emit(Text("x"))
            await turn.cancelled.wait()
            await turn.sandbox.crash()
            await asyncio.Event().wait()
        return Outcome("completed")

    bench.driver.behaviour = crash_on_demand
    first = await bench.turn("crash", sandbox="k", session="s")
    await until(lambda: bench.driver.sandboxes and bench.driver.sandboxes[0].turns)
    second = await bench.turn("wait", sandbox="k", session="s")
    next(iter(bench.driver.sandboxes[0].turns.values())).cancelled.set()
    assert (await first.outcome()).code == "lost"
    assert (await second.outcome()).status == "completed"
    assert len(bench.driver.sandboxes) == 2


@pytest.mark.requirement("L9", "L35")
async def test_a_failing_turn_ends_as_failed_and_releases_its_slot(bench: Any) -> None:
    async def fail_once(turn: FakeTurn) -> Outcome:
        failed = turn.message == "fail"
        return Outcome("failed", "engine_failed", "boom") if failed else Outcome("completed")

    bench.driver.behaviour = fail_once
    assert (await (await bench.turn("fail", sandbox="k", session="s")).outcome()).status == "failed"
    assert (await (await bench.turn("ok", sandbox="k", session="s")).outcome()).status == "completed"


async def _most_at_once(bench: Any) -> int:
    running, most = 0, 0

    async def measure(turn: FakeTurn) -> Outcome:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(50):
            await asyncio.sleep(0)
        running -= 1
        return Outcome("completed")

    bench.driver.behaviour = measure
    turns = [await bench.turn(sandbox="k", session=f"s{i}") for i in range(8)]
    assert {(await t.outcome()).status for t in turns} == {"completed"}
    return most


@pytest.mark.requirement("L10", "L11")
async def test_an_older_peer_is_served_one_turn_at_a_time(bench: Any) -> None:
    bench.driver.capabilities = ("turn",)
    assert await _most_at_once(bench) == 1


@pytest.mark.requirement("L10")
async def test_a_peer_with_concurrent_turns_runs_sessions_side_by_side(bench: Any) -> None:
    assert await _most_at_once(bench) > 1


@pytest.mark.requirement("L12")
async def test_the_sessions_of_a_sandbox_are_bounded_and_a_running_one_stays(bench: Any) -> None:
    await (await bench.turn(sandbox="k")).outcome()
    entry = bench.kernel._runner.find("k")
    assert isinstance(entry, Entry)
    kept = entry.session("running")
    kept.waiting = 1
    for i in range(MAX_SESSIONS * 2):
        entry.session(f"anonymous-{i}")
    assert len(entry._sessions) <= MAX_SESSIONS
    assert entry.known("running") is kept


@pytest.mark.requirement("L12")
async def test_sandboxes_over_the_limit_are_denied_with_the_setting(open_bench: Any) -> None:
    async with open_bench(max_sandboxes=2) as bench:
        outcomes = [await (await bench.turn(sandbox=f"k{i}")).outcome() for i in range(3)]
    assert [o.code for o in outcomes] == ["", "", "denied"]
    assert "max_sandboxes" in outcomes[2].hint


@pytest.mark.requirement("L13")
async def test_a_denied_sandbox_is_never_created(bench: Any) -> None:
    bench.toy.Policy.verdict = Verdict.deny("not on a Sunday", "sunday")
    outcome = await (await bench.turn(sandbox="k")).outcome()
    assert (outcome.status, outcome.code) == ("failed", "denied")
    assert "not on a Sunday" in outcome.message
    assert bench.driver.sandboxes == []
    assert bench.kernel.sandboxes() == []


@pytest.mark.requirement("L13")
async def test_a_turn_that_wants_more_than_was_admitted_is_reviewed_again(bench: Any) -> None:
    await (await bench.turn(sandbox="k")).outcome()
    bench.toy.Policy.verdict = Verdict.deny("read only, please")
    assert (await (await bench.turn(sandbox="k")).outcome()).status == "completed"
    wider = await (await bench.turn(sandbox="k", file_access="full")).outcome()
    assert wider.code == "denied"


@pytest.mark.requirement("L14", "F69")
async def test_a_sandbox_ends_at_its_deadline_and_says_so(bench: Any) -> None:
    bench.driver.behaviour = wait_for_cancel
    turn = await bench.turn(sandbox="k", ttl=0.3, timeout=60)
    outcome = await turn.outcome()
    assert (outcome.status, outcome.code) == ("failed", "ttl")
    await until(lambda: not bench.kernel.sandboxes())


async def test_the_narrowest_constraint_shortens_the_life_of_a_sandbox(bench: Any) -> None:
    bench.toy.constraints = Constraints(max_ttl=5.0, file_access="read-only")
    turn = await bench.turn(sandbox="k", ttl=500, file_access="full")
    await turn.outcome()
    [row] = bench.kernel.sandboxes()
    assert row.deadline - row.created <= 5.0
    assert [e.message async for e in turn if e.kind == "notice"] == ["file access is limited to read-only by a plugin"]


@pytest.mark.requirement("L37")
async def test_a_constraint_can_ask_for_a_tier_that_the_driver_must_attest(bench: Any) -> None:
    bench.toy.constraints = Constraints(min_tier=2)
    outcome = await (await bench.turn(sandbox="k")).outcome()
    assert (outcome.status, outcome.code) == ("failed", "denied")
    assert "tier 2" in outcome.message
    assert bench.kernel.sandboxes() == []


@pytest.mark.requirement("L15")
async def test_a_stop_that_ends_other_sessions_names_them(bench: Any, caplog: pytest.LogCaptureFixture) -> None:
    bench.driver.behaviour = wait_for_cancel
    turns = [await bench.turn(sandbox="k", session=name) for name in ("alice", "bob")]
    await until(lambda: bench.driver.sandboxes and len(bench.driver.sandboxes[0].turns) == 2)
    with caplog.at_level(logging.WARNING):
        await bench.kernel.destroy("k")
    assert [(await t.outcome()).code for t in turns] == ["cancelled", "cancelled"]
    assert "alice" in caplog.text and "bob" in caplog.text


@pytest.mark.slow
@pytest.mark.requirement("L71", "F52")
async def test_a_failure_after_the_drivers_create_destroys_the_sandbox(bench: Any) -> None:
    async def impostor(spec: SandboxSpec) -> None:
        object.__setattr__(spec, "id", "somebody-else")

    bench.driver.before_create = impostor
    outcome = await (await bench.turn(sandbox="k")).outcome()
    assert outcome.code == "protocol"
    assert [s.destroyed for s in bench.driver.sandboxes] == [1]
    assert bench.kernel.sandboxes() == []


@pytest.mark.requirement("L72", "F53")
async def test_destroy_during_a_creation_kills_the_sandbox_on_arrival(bench: Any) -> None:
    arrive, asked = asyncio.Event(), asyncio.Event()

    async def slow(spec: SandboxSpec) -> None:
        asked.set()
        await arrive.wait()

    bench.driver.before_create = slow
    turn = await bench.turn(sandbox="k")
    await asked.wait()
    destroying = asyncio.create_task(bench.kernel.destroy("k"))
    await asyncio.sleep(0)
    assert not destroying.done()
    arrive.set()
    await destroying
    assert (await turn.outcome()).status == "cancelled"
    assert [s.destroyed for s in bench.driver.sandboxes] == [1]
    assert bench.kernel.sandboxes() == []


@pytest.mark.requirement("L73")
async def test_a_queued_turn_sees_cancellation_while_it_waits(bench: Any) -> None:
    bench.driver.behaviour = wait_for_cancel
    first = await bench.turn(sandbox="k", session="s")
    await until(lambda: bench.driver.sandboxes and bench.driver.sandboxes[0].turns)
    queued = await bench.turn(sandbox="k", session="s")
    assert (await queued.cancel()).status == "cancelled"
    assert len(bench.driver.sandboxes[0].turns) == 1
    assert (await first.cancel()).status == "cancelled"


@pytest.mark.requirement("L75")
async def test_a_failed_destroy_keeps_the_sandbox_registered_until_it_is_confirmed(bench: Any) -> None:
    await (await bench.turn(sandbox="k")).outcome()
    [sandbox] = bench.driver.sandboxes
    sandbox.destroy_errors.append(RuntimeError("daemon away"))
    with pytest.raises(DestroyFailed, match="daemon away"):
        await bench.kernel.destroy("k")
    assert [r.id for r in bench.kernel.sandboxes()] == [sandbox.id]
    await bench.kernel.reap()
    assert bench.kernel.sandboxes() == []
    assert bench.driver.reaped == [sandbox.id]


async def test_a_sandbox_that_nobody_can_name_ends_with_its_turn(bench: Any) -> None:
    await (await bench.turn()).outcome()
    [sandbox] = bench.driver.sandboxes
    assert sandbox.destroyed == 1
    assert bench.kernel.sandboxes() == []
    assert not sandbox.spec.state_dir.exists()


async def test_closing_the_kernel_ends_running_turns_and_all_sandboxes(open_bench: Any) -> None:
    async with open_bench() as bench:
        bench.driver.behaviour = wait_for_cancel
        turn = await bench.turn(sandbox="k")
        await until(lambda: bench.driver.sandboxes)
        sandboxes: list[MemorySandbox] = bench.driver.sandboxes
    assert (await turn.outcome()).status == "cancelled"
    assert [s.destroyed for s in sandboxes] == [1]
    async with open_bench() as later:
        assert later.kernel.sandboxes() == []


async def test_a_second_kernel_cannot_take_a_live_sandbox_and_can_ask_for_its_end(open_bench: Any) -> None:
    async with open_bench() as owner, open_bench() as other:
        await (await owner.turn(sandbox="k")).outcome()
        refused = await (await other.turn(sandbox="k")).outcome()
        assert refused.code == "in_use"
        await other.kernel.destroy("k")
        assert owner.kernel.sandboxes() == []
