"""Messages of the SDK to events and to the outcome. Importing this module imports the SDK."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from cursor_sdk import (
    RunResult,
    RunStreamEvent,
    SDKAssistantMessage,
    SDKRequestMessage,
    SDKStatusMessage,
    SDKTaskMessage,
    SDKThinkingMessage,
    SDKToolUseMessage,
    TextBlock,
    TokenUsage,
    ToolUseBlock,
)

from stockade.model.events import Event, Notice, Started, Text, Thinking, ToolEnd, ToolStart, Unparsed
from stockade.model.fitting import fitting, pieces
from stockade.model.turn import Usage
from stockade_cursor.deltas import Deltas


class Translator:
    """The events of one turn, in the order of the SDK's. ``model`` is what the turn was started with."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._started = False
        self._spoke = False
        self._text = Deltas()
        self._thinking = Deltas()
        self._open: set[str] = set()
        self._ended: set[str] = set()
        self.error = ""
        self.result: RunResult | None = None

    def events(self, event: RunStreamEvent) -> Iterator[Event]:
        """The events of one message; ``result`` is set with the one that ends the run."""
        if not self._started:
            self._started = True
            yield Started("cursor", self._model)
        if event.result is not None:
            self.result = RunResult.from_json(event.result)
            yield from self._ending(self.result.result)
        match event.sdk_message:
            case SDKAssistantMessage() as message:
                yield from self._assistant(message)
            case SDKThinkingMessage(text=text):
                yield from self._close_text()
                yield from map(Thinking, pieces(self._thinking.add(text)))
            case SDKToolUseMessage() as message:
                yield from self._close_text()
                yield from self._close_thinking()
                yield from self._tool(message)
            case SDKStatusMessage(status="ERROR", message=said):
                self.error = said
            case SDKTaskMessage(text=text) if text:
                yield Notice(text)
            case SDKRequestMessage():
                yield Notice("Cursor asks a person something; nobody is there to answer", "warning")
            case Mapping() as unknown:
                yield from map(Unparsed, pieces(json.dumps(unknown)))

    def _assistant(self, message: SDKAssistantMessage) -> Iterator[Event]:
        yield from self._close_thinking()
        for block in message.message.content:
            match block:
                case TextBlock(text=text):
                    yield from self._say(self._text.add(text))
                case ToolUseBlock(id=identity, name=name, input=arguments):
                    yield from self._close_text()
                    yield from self._start(identity, name, arguments)

    def _tool(self, message: SDKToolUseMessage) -> Iterator[Event]:
        """A call and its end, matched by id (L76). A call may be reported more than once while it runs."""
        if message.call_id in self._ended:
            return
        yield from self._start(message.call_id, message.name, message.args)
        if message.status != "running":
            self._ended.add(message.call_id)
            failed = message.status == "error" or _failed(message.result)
            yield from fitting(ToolEnd(message.call_id, _plain(message.result), failed))

    def _start(self, identity: str, name: str, arguments: Any) -> Iterator[Event]:
        if identity not in self._open:
            self._open.add(identity)
            given = dict(arguments) if isinstance(arguments, Mapping) else {"value": arguments} if arguments else {}
            yield from fitting(ToolStart(identity, name, given))

    def _ending(self, whole: str) -> Iterator[Event]:
        """The final text is sent only when nothing streamed (L67)."""
        yield from self._close_thinking()
        yield from self._say(self._text.end(whole))
        if not self._spoke:
            yield from self._say(whole)

    def _close_text(self) -> Iterator[Event]:
        yield from self._say(self._text.end())

    def _close_thinking(self) -> Iterator[Event]:
        yield from map(Thinking, pieces(self._thinking.end()))

    def _say(self, text: str) -> Iterator[Event]:
        self._spoke = self._spoke or bool(text)
        yield from map(Text, pieces(text))


def usage(tokens: TokenUsage | None) -> Usage:
    """The tokens of the turn."""
    if tokens is None:
        return Usage()
    return Usage(tokens.input_tokens, tokens.output_tokens, tokens.cache_read_tokens, tokens.cache_write_tokens)


def _failed(result: Any) -> bool:
    """Whether the call did not do what it should: refused, broken, or a command with an exit status that is not 0."""
    if not isinstance(result, Mapping):
        return False
    value = result.get("value")
    return result.get("status") == "error" or (isinstance(value, Mapping) and bool(value.get("exitCode")))


def _plain(result: Any) -> str:
    return result if isinstance(result, str) else "" if result is None else json.dumps(result, ensure_ascii=False)
