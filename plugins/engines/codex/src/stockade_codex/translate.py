"""Notifications of the SDK to events and to the outcome. Importing this module imports the SDK."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Any

from openai_codex.generated.notification_registry import NOTIFICATION_MODELS
from openai_codex.generated.v2_all import (
    AgentMessageDeltaNotification,
    AgentMessageThreadItem,
    CommandExecutionThreadItem,
    ConfigWarningNotification,
    ContextCompactionThreadItem,
    ErrorNotification,
    FileChangeThreadItem,
    ItemCompletedNotification,
    ItemStartedNotification,
    McpServerStatusUpdatedNotification,
    McpToolCallThreadItem,
    ModelReroutedNotification,
    ReasoningSummaryTextDeltaNotification,
    ReasoningTextDeltaNotification,
    ReasoningThreadItem,
    ThreadTokenUsageUpdatedNotification,
    Turn,
    TurnCompletedNotification,
    TurnStartedNotification,
    WarningNotification,
    WebSearchThreadItem,
)
from openai_codex.models import Notification, UnknownNotification

from stockade.model.events import Event, Notice, Started, Text, Thinking, ToolEnd, ToolStart, Truncated, Unparsed
from stockade.model.fitting import fitting, pieces
from stockade.model.turn import Usage
from stockade_codex.inbox import Noise, Overlong, Refused

_SPLIT = 4096
"""Characters of a command that is taken apart: for long ones ``shlex`` takes a time that grows with the square."""

Tool = CommandExecutionThreadItem | FileChangeThreadItem | McpToolCallThreadItem | WebSearchThreadItem


class Translator:
    """The events of one turn of ``thread``; ``ended`` is its end once that came, ``usage`` what it has cost.

    ``awaited`` are the MCP servers that are still starting; it is kept up to date.
    """

    def __init__(self, thread: str, model: str, awaited: set[str]) -> None:
        self._thread = thread
        self._model = model
        self._awaited = awaited
        self._streamed: set[str] = set()
        self._unfinished = ""
        self._expected = ""
        self.turn = ""
        self.open: dict[str, str] = {}
        """Tool calls without an end: name by id."""
        self.usage = Usage()
        self.ended: Turn | None = None

    def events(self, message: Notification | Noise | Overlong | Refused) -> Iterator[Event]:
        """The events of one message, in order."""
        match message:
            case Noise():
                yield from map(Unparsed, pieces(message.text))
            case Overlong():
                yield Truncated(message.size, message.head)
            case Refused():
                yield Notice(f"Codex asked for an approval ({message.method}); the answer was no", "warning")
            case Notification():
                thread = getattr(message.payload, "thread_id", None)
                if thread in (None, self._thread):
                    yield from self._notification(message.method, message.payload)

    def unfinished(self) -> Iterator[Event]:
        """Ends for the tool calls that are still open when the turn is over."""
        for identity in self.open:
            yield ToolEnd(identity, "It still ran at the end of the turn, and was ended.", True)
        self.open.clear()

    def _notification(self, method: str, payload: Any) -> Iterator[Event]:
        match payload:
            case TurnStartedNotification():
                self.turn = payload.turn.id
                yield Started("codex", self._model)
            case TurnCompletedNotification() if payload.turn.id == self.turn:
                self.ended = payload.turn
            case AgentMessageDeltaNotification():
                self._streamed.add(payload.item_id)
                yield from self._text(payload.delta)
            case ReasoningTextDeltaNotification() | ReasoningSummaryTextDeltaNotification():
                self._streamed.add(payload.item_id)
                yield from map(Thinking, pieces(payload.delta))
            case ItemStartedNotification():
                yield from self._started(payload.item.root)
            case ItemCompletedNotification():
                yield from self._completed(payload.item.root)
            case ThreadTokenUsageUpdatedNotification() if payload.turn_id == self.turn:
                self._count(payload)
            case ErrorNotification() if payload.will_retry:
                self._expected, self._unfinished = self._unfinished, ""
                reason = payload.error.additional_details or payload.error.message
                yield Notice(f"The model call failed ({reason}); it is tried again", "warning")
            case WarningNotification():
                yield Notice(payload.message, "warning")
            case ConfigWarningNotification():
                yield Notice(f"{payload.summary} {payload.details or ''}".strip(), "warning")
            case ModelReroutedNotification():
                yield Notice(f"The model is {payload.to_model} instead of {payload.from_model}", "warning")
            case McpServerStatusUpdatedNotification() if payload.status.value != "starting":
                self._awaited.discard(payload.name)
                if payload.status.value != "ready":
                    yield Notice(f"The MCP server {payload.name} could not be used: {payload.error}", "warning")
            case UnknownNotification() if method in NOTIFICATION_MODELS:
                # A known one with an unknown shape; of an unknown one nobody waits for anything.
                yield from map(Unparsed, pieces(json.dumps({"method": method, "params": payload.params})))

    # -- text ------------------------------------------------------------------------------------

    def _text(self, text: str) -> Iterator[Event]:
        """What is new of ``text``: after a broken stream Codex asks again, and the answer often begins the same."""
        self._unfinished += text
        if self._expected:
            if self._expected.startswith(self._unfinished):
                return
            known = self._expected if self._unfinished.startswith(self._expected) else ""
            text, self._expected = self._unfinished[len(known) :], ""
        yield from map(Text, pieces(text))

    # -- items -----------------------------------------------------------------------------------

    def _started(self, item: Any) -> Iterator[Event]:
        if (call := _call(item)) is not None:
            self.open[call.id] = call.name
            yield from fitting(call)

    def _completed(self, item: Any) -> Iterator[Event]:
        match item:
            case AgentMessageThreadItem():
                # The deltas came already; a whole text is sent only when it was not streamed (L67).
                if item.id not in self._streamed:
                    yield from self._text(item.text)
                self._unfinished = self._expected = ""
            case ReasoningThreadItem():
                if item.id not in self._streamed:
                    for text in (item.content or item.summary) or ():
                        yield from map(Thinking, pieces(text))
            case ContextCompactionThreadItem():
                yield Notice("The conversation was compacted")
            case _ if (call := _call(item)) is not None:
                if self.open.pop(call.id, None) is None:
                    yield from fitting(call)
                yield from fitting(_end(item))

    def _count(self, update: ThreadTokenUsageUpdatedNotification) -> None:
        """``last`` is one model call; ``total`` goes over all turns of the conversation. Input includes the cached."""
        last, so_far = update.token_usage.last, self.usage
        written = last.cache_write_input_tokens or 0
        self.usage = Usage(
            so_far.input_tokens + max(0, last.input_tokens - last.cached_input_tokens - written),
            so_far.output_tokens + last.output_tokens,
            so_far.cache_read_tokens + last.cached_input_tokens,
            so_far.cache_write_tokens + written,
        )


def _call(item: Any) -> ToolStart | None:
    """The call that an item is; None for one that is no tool call."""
    match item:
        case CommandExecutionThreadItem():
            return ToolStart(item.id, "shell", {"command": _script(item.command)})
        case FileChangeThreadItem():
            changes = [change.model_dump(mode="json", exclude_none=True) for change in item.changes]
            return ToolStart(item.id, "apply_patch", {"changes": changes})
        case McpToolCallThreadItem():
            arguments = item.arguments if isinstance(item.arguments, dict) else {"arguments": item.arguments}
            return ToolStart(item.id, f"mcp__{item.server}__{item.tool}", arguments)
        case WebSearchThreadItem():
            return ToolStart(item.id, "web_search", {"query": item.query})
    return None


def _script(command: str) -> str:
    """What is run, without the shell that Codex puts before it: ``/bin/bash -lc 'ls'``."""
    if len(command) > _SPLIT:
        return command
    try:
        words = shlex.split(command)
    except ValueError:
        return command
    return words[2] if len(words) == 3 and words[1] in ("-c", "-lc") else command


def _end(item: Tool) -> ToolEnd:
    match item:
        case CommandExecutionThreadItem():
            return ToolEnd(item.id, item.aggregated_output or "", item.status.value != "completed")
        case FileChangeThreadItem():
            paths = "\n".join(change.path for change in item.changes)
            return ToolEnd(item.id, paths, item.status.value != "completed")
        case McpToolCallThreadItem():
            output = item.error.message if item.error is not None else ""
            if item.result is not None:
                output += "\n".join(map(_plain, item.result.content))
            return ToolEnd(item.id, output, item.status.value != "completed")
        case _:
            return ToolEnd(item.id)


def _plain(part: Any) -> str:
    if isinstance(part, dict) and part.get("type") == "text":
        return str(part.get("text", ""))
    return f"[{part.get('type', 'content') if isinstance(part, dict) else 'content'}]"
