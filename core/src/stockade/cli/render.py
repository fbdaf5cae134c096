"""A turn's events for a person or a program. Everything an agent says is untrusted text."""

from __future__ import annotations

import json
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from stockade.cli.output import Output
from stockade.cli.progress import Progress
from stockade.cli.text import one_line, printable
from stockade.model.events import (
    Ended,
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
    encode,
)
from stockade.model.turn import Outcome, Usage

_TELLING = ("command", "file_path", "path", "pattern", "url", "query", "description", "prompt")
"""Names of a tool's arguments that say best what it does, the best one first."""

DIM, RED, GREEN, YELLOW = "2", "31", "32", "33"


class Renderer(ABC):
    """Shows one turn. Every method may wait for a slow reader and raise `BrokenPipeError`."""

    @abstractmethod
    async def event(self, event: Event) -> None:
        """Show one event. `Ended` is not shown here."""

    @abstractmethod
    def note(self, message: str) -> None:
        """Something the command itself, or its log, has to say."""

    @abstractmethod
    async def ended(self, outcome: Outcome) -> None:
        """Show the outcome; called once, last. A failure goes to standard error with code and hint."""

    @abstractmethod
    async def aclose(self) -> None:
        """Stop drawing. Idempotent."""


class JsonLines(Renderer):
    """One JSON object a line, numbered by ``seq``; the last one has kind ``ended``."""

    def __init__(self, out: Output, errors: Output) -> None:
        self._out, self._errors = out, errors
        self._seq = 0

    async def event(self, event: Event) -> None:
        if not isinstance(event, Ended):
            await self._line(event)

    def note(self, message: str) -> None:
        self._errors.queue(_bytes(f"stockade: {printable(message)}\n"))

    async def ended(self, outcome: Outcome) -> None:
        await self._line(Ended(outcome))
        await self._out.drain()
        if outcome.status == "failed":
            await self._errors.write(_bytes(failure_text(outcome)))
        await self._errors.drain()

    async def aclose(self) -> None:
        return None

    async def _line(self, event: Event) -> None:
        self._seq += 1
        await self._out.write(b'{"seq":%d,' % self._seq + encode(event)[1:])


class Human(Renderer):
    """Text for people: the answer on ``text``, everything about it on ``side``, failures on ``errors``.

    On a terminal all three are the same `Output`, so that lines keep their order.
    """

    def __init__(
        self,
        text: Output,
        side: Output,
        errors: Output,
        *,
        styled: bool,
        width: int,
        progress: Progress,
        base: str = "",
    ) -> None:
        self._text, self._side, self._errors = text, side, errors
        self._styled, self._width = styled, width
        self._progress = progress
        self._base = base
        self._tools: dict[str, str] = {}

    async def event(self, event: Event) -> None:
        match event:
            case Started():
                self._progress.label = "waiting for the model"
            case Text(text=text):
                await self._say(printable(text))
            case Thinking():
                self._progress.label = "thinking"
            case ToolStart(id=id, name=name, input=given):
                self._tools[id] = name
                await self._line(f"→ {tool_line(name, given, self._width - 2, self._base)}", DIM)
                self._progress.label = f"running {one_line(name, 40)}"
            case ToolEnd(id=id, output=output, is_error=is_error):
                name = self._tools.pop(id, "tool")
                if is_error:
                    await self._line(f"✗ {one_line(f'{name}: {output}', self._width - 2)}", RED)
                self._progress.label = "waiting for the model"
            case Notice(message=message, level=level):
                await self._line(f"! {printable(message)}", DIM if level == "info" else YELLOW)
            case Unparsed(text=text):
                await self._line(f"? {one_line(text, self._width - 2)}", DIM)
            case Truncated(size=size):
                await self._line(f"! an event of {size} bytes was too long to show", YELLOW)
            case Gap(missed=missed):
                await self._line(f"! {missed} events were lost on the way to this terminal", YELLOW)
            case Ended():
                pass

    def note(self, message: str) -> None:
        self._progress.erase(time.monotonic())
        lead = "\n" if self._progress.mid_line and self._errors is self._text else ""
        self._progress.mid_line = self._progress.mid_line and not lead
        self._errors.queue(_bytes(f"{lead}stockade: {printable(message)}\n"))

    async def ended(self, outcome: Outcome) -> None:
        await self.aclose()
        await self._end_line()
        await self._text.drain()
        if outcome.status == "failed":
            await self._errors.write(_bytes(failure_text(outcome)))
        colour = {"completed": GREEN, "failed": RED}.get(outcome.status, YELLOW)
        await self._line(summary(outcome), colour)
        await self._side.drain()
        await self._errors.drain()

    async def aclose(self) -> None:
        await self._progress.aclose()

    async def _say(self, text: str) -> None:
        if text:
            self._progress.erase(time.monotonic())
            self._progress.mid_line = not text.endswith("\n")
            await self._text.write(_bytes(text))

    async def _line(self, text: str, style: str) -> None:
        self._progress.erase(time.monotonic())
        await self._end_line()
        await self._side.write(_bytes(f"\x1b[{style}m{text}\x1b[0m\n" if self._styled else f"{text}\n"))

    async def _end_line(self) -> None:
        if self._progress.mid_line:
            self._progress.mid_line = False
            await self._text.write(b"\n")


def make_renderer(*, as_json: bool, workspace: str = "") -> Renderer:
    """The renderer for this process's standard output and error. Needs a running event loop."""
    terminal, err_terminal = os.isatty(1), os.isatty(2)
    out = Output(1)
    errors = out if terminal and err_terminal and not as_json else Output(2)
    if as_json:
        return JsonLines(out, errors)
    side = out if terminal else errors
    drawn = (terminal or err_terminal) and os.environ.get("TERM", "dumb") != "dumb"
    width = terminal_width(1 if terminal else 2)
    progress = Progress(side, shares_line=terminal, draws=drawn)
    styled = drawn and not os.environ.get("NO_COLOR")
    return Human(out, side, errors, styled=styled, width=width, progress=progress, base=workspace)


def terminal_width(fd: int) -> int:
    """Columns of the terminal at ``fd``; 120 for what is not one, or does not know."""
    try:
        return max(os.get_terminal_size(fd).columns or 120, 20)
    except OSError:
        return 120


def tool_line(name: str, given: Mapping[str, Any], width: int, base: str = "") -> str:
    """One line that tells a tool call: its name and its most telling argument, paths as seen from ``base``."""
    telling = next((given[key] for key in _TELLING if isinstance(given.get(key), str)), None)
    if telling is None:
        telling = json.dumps(given, ensure_ascii=False, default=str) if given else ""
    return one_line(f"{name} {telling.replace(base.rstrip('/') + '/', '') if base else telling}", width)


def failure_text(outcome: Outcome) -> str:
    """The code, the message and the hint of a failed turn."""
    hint = "\n  " + printable(outcome.hint).replace("\n", "\n  ") if outcome.hint else ""
    return f"stockade: {outcome.code}: {printable(outcome.message)}{hint}\n"


def summary(outcome: Outcome) -> str:
    """How it ended, after how many seconds, with how many tokens."""
    sign = {"completed": "✓", "failed": "✗"}.get(outcome.status, "■")
    code = f" ({outcome.code})" if outcome.status == "failed" and outcome.code else ""
    return f"{sign} {outcome.status}{code} in {outcome.seconds:.1f} s, {_tokens(outcome.usage)}"


def _tokens(usage: Usage) -> str:
    sent = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    return f"{sent} tokens in, {usage.output_tokens} out"


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")
