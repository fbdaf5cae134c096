"""What happens in a turn, as plain data. Standard library only; `stockade.wire.peer` validates it.

On the wire an event is one JSON object a line with the key ``kind``. Text is a delta, never a
cumulative snapshot (L60). Tool calls and results are matched by ``id``, never by name (L76).
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any, Literal

from stockade.model.turn import Outcome

MAX_EVENT = 1024 * 1024
"""Bytes of one encoded event; a longer one crosses as `Truncated` (F18)."""


@dataclass(frozen=True, slots=True)
class Started:
    """The engine accepted the turn."""

    engine: str
    model: str = ""
    kind: Literal["started"] = "started"


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the answer."""

    text: str
    kind: Literal["text"] = "text"


@dataclass(frozen=True, slots=True)
class Thinking:
    """A piece of the model's reasoning, where the engine shows it."""

    text: str
    kind: Literal["thinking"] = "thinking"


@dataclass(frozen=True, slots=True)
class ToolStart:
    """The agent calls a tool."""

    id: str
    name: str
    input: dict[str, Any] = field(default_factory=dict)
    kind: Literal["tool_start"] = "tool_start"


@dataclass(frozen=True, slots=True)
class ToolEnd:
    """The call with this id ended."""

    id: str
    output: str = ""
    is_error: bool = False
    kind: Literal["tool_end"] = "tool_end"


@dataclass(frozen=True, slots=True)
class Notice:
    """Something a person should know: a retry, a fallback, a denied permission."""

    message: str
    level: Literal["info", "warning", "error"] = "info"
    kind: Literal["notice"] = "notice"


@dataclass(frozen=True, slots=True)
class Unparsed:
    """Output of the agent that is not part of its protocol (F22)."""

    text: str
    kind: Literal["unparsed"] = "unparsed"


@dataclass(frozen=True, slots=True)
class Truncated:
    """An event of ``size`` bytes was over the cap; ``head`` is its beginning (F18)."""

    size: int
    head: str = ""
    kind: Literal["truncated"] = "truncated"


@dataclass(frozen=True, slots=True)
class Gap:
    """This reader was too slow and missed ``missed`` events (F87)."""

    missed: int
    kind: Literal["gap"] = "gap"


@dataclass(frozen=True, slots=True)
class Ended:
    """The last event of a turn."""

    outcome: Outcome
    kind: Literal["ended"] = "ended"


Event = Started | Text | Thinking | ToolStart | ToolEnd | Notice | Unparsed | Truncated | Gap | Ended


def encode(event: Event) -> bytes:
    """One line of JSON with its newline; over `MAX_EVENT` bytes the line of a `Truncated` instead."""
    line = _dump(_plain(event)).encode()
    if len(line) > MAX_EVENT:
        line = _dump(_plain(Truncated(len(line), line[:1024].decode()))).encode()
    return line + b"\n"


# `json.dumps` with separators makes a new encoder for each call, which costs as much as the rest of an event.
_dump = json.JSONEncoder(ensure_ascii=True, separators=(",", ":")).encode


def _plain(event: Event) -> dict[str, Any]:
    if type(event) is Ended:
        return dataclasses.asdict(event)
    return {name: getattr(event, name) for name in event.__slots__}
