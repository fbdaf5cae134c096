"""Maps a script's shell and write calls to whatever tools a request offers."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Literal

from stockade_gateway.rehearsal.script import Call, ShellItem, Write

_CWD = re.compile(r"(?:primary )?working directory: *(/[^\n<]*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call as a model would make it.

    ``kind`` is the dialect's item: ``function``, or Codex's own ``custom`` (free text, in
    ``arguments["input"]``) and ``local_shell``.
    """

    name: str
    arguments: dict[str, Any]
    kind: Literal["function", "custom", "local_shell"] = "function"


def offered(body: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The tools of a request by name, of all dialects, also where Codex hides them in the input."""
    found: dict[str, dict[str, Any]] = {}
    for tool in _tools(body):
        inner = tool.get("function")  # Chat Completions
        tool = inner if isinstance(inner, dict) else tool
        name = tool.get("name") or tool.get("type")
        if isinstance(name, str):
            found[name] = tool
    return found


def _tools(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    inputs = body.get("input")
    groups = [body.get("tools")]
    groups += [i.get("tools") for i in inputs if isinstance(i, dict)] if isinstance(inputs, list) else []
    for group in groups:
        for tool in group if isinstance(group, list) else ():
            if isinstance(tool, dict) and tool.get("type") == "namespace" and isinstance(tool.get("tools"), list):
                yield from (member for member in tool["tools"] if isinstance(member, dict))
            elif isinstance(tool, dict):
                yield tool


def choose(call: Call, tools: dict[str, dict[str, Any]], body: dict[str, Any]) -> ToolCall | None:
    """The tool call for a script's item; ``None`` when the request offers nothing that could do it."""
    if isinstance(call, ShellItem):
        return _shell(call.shell, tools)
    if "Write" in tools:
        return ToolCall("Write", {"file_path": _absolute(call.write.path, body), "content": call.write.content})
    return _shell(_write_command(call.write), tools)


def _shell(command: str, tools: dict[str, dict[str, Any]]) -> ToolCall | None:
    if "Bash" in tools:
        return ToolCall("Bash", {"command": command, "description": "Rehearsed command"})
    if "exec_command" in tools:
        return ToolCall("exec_command", {"cmd": command})
    if "shell_command" in tools:
        return ToolCall("shell_command", {"command": command})
    if "shell" in tools:
        return ToolCall("shell", {"command": ["bash", "-lc", command]})
    if "local_shell" in tools:
        action = {"type": "exec", "command": ["bash", "-lc", command], "env": {}}
        return ToolCall("local_shell", {"action": action}, "local_shell")
    if tools.get("exec", {}).get("type") == "custom":
        # Codex with its default model: a program in JavaScript, which calls the real tools.
        program = f"const r = await tools.exec_command({json.dumps({'cmd': command})}); text(r.output);"
        return ToolCall("exec", {"input": program}, "custom")
    return None


def _write_command(write: Write) -> str:
    path, folder = shlex.quote(write.path), shlex.quote(str(PurePosixPath(write.path).parent))
    return f"mkdir -p -- {folder} && printf %s {shlex.quote(write.content)} > {path}"


def _absolute(path: str, body: dict[str, Any]) -> str:
    """Claude's Write takes absolute paths only; the working directory is in the prompt it sends."""
    if path.startswith("/"):
        return path
    for text in _texts([body.get("system"), body.get("messages")]):
        if found := _CWD.search(text):
            return str(PurePosixPath(found.group(1).strip()) / path)
    return path


def _texts(value: Any) -> Iterator[str]:
    """Every text in a request, in order. Without recursion: how deep a body nests, its sender decides."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, list):
            waiting.extend(reversed(item))
        elif isinstance(item, dict):
            waiting.extend(reversed(item.values()))
