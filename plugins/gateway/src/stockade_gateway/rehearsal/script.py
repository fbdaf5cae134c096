"""Scripts: YAML lists, one item a model reply. ``thinking`` and ``delay`` belong to the reply after them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from stockade.errors import UsageError


class _Item(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Write(_Item):
    """A file; a relative path is meant from the agent's workspace."""

    path: str = Field(min_length=1)
    content: str


class Fault(_Item):
    """An HTTP error instead of a reply."""

    status: int = Field(ge=400, le=599)
    message: str = "scripted error"


class TextItem(_Item):
    """A plain answer; the agent's turn ends with it."""

    text: str


class ThinkingItem(_Item):
    """Reasoning before the next reply."""

    thinking: str


class ShellItem(_Item):
    """A shell command."""

    shell: str = Field(min_length=1)


class WriteItem(_Item):
    """A file to be written."""

    write: Write


class ToolsItem(_Item):
    """Several tool calls in one reply."""

    tools: list[ShellItem | WriteItem] = Field(min_length=2)


class ErrorItem(_Item):
    """A failed call."""

    error: Fault


class DelayItem(_Item):
    """Seconds before the next reply."""

    delay: float = Field(ge=0, le=3600)


class DisconnectItem(_Item):
    """The connection breaks in the middle of a reply."""

    disconnect: Literal[True]


Item = TextItem | ThinkingItem | ShellItem | WriteItem | ToolsItem | ErrorItem | DelayItem | DisconnectItem
Call = ShellItem | WriteItem

_KEYS: dict[str, type[_Item]] = {
    "text": TextItem,
    "thinking": ThinkingItem,
    "shell": ShellItem,
    "write": WriteItem,
    "tools": ToolsItem,
    "error": ErrorItem,
    "delay": DelayItem,
    "disconnect": DisconnectItem,
}


_EXAMPLES = {
    "text": "- text: Done.",
    "thinking": "- thinking: I look first.",
    "shell": "- shell: ls",
    "write": "- write: {path: hello.txt, content: Hello}",
    "tools": "- tools: [{shell: ls}, {shell: pwd}]",
    "error": "- error: {status: 529}",
    "delay": "- delay: 1.5",
    "disconnect": "- disconnect: true",
}


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model does for one request."""

    delay: float = 0.0
    thinking: str = ""
    text: str = ""
    calls: tuple[Call, ...] = ()
    fault: Fault | None = None
    disconnect: bool = False


@dataclass(frozen=True, slots=True)
class Script:
    """Replies in order; after the last one, ``end`` for ever."""

    name: str
    replies: tuple[Reply, ...]
    end: Reply


def names() -> list[str]:
    """The scripts that ship."""
    folder = resources.files("stockade_gateway") / "scripts"
    return sorted(f.name.removesuffix(".yaml") for f in folder.iterdir() if f.name.endswith(".yaml"))


def load(name: str) -> Script:
    """A script by name, or by path when it has a slash or a YAML ending. Raises `UsageError`."""
    if "/" in name or name.endswith((".yaml", ".yml")):
        path = Path(name)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"the script {name} cannot be read: {error}", hint="Give a UTF-8 YAML file.") from error
    elif name in names():
        text = (resources.files("stockade_gateway") / "scripts" / f"{name}.yaml").read_text(encoding="utf-8")
    else:
        raise UsageError(
            f"there is no rehearsal script {name!r}", hint=f"One of: {', '.join(names())}; or a path: ./{name}.yaml"
        )
    return parse(name, text)


def parse(name: str, text: str) -> Script:
    """Validate a script. Raises `UsageError` that names the item and what is wrong with it."""
    try:
        raw = yaml.safe_load(text)
    except yaml.YAMLError as error:
        hint = "Check its indentation, and quote texts that have a colon, a # or braces in them."
        raise UsageError(f"the script {name} is not YAML: {error}", hint=hint) from error
    if not isinstance(raw, list) or not raw:
        raise UsageError(f"the script {name} is not a list of replies", hint="Begin each item with: - text: …")
    return _script(name, [_item(name, number, item) for number, item in enumerate(raw, 1)])


def _item(name: str, number: int, item: Any) -> _Item:
    if not isinstance(item, dict) or len(item) != 1 or next(iter(item)) not in _KEYS:
        raise UsageError(
            f"item {number} of the script {name} is none of: {', '.join(_KEYS)}",
            hint="Each item has exactly one key, for example: - text: Done.",
        )
    key = next(iter(item))
    try:
        return TypeAdapter(_KEYS[key]).validate_python(item)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(p) for p in first["loc"])
        said = f"item {number} of the script {name}: {where}: {first['msg']}"
        raise UsageError(said, hint=f"Write it like this: {_EXAMPLES[key]}") from error


def _script(name: str, items: list[_Item]) -> Script:
    replies: list[Reply] = []
    delay, thinking = 0.0, ""
    for item in items:
        if isinstance(item, DelayItem):
            delay += item.delay
            continue
        if isinstance(item, ThinkingItem):
            thinking += item.thinking
            continue
        replies.append(_reply(item, delay, thinking))
        delay, thinking = 0.0, ""
    if delay or thinking:
        replies.append(Reply(delay, thinking, text="(end of the rehearsal)"))
    last = replies[-1]
    return Script(name, tuple(replies), Reply(text=last.text or "(end of the rehearsal)"))


def _reply(item: _Item, delay: float, thinking: str) -> Reply:
    if isinstance(item, TextItem):
        return Reply(delay, thinking, text=item.text)
    if isinstance(item, ToolsItem):
        return Reply(delay, thinking, calls=tuple(item.tools))
    if isinstance(item, (ShellItem, WriteItem)):
        return Reply(delay, thinking, calls=(item,))
    if isinstance(item, ErrorItem):
        return Reply(delay, thinking, fault=item.error)
    return Reply(delay, thinking, text="This reply will not be fin", disconnect=True)
