"""Events that fit on the wire, for engines whose agents send more at once. Standard library only."""

from __future__ import annotations

import json
from collections.abc import Iterator

from stockade.model.events import MAX_EVENT, Event, ToolEnd, ToolStart, Truncated, encode

PIECE = 64 * 1024
"""Characters of one delta: a long one is sent in pieces, because no event may be over `MAX_EVENT`."""

_CLIPPED = 32 * 1024


def pieces(text: str) -> Iterator[str]:
    """``text`` in parts of at most `PIECE` characters; none for an empty one."""
    return (text[start : start + PIECE] for start in range(0, len(text), PIECE))


def fitting(event: ToolStart | ToolEnd) -> Iterator[Event]:
    """The event; one over `MAX_EVENT` as a `Truncated` and a clipped event, so that its id is not lost (F18, L76)."""
    whole = event.output if isinstance(event, ToolEnd) else json.dumps(event.input)
    # A character takes twelve bytes there at most; `encode` gives the line of a Truncated for a long one.
    if len(whole) < MAX_EVENT // 16 or encode(event).startswith(b'{"id"'):
        yield event
        return
    yield Truncated(len(whole.encode(errors="replace")), whole[:1024])
    if isinstance(event, ToolEnd):
        yield ToolEnd(event.id, _clip(event.output), event.is_error)
    else:
        yield ToolStart(event.id, event.name, {"clipped": _clip(whole)})


def _clip(text: str) -> str:
    return f"{text[:_CLIPPED]}\n[{len(text) - _CLIPPED} more characters]" if len(text) > _CLIPPED else text
