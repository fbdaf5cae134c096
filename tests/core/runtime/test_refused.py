"""What a route says about a call that it refused, in the outcome of the turn."""

from __future__ import annotations

from typing import Any

import pytest

from stockade.errors import BudgetExceeded
from stockade.model.turn import Outcome, Usage
from stockade.testing.fakes import FakeTurn

from .test_turns import connect


def refused_then(bench: Any, *outcomes: Outcome) -> None:
    """Turns in one session, which end like this; the route refuses a call of the first."""
    left = list(outcomes)

    async def behave(turn: FakeTurn) -> Outcome:
        if len(left) == len(outcomes):
            stream = await connect(turn, "echo")
            await stream.send(b"x")
            await stream.receive()
            bench.toy.Echo.origins[-1].refuse(BudgetExceeded("ten of ten", hint="Ask for more."))
        return left.pop(0)

    bench.driver.behaviour = behave


async def outcome_of(bench: Any) -> Outcome:
    outcome: Outcome = await (await bench.turn(sandbox="k", session="s")).outcome()
    return outcome


@pytest.mark.requirement("L85", "F94")
async def test_a_turn_that_fails_after_a_refused_call_ends_as_the_route_said(bench: Any) -> None:
    refused_then(bench, Outcome("failed", "engine_failed", "429", "try later", Usage(3, 4), "native-1"))
    outcome = await outcome_of(bench)
    assert (outcome.status, outcome.code) == ("failed", "budget")
    assert (outcome.message, outcome.hint) == ("ten of ten", "Ask for more.")
    assert (outcome.usage, outcome.native_session) == (Usage(3, 4), "native-1")


async def test_a_turn_that_completes_in_spite_of_it_is_completed(bench: Any) -> None:
    refused_then(bench, Outcome("completed"))
    assert (await outcome_of(bench)).status == "completed"


async def test_a_refusal_is_not_held_against_the_next_turn(bench: Any) -> None:
    refused_then(bench, Outcome("completed"), Outcome("failed", "engine_failed", "of its own"))
    assert (await outcome_of(bench)).status == "completed"
    assert (await outcome_of(bench)).code == "engine_failed"
