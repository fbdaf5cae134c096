"""An agent that misbehaves, in a real sandbox: the turn ends as it should, and nothing outlives the sandbox."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stockade.model.events import Started, Text, Truncated, Unparsed
from stockade.testing import agent
from stockade.testing.bounds import bounded
from stockade.testing.driver.base import DriverKit, Make
from stockade.testing.driver.box import Told


def completed(told: Told) -> None:
    """With what the result said."""
    outcome = told.outcome
    assert (outcome.status, outcome.code) == ("completed", ""), outcome
    assert (outcome.usage.output_tokens, outcome.native_session) == (7, "native-1")
    assert isinstance(told.events[0], Started)


def failed(told: Told, *words: str) -> None:
    """As an engine's failure that says so."""
    outcome = told.outcome
    assert (outcome.status, outcome.code) == ("failed", "engine_failed"), outcome
    assert not [word for word in words if word not in outcome.message], outcome.message


def long_line(told: Told) -> None:
    completed(told)
    assert set(told.text) == {"x"} and 65_000 < len(told.text) < 65_537


def huge_line(told: Told) -> None:
    completed(told)
    [truncated] = [event for event in told.events if isinstance(event, Truncated)]
    assert truncated.size == 10 * 1024 * 1024
    assert truncated.head.endswith("xxx")
    assert told.text == "after", "what follows a line that is too long is read"


def split_utf8(told: Told) -> None:
    completed(told)
    assert told.text == agent.WORDS


def line_separator(told: Told) -> None:
    completed(told)
    assert told.text == "one\u2028two\u2029three\u0085four\x0bfive\x0csix"


def invalid_utf8(told: Told) -> None:
    completed(told)
    assert [event.text for event in told.events if isinstance(event, Unparsed)] == [
        "\ufffd" * 3,
        '{"type": "text", "text": "torn \ufffd("}',
    ]
    assert told.text == "after"


def noise(told: Told) -> None:
    completed(told)
    unparsed = [event.text for event in told.events if isinstance(event, Unparsed)]
    assert unparsed == ["\x1b[?2004h\x1b[31mWARN\x1b[0m not JSON", "[1, 2]", "null", "{}", "{broken"]
    assert told.text == "after"


def ignore_sigterm(told: Told) -> None:
    assert (told.outcome.status, told.outcome.code) == ("cancelled", "cancelled"), told.outcome
    assert told.text == "busy"


def hold_stdout(told: Told) -> None:
    failed(told, "exit code 7")
    assert told.text == "before"


def silent(told: Told) -> None:
    completed(told)
    assert told.text == "done"


def flood(told: Told) -> None:
    completed(told)
    assert told.text == "".join(f"{number}\n" for number in range(agent.FLOOD))
    assert len([event for event in told.events if isinstance(event, Text)]) > 1


CHECKS: dict[str, Callable[[Told], None]] = {
    "long-line": long_line,
    "huge-line": huge_line,
    "split-utf8": split_utf8,
    "line-separator": line_separator,
    "invalid-utf8": invalid_utf8,
    "noise": noise,
    "ignore-sigterm": ignore_sigterm,
    "hold-stdout": hold_stdout,
    "daemons": completed,
    "no-result": lambda told: failed(told, "without a result", "exit code 0"),
    "die-early": lambda told: failed(told, "exit code 9", "cannot reach the moon"),
    "worker-stays": completed,
    "silent": silent,
    "flood": flood,
}


class AgentTests(DriverKit):
    """`stockade.testing.faults.FaultEngine` with each fault of `stockade.testing.agent`."""

    @pytest.mark.parametrize("fault", agent.FAULTS)
    @bounded
    async def test_an_agent_that_misbehaves(self, make: Make, fault: str) -> None:
        """Its turn has one outcome, of the right kind; the sandbox goes on, and leaves nothing of the agent."""
        # A short lease: pings and events go on, however much or little the agent says (F71).
        box = await make(lease=2.0)
        mark = box.mark()
        told = await box.turn(f"please: {fault}", mark, cancel=fault == "ignore-sigterm")
        CHECKS[fault](told)
        assert await box.sh("echo alive") == "alive"
        await box.destroy()
        await self.nothing_of(mark)
