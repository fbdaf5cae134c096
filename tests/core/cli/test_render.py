from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stockade.cli.output import Output
from stockade.cli.progress import MID_LINE_PATIENCE, PATIENCE, Progress
from stockade.cli.render import Human, JsonLines, Renderer, summary, tool_line
from stockade.model.events import (
    Event,
    Gap,
    Notice,
    Started,
    Text,
    Thinking,
    ToolEnd,
    ToolStart,
    Truncated,
    Unparsed,
)
from stockade.model.turn import Outcome, Usage


class Sink:
    """A pipe, and what was written into it."""

    def __init__(self) -> None:
        self.read_fd, self.write_fd = os.pipe()
        os.set_blocking(self.read_fd, False)

    def text(self) -> str:
        try:
            return os.read(self.read_fd, 1 << 20).decode()
        except BlockingIOError:
            return ""


@pytest.fixture
def sink() -> Iterator[Callable[[], Sink]]:
    sinks: list[Sink] = []

    def make() -> Sink:
        sinks.append(Sink())
        return sinks[-1]

    yield make
    for one in sinks:
        os.close(one.read_fd)
        os.close(one.write_fd)


EVENTS: tuple[Event, ...] = (
    Started("claude", "m"),
    Thinking("hm"),
    Text("I will "),
    Text("write it."),
    ToolStart("1", "Write", {"file_path": "hello.txt", "content": "x"}),
    ToolStart("2", "Bash", {"command": "false"}),
    ToolEnd("2", "exit 1", is_error=True),
    ToolEnd("1", "ok"),
    Text("Done."),
)
DONE = Outcome("completed", usage=Usage(10, 5, 100, 3), seconds=1.26)
FAILED = Outcome("failed", code="auth", message="the key was refused", hint="Set another.")


async def show(renderer: Renderer, events: tuple[Event, ...], outcome: Outcome) -> None:
    for event in events:
        await renderer.event(event)
    await renderer.ended(outcome)


def piped(text: Sink, side: Sink) -> Human:
    out, err = Output(text.write_fd), Output(side.write_fd)
    return Human(out, err, err, styled=False, width=80, progress=Progress(err, shares_line=False, draws=False))


def terminal(screen: Sink) -> Human:
    out = Output(screen.write_fd)
    return Human(out, out, out, styled=True, width=80, progress=Progress(out, shares_line=True, draws=False))


async def test_a_pipe_gets_the_answer_and_nothing_else(sink: Callable[[], Sink]) -> None:
    text, side = sink(), sink()
    await show(piped(text, side), EVENTS, DONE)
    assert text.text() == "I will write it.\nDone.\n"


@pytest.mark.requirement("L76")
async def test_tool_calls_are_one_line_each_and_errors_name_the_tool_by_id(sink: Callable[[], Sink]) -> None:
    text, side = sink(), sink()
    await show(piped(text, side), EVENTS, DONE)
    assert side.text().splitlines() == [
        "→ Write hello.txt",
        "→ Bash false",
        "✗ Bash: exit 1",
        "✓ completed in 1.3 s, 113 tokens in, 5 out",
    ]


async def test_a_terminal_gets_all_in_order_with_the_outcome_last(sink: Callable[[], Sink]) -> None:
    screen = sink()
    await show(terminal(screen), EVENTS, DONE)
    lines = [line.partition("m")[2] if line.startswith("\x1b") else line for line in screen.text().splitlines()]
    assert [line.removesuffix("\x1b[0m") for line in lines] == [
        "I will write it.",
        "→ Write hello.txt",
        "→ Bash false",
        "✗ Bash: exit 1",
        "Done.",
        "✓ completed in 1.3 s, 113 tokens in, 5 out",
    ]


async def test_a_failure_has_its_code_and_hint_before_the_last_line(sink: Callable[[], Sink]) -> None:
    text, side = sink(), sink()
    await show(piped(text, side), (Text("Half"),), FAILED)
    assert text.text() == "Half\n"
    assert side.text() == (
        "stockade: auth: the key was refused\n  Set another.\n✗ failed (auth) in 0.0 s, 0 tokens in, 0 out\n"
    )


HOSTILE: tuple[Event, ...] = (
    Text("\x1b[2Ja\x9b"),
    ToolStart("1", "Ba\x1bsh", {"command": "\x1b]52;c;x\x07"}),
    ToolEnd("1", "\x1b[31m", is_error=True),
    Notice("\x1b[1A"),
    Unparsed("\x1b[?2004h"),
)
HOSTILE_END = Outcome("failed", code="auth", message="\x1b[2J", hint="\x1b[2J")


async def test_no_escape_sequence_of_an_agent_reaches_the_terminal(sink: Callable[[], Sink]) -> None:
    screen = sink()
    out = Output(screen.write_fd)
    progress = Progress(out, shares_line=True, draws=False)
    await show(Human(out, out, out, styled=False, width=80, progress=progress), HOSTILE, HOSTILE_END)
    shown = screen.text()
    assert "␛[2Ja" in shown
    assert not set(shown) & {"\x1b", "\x07", "\x9b"}
    assert "\x1b" not in progress.label


async def test_cuts_gaps_and_noise_are_told(sink: Callable[[], Sink]) -> None:
    text, side = sink(), sink()
    await show(piped(text, side), (Truncated(99), Gap(3), Unparsed("npm WARN"), Notice("retry", "warning")), DONE)
    told = side.text()
    for part in ("99 bytes", "3 events were lost", "? npm WARN", "! retry"):
        assert part in told
    assert text.text() == ""


async def test_json_is_one_numbered_event_a_line_and_ends_with_the_outcome(sink: Callable[[], Sink]) -> None:
    out, errors = sink(), sink()
    await show(JsonLines(Output(out.write_fd), Output(errors.write_fd)), (*EVENTS, *HOSTILE), FAILED)
    text = out.text()
    assert "\x1b" not in text
    lines: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
    assert [line["seq"] for line in lines] == list(range(1, len(EVENTS) + len(HOSTILE) + 2))
    assert lines[2] == {"seq": 3, "kind": "text", "text": "I will "}
    assert lines[-1]["kind"] == "ended"
    assert lines[-1]["outcome"]["code"] == "auth"
    assert errors.text() == "stockade: auth: the key was refused\n  Set another.\n"


async def test_half_a_character_is_no_crash(sink: Callable[[], Sink]) -> None:
    text, side = sink(), sink()
    await show(piped(text, side), (Text("a\ud83d"),), DONE)
    assert text.text() == "a?\n"


def test_a_tool_without_a_telling_argument_shows_them_all() -> None:
    assert tool_line("Todo", {"n": 1}, 40) == 'Todo {"n": 1}'
    assert tool_line("Todo", {}, 40) == "Todo"
    assert tool_line("Bash", {"command": "x" * 500}, 40) == "Bash " + "x" * 34 + "…"


def test_paths_are_shown_as_seen_from_the_workspace() -> None:
    assert tool_line("Write", {"file_path": "/w/demo/a.txt"}, 40, "/w/demo") == "Write a.txt"
    assert tool_line("Write", {"file_path": "/other/a.txt"}, 40, "/w/demo") == "Write /other/a.txt"


def test_a_cancelled_turn_has_a_summary() -> None:
    assert summary(Outcome("cancelled", code="cancelled")) == "■ cancelled in 0.0 s, 0 tokens in, 0 out"


async def test_progress_appears_after_silence_and_goes_before_the_next_text(sink: Callable[[], Sink]) -> None:
    screen = sink()
    out = Output(screen.write_fd)
    progress = Progress(out, shares_line=True, draws=False)
    progress.erase(100.0)
    assert progress.frame(100.0 + PATIENCE / 2) == b""
    assert b"starting the sandbox" in progress.frame(100.0 + PATIENCE)
    progress.erase(101.0)
    await out.drain()
    assert screen.text() == "\r\x1b[K"


async def test_progress_never_erases_half_a_line_of_the_answer(sink: Callable[[], Sink]) -> None:
    out = Output(sink().write_fd)
    progress = Progress(out, shares_line=True, draws=False)
    progress.erase(100.0)
    progress.mid_line = True
    assert progress.frame(100.0 + PATIENCE) == b""
    assert progress.frame(100.0 + MID_LINE_PATIENCE).startswith(b"\n\r")
    elsewhere = Progress(out, shares_line=False, draws=False)
    elsewhere.erase(100.0)
    elsewhere.mid_line = True
    assert elsewhere.frame(200.0) == b""
