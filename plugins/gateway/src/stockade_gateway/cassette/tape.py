"""The format of a cassette: JSON lines, a head and then a line a call. ``docs/how-to/record-and-replay.md`` has it.

An answer is kept as ``events`` (the texts of a stream, cut between two events), as ``json``, or as ``text``;
what is no UTF-8 as ``base64``.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stockade.errors import UsageError

VERSION = 1
KIND = "stockade-cassette"
MAX_SIZE = 1024**3
"""Bytes of a cassette."""

_EVENT = re.compile(rb".*?(?:\r\n\r\n|\n\n|\r\r)|.+", re.DOTALL)


class Line(BaseModel):
    """One call, and its answer. ``whole`` is false where the answer was broken off."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, strict=True)

    session: Annotated[int, Field(ge=1)]
    call: Annotated[int, Field(ge=1)]
    asked: dict[str, Any]
    status: Annotated[int, Field(ge=200, le=599)]
    headers: dict[str, str]
    events: list[str] | None = None
    json_: Annotated[Any, Field(alias="json")] = None
    text: str | None = None
    base64: str | None = None
    whole: bool

    def pieces(self) -> list[bytes]:
        """The answer as it is to be sent: an event each, or all at once."""
        if self.events is not None:
            return [event.encode() for event in self.events]
        if self.text is not None:
            return [self.text.encode()]
        if self.base64 is not None:
            return [base64.b64decode(self.base64, validate=True)]
        return [json.dumps(self.json_, ensure_ascii=False).encode()]


@dataclass(frozen=True, slots=True)
class Cassette:
    """The calls of each recorded session, in their order. ``name`` is the file's."""

    name: str
    sessions: tuple[tuple[Line, ...], ...]


def head() -> str:
    """The first line."""
    return json.dumps({"kind": KIND, "version": VERSION}) + "\n"


def load(path: Path) -> Cassette:
    """Read a cassette. Raises `UsageError` that names the line."""
    try:
        if path.stat().st_size > MAX_SIZE:
            raise UsageError(f"the cassette {path} is over {MAX_SIZE} bytes", hint="Record shorter runs.")
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        hint = "Give a file that --record wrote."
        raise UsageError(f"the cassette {path} cannot be read: {error}", hint=hint) from error
    if not is_head(lines[0]):
        raise UsageError(
            f"{path} is no cassette of version {VERSION}",
            hint="Give a file that --record wrote; one of another version has to be recorded again.",
        )
    sessions: dict[int, list[Line]] = {}
    for number, text in enumerate(lines[1:], 2):
        if text:
            line = _line(path, number, text)
            sessions.setdefault(line.session, []).append(line)
    ordered = (tuple(sorted(lines, key=lambda line: line.call)) for _, lines in sorted(sessions.items()))
    return Cassette(path.name, tuple(ordered))


def is_head(text: str) -> bool:
    """Whether this is the first line of a cassette of this version."""
    try:
        first = json.loads(text)
    except ValueError:
        return False
    return isinstance(first, dict) and (first.get("kind"), first.get("version")) == (KIND, VERSION)


def _line(path: Path, number: int, text: str) -> Line:
    try:
        line = Line.model_validate_json(text)
        line.pieces()
        return line
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        said = f"{'.'.join(str(part) for part in first['loc']) or 'the line'}: {first['msg']}"
    except ValueError as error:
        said = str(error)
    raise UsageError(f"line {number} of the cassette {path} is wrong: {said}", hint="Record it again.")


def cut(data: bytes) -> Iterator[bytes]:
    """A stream, cut behind each event. What follows the last boundary is a piece too."""
    return (match.group() for match in _EVENT.finditer(data))
