"""Messages of the SDK to events and to the outcome. Importing this module imports the SDK."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from claude_agent_sdk import (
    AssistantMessage,
    Message,
    ResultMessage,
    StreamEvent,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)

from stockade.model.events import Event, Notice, Started, Text, Thinking, ToolEnd, ToolStart, Truncated, Unparsed
from stockade.model.fitting import fitting, pieces
from stockade.model.turn import FileAccess, Usage
from stockade_claude.process import NOISE, OVERLONG


class Translator:
    """The events of one turn. ``denied`` has the ids of calls that were refused through the SDK."""

    def __init__(self, access: FileAccess, denied: dict[str, str]) -> None:
        self._access = access
        self._denied = denied
        self._message = ""
        self._offered: frozenset[str] | None = None
        self._streamed: set[str] = set()
        self._unfinished = ""
        self._spoke = False
        self._announced: set[str] = set()
        self.native = ""
        self.error = ""

    def events(self, message: Message) -> Iterator[Event]:
        """The events of one message, in order."""
        match message:
            case StreamEvent(parent_tool_use_id=None):
                yield from self._delta(message.event)
            case AssistantMessage():
                yield from self._assistant(message)
            case UserMessage():
                yield from self._results(message)
            case SystemMessage():
                yield from self._system(message.subtype, message.data)
            case ResultMessage():
                yield from self._ending(message)

    def _delta(self, event: dict[str, Any]) -> Iterator[Event]:
        if event.get("type") == "message_start":
            self._message = str(event.get("message", {}).get("id", ""))
            self._unfinished = ""
        elif event.get("type") == "content_block_delta":
            delta = event.get("delta", {})
            if text := delta.get("text"):
                self._streamed.add(self._message)
                self._unfinished += text
                yield from self._text(text)
            elif thinking := delta.get("thinking"):
                self._streamed.add(self._message)
                yield from map(Thinking, pieces(thinking))

    def _rest(self, text: str) -> str:
        """What was not streamed of a whole text: after a broken stream Claude Code asks again without one."""
        sent = self._unfinished
        self._unfinished = sent[len(text) :] if sent.startswith(text) else ""
        return text[len(sent) :] if text.startswith(sent) else "" if self._unfinished else text

    def _text(self, text: str) -> Iterator[Event]:
        self._spoke = True
        yield from map(Text, pieces(text))

    def _assistant(self, message: AssistantMessage) -> Iterator[Event]:
        if message.error is not None:
            # Text that Claude Code wrote itself about a failed model call: it is the outcome's message.
            self.error = message.error
            return
        # The deltas of this message came already; a whole text is sent only when it was not streamed (L67).
        whole = message.message_id not in self._streamed and message.parent_tool_use_id is None
        if message.message_id in self._streamed:
            self._unfinished = ""
        for block in message.content:
            match block:
                case TextBlock() if whole:
                    yield from self._text(self._rest(block.text))
                case ThinkingBlock() if whole and block.thinking:
                    yield from map(Thinking, pieces(block.thinking))
                case ToolUseBlock():
                    if self._missing(block.name):
                        self._announced.add(block.id)
                        yield Notice(f"{block.name} is not allowed with file access {self._access}", "warning")
                    yield from fitting(ToolStart(block.id, block.name, block.input))

    def _missing(self, tool: str) -> bool:
        """Whether Claude Code did not offer it. A server's tools may come later than the list."""
        return self._offered is not None and tool not in self._offered and not tool.startswith("mcp__")

    def _results(self, message: UserMessage) -> Iterator[Event]:
        for block in message.content if isinstance(message.content, list) else ():
            if isinstance(block, ToolResultBlock):
                if reason := self._denied.get(block.tool_use_id):
                    self._announced.add(block.tool_use_id)
                    yield Notice(reason, "warning")
                yield from fitting(ToolEnd(block.tool_use_id, _plain(block.content), bool(block.is_error)))

    def _system(self, subtype: str, data: dict[str, Any]) -> Iterator[Event]:
        match subtype:
            case "init":
                self.native = str(data.get("session_id", ""))
                self._offered = frozenset(data["tools"]) if isinstance(data.get("tools"), list) else None
                yield Started("claude", str(data.get("model", "")))
                for server in data.get("mcp_servers", ()):
                    if server.get("status") == "failed":
                        yield Notice(f"The MCP server {server.get('name')} could not be reached", "warning")
            case "api_retry":
                reason = data.get("error_status") or "no connection"
                attempt = f"attempt {data.get('attempt')} of {data.get('max_retries')}"
                yield Notice(f"The model call failed ({reason}); it is tried again, {attempt}", "warning")
            case "compact_boundary":
                yield Notice("The conversation was compacted")
            case _ if subtype == NOISE:
                yield from map(Unparsed, pieces(str(data["text"])))
            case _ if subtype == OVERLONG:
                yield Truncated(int(data["size"]), str(data["head"]))

    def _ending(self, result: ResultMessage) -> Iterator[Event]:
        self.native = result.session_id
        for denial in result.permission_denials or ():
            if denial.get("tool_use_id") not in self._announced:
                yield Notice(f"{denial.get('tool_name')} was denied", "warning")
        if not self._spoke and not result.is_error and result.result:
            yield from self._text(result.result)


def answers(result: ResultMessage, prompt: str) -> bool:
    """Whether it is the end of the turn of the message ``prompt``, not of one that Claude Code started itself."""
    taken = result.user_message_uuids
    if taken is None and result.user_message_uuid is None:
        return result.origin is None
    return prompt in (taken or ()) or result.user_message_uuid == prompt


def usage(result: ResultMessage) -> Usage:
    """The tokens of the turn."""
    counts = result.usage or {}
    return Usage(
        *(
            int(counts.get(name) or 0)
            for name in ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        )
    )


def _plain(content: str | list[dict[str, Any]] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(
        part["text"] if part.get("type") == "text" else f"[{part.get('type', 'content')}]" for part in content
    )
