"""A budget, end to end: a plugin narrows it, the gateway keeps it, the real Claude Code meets it, the turn says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import CommandLine, events

pytestmark = [pytest.mark.needs("claude"), pytest.mark.slow]

LIMITS = """
from stockade import hookimpl
from stockade.model.authority import ClaimLimits


@hookimpl
def token_claims(request):
    return ClaimLimits({limits})
"""


def limited(stockade: CommandLine, limits: str) -> dict[str, str]:
    """The variables with which a plugin is installed that narrows every warrant."""
    site = stockade.folder / "site"
    info = site / "corp_limits-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: corp-limits\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[stockade.plugins]\ncorp-limits = corp_limits\n")
    (site / "corp_limits.py").write_text(LIMITS.format(limits=limits))
    return {"PYTHONPATH": str(site)}


def run(stockade: CommandLine, limits: str, *more: str) -> tuple[int, dict[str, object], list[dict[str, object]]]:
    """One rehearsed turn of the real agent: exit status, outcome, and the lines of the meter."""
    arguments = ("run", "--engine", "claude", "--driver", "process", "--rehearse", "hello", "--json")
    done = stockade(
        *arguments, "--workspace", "./demo", "--file-access", "workspace-write", *more, "Create hello.txt",
        env=limited(stockade, limits),
    )  # fmt: skip
    lines = Path(stockade.home / "evidence" / "model-calls.jsonl").read_text().splitlines()
    return done.returncode, events(done.stdout)[-1]["outcome"], [json.loads(line) for line in lines]


@pytest.mark.requirement("F94", "L85")
def test_a_turn_whose_budget_is_used_up_ends_with_budget(stockade: CommandLine) -> None:
    status, outcome, lines = run(stockade, "requests=1")
    assert (status, outcome["status"], outcome["code"]) == (1, "failed", "budget")
    assert "budget of 1 requests" in str(outcome["message"])
    assert (stockade.folder / "demo/hello.txt").is_file()  # what the one request asked for
    assert [line["status"] for line in lines if line["path"] == "/v1/messages"] == [200, 429]  # and no retry
    assert {line["refused"] for line in lines} == {"", "budget"}
    stockade.assert_nothing_left()


def test_a_budget_that_is_large_enough_is_not_felt(stockade: CommandLine) -> None:
    limits = "requests=100, input_tokens=10**6, output_tokens=10**6, cost_microdollars=10**8"
    status, outcome, lines = run(stockade, limits, "--model", "sonnet")
    assert (status, outcome["status"]) == (0, "completed"), outcome
    assert all(line["rehearsed"] and not line["estimated"] and line["cost_microdollars"] for line in lines)


def test_a_model_that_is_not_allowed_ends_the_turn_with_denied(stockade: CommandLine) -> None:
    status, outcome, lines = run(stockade, "models=('some-other',)")
    assert (status, outcome["status"], outcome["code"]) == (1, "failed", "denied")
    assert "some-other" in str(outcome["message"])
    assert {line["status"] for line in lines} == {403}
