"""Policies are asked at three moments, may take back what they admitted, and every verdict is on record."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stockade.model.authority import SandboxRequest, TurnRequest, Verdict
from stockade.model.isolation import Isolation

from .test_runner import until, wait_for_cancel


def verdicts(toy: Any) -> list[tuple[str, str, list[bool]]]:
    """Kind, step and answers of every verdict that observers saw."""
    return [
        (r.kind, r.data["step"], [d["allowed"] for d in r.data["decisions"]])
        for r in toy.Watcher.records
        if r.kind in ("admitted", "denied")
    ]


@pytest.fixture
def turns(toy: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, TurnRequest]]:
    """What the toy policy was asked and told about turns; it denies those of the user ``nobody``."""
    seen: list[tuple[str, TurnRequest]] = []

    async def review_turn(self: object, request: TurnRequest) -> Verdict:
        seen.append(("asked", request))
        return Verdict.deny("nobody may", "nobody") if request.sandbox.user == "nobody" else Verdict.allow()

    async def turn_ended(self: object, request: TurnRequest) -> None:
        seen.append(("ended", request))

    monkeypatch.setattr(toy.Policy, "review_turn", review_turn)
    monkeypatch.setattr(toy.Policy, "turn_ended", turn_ended)
    return seen


@pytest.fixture
def confirmed(toy: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple[SandboxRequest, Isolation]]:
    """What the toy policy was asked to confirm; it wants tier 2 for full file access."""
    seen: list[tuple[SandboxRequest, Isolation]] = []

    async def confirm(self: object, request: SandboxRequest, isolation: Isolation) -> Verdict:
        seen.append((request, isolation))
        if request.file_access == "full" and isolation.tier < 2:
            return Verdict.deny(f"tier {isolation.tier} is not enough", "tier", setting="plugin.toy.tier")
        return Verdict.allow()

    monkeypatch.setattr(toy.Policy, "confirm", confirm)
    return seen


@pytest.mark.requirement("L13", "L37")
async def test_a_sandbox_that_is_not_confirmed_is_destroyed_before_its_first_use(bench: Any, confirmed: Any) -> None:
    outcome = await (await bench.turn(sandbox="k", file_access="full")).outcome()
    assert (outcome.code, "tier 0 is not enough" in outcome.message) == ("denied", True)
    assert "plugin.toy.tier" in outcome.hint
    assert bench.kernel.sandboxes() == []
    assert len(bench.driver.sandboxes) == 1
    await until(lambda: len(verdicts(bench.toy)) == 2)
    assert verdicts(bench.toy) == [("admitted", "review", [True]), ("denied", "confirm", [False])]


async def test_a_wider_use_of_a_live_sandbox_is_confirmed_too(bench: Any, confirmed: Any) -> None:
    assert (await (await bench.turn(sandbox="k")).outcome()).status == "completed"
    assert (await (await bench.turn(sandbox="k", file_access="full")).outcome()).code == "denied"
    assert (await (await bench.turn(sandbox="k")).outcome()).status == "completed"
    assert [isolation.tier for _, isolation in confirmed] == [0, 0]
    assert len({request.sandbox for request, _ in confirmed}) == 1


async def test_a_turn_is_asked_for_once_and_its_end_is_told_once(bench: Any, turns: Any) -> None:
    turn = await bench.turn(sandbox="k", user="ann", session="s")
    await turn.outcome()
    assert [what for what, _ in turns] == ["asked", "ended"]
    assert turns[0][1] == turns[1][1]
    assert (turns[0][1].turn, turns[0][1].session, turns[0][1].sandbox.key) == (turn.id, "s", "k")
    await until(lambda: len(verdicts(bench.toy)) == 2)
    assert verdicts(bench.toy) == [("admitted", "turn", [True]), ("admitted", "review", [True])]


async def test_a_denied_turn_makes_nothing_and_is_on_record(bench: Any, turns: Any) -> None:
    turn = await bench.turn(sandbox="k", user="nobody")
    outcome = await turn.outcome()
    assert (outcome.code, outcome.message) == ("denied", "no turn: policy 'toy-policy' of plugin 'toy': nobody may")
    assert bench.driver.sandboxes == []
    assert [what for what, _ in turns] == ["asked", "ended"]
    await until(lambda: bool(verdicts(bench.toy)))
    assert verdicts(bench.toy) == [("denied", "turn", [False])]
    assert bench.toy.Watcher.records[0].turn == turn.id


async def test_the_end_of_a_cancelled_turn_is_told(bench: Any, turns: Any) -> None:
    bench.driver.behaviour = wait_for_cancel
    turn = await bench.turn(sandbox="k")
    await until(lambda: turn.opened)
    await turn.cancel()
    assert [what for what, _ in turns] == ["asked", "ended"]


async def test_the_end_of_a_turn_is_told_when_the_kernel_closes(open_bench: Any, turns: Any) -> None:
    async with open_bench() as bench:
        bench.driver.behaviour = wait_for_cancel
        turn = await bench.turn(sandbox="k")
        await until(lambda: turn.opened)
    assert [what for what, _ in turns] == ["asked", "ended"]


async def test_no_answer_about_a_turn_is_a_no_and_its_end_is_told(
    open_bench: Any, turns: Any, toy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(self: object, request: TurnRequest) -> Verdict:
        await asyncio.Event().wait()
        return Verdict.allow()

    monkeypatch.setattr(toy.Policy, "review_turn", silent)
    async with open_bench(admission={"timeout": 0.05}) as bench:
        outcome = await (await bench.turn(sandbox="k")).outcome()
        assert (outcome.code, "gave no answer within 0.05 s" in outcome.message) == ("denied", True)
    assert [what for what, _ in turns] == ["ended"]


async def test_a_policy_that_fails_at_the_end_of_a_turn_hurts_nobody(
    bench: Any, turns: Any, toy: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(self: object, request: TurnRequest) -> None:  # not even async
        raise ValueError("lost my notes")

    monkeypatch.setattr(toy.Policy, "turn_ended", broken)
    assert (await (await bench.turn()).outcome()).status == "completed"
    assert "plugin 'toy' failed when turn" in caplog.text


@pytest.mark.requirement("L14")
async def test_a_withdrawal_ends_what_runs_and_the_turn_says_revoked(
    open_bench: Any, toy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    withdrawals: asyncio.Queue[str] = asyncio.Queue()

    async def withdrawn(self: object) -> str:
        return await withdrawals.get()

    monkeypatch.setattr(toy.Policy, "withdrawn", withdrawn)
    async with open_bench() as bench:
        bench.driver.behaviour = wait_for_cancel
        for n in (1, 2):  # the kernel goes on, and so does its watch
            turn = await bench.turn(sandbox=f"k{n}")
            await until(lambda turn=turn: turn.opened)  # type: ignore[misc]
            withdrawals.put_nowait(f"permit {n} is over")
            outcome = await turn.outcome()
            assert outcome.code == "revoked"
            assert f"plugin 'toy': permit {n} is over" in outcome.message
            await until(lambda: not bench.kernel.sandboxes())


async def test_a_policy_that_fails_while_it_watches_ends_what_runs(
    open_bench: Any, toy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail = asyncio.Event()

    async def withdrawn(self: object) -> str:
        await fail.wait()
        raise OSError("the disk is gone")

    monkeypatch.setattr(toy.Policy, "withdrawn", withdrawn)
    async with open_bench() as bench:
        bench.driver.behaviour = wait_for_cancel
        turn = await bench.turn(sandbox="k")
        await until(lambda: turn.opened)
        fail.set()
        outcome = await turn.outcome()
        assert (outcome.code, "its policy failed with OSError" in outcome.message) == ("revoked", True)


async def test_policies_are_closed_with_the_kernel(open_bench: Any, toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []

    async def aclose(self: object) -> None:
        closed.append(True)

    monkeypatch.setattr(toy.Policy, "aclose", aclose)
    async with open_bench():
        assert not closed
    assert closed == [True]
