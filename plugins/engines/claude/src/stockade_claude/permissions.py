"""File access mapped to Claude Code's permissions. Standard library only.

| file access     | tier < 2                                          | tier 2         |
| --------------- | ------------------------------------------------- | -------------- |
| read-only       | Read, Grep, Glob in the workspace, MCP tools      | the same       |
| workspace-write | file tools in the workspace, Bash, MCP tools      | everything     |
| full            | everything                                        | everything     |

Below tier 2 nothing is bypassed: every call that Claude Code would ask a person about is answered by
`Permissions.refusal`. **A shell is not confined there**: with workspace-write at tier 0 the file tools
stay inside the workspace, but a Bash command can write wherever the sandbox's user can.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stockade.model.turn import FileAccess, Turn

READING = ("Read", "Grep", "Glob")
QUESTIONS = ("AskUserQuestion", "EnterPlanMode", "ExitPlanMode")
"""Tools that wait for a person. They are not offered, and refused should they be called (L65)."""

LATER = ("CronCreate", "Monitor", "ScheduleWakeup", "Workflow")
"""Tools that start work after the outcome, when no turn is there for it."""

_PATHS = {"Read": "file_path", "Write": "file_path", "Edit": "file_path", "MultiEdit": "file_path"}
_PATHS |= {"NotebookEdit": "notebook_path", "Grep": "path", "Glob": "path", "LS": "path"}
_OUTSIDE = ("WebFetch", "WebSearch")


@dataclass(frozen=True, slots=True)
class Permissions:
    """What one session may do. ``roots`` are the workspace and the added directories, resolved."""

    access: FileAccess
    arguments: tuple[str, ...]
    roots: tuple[Path, ...]
    inside_sandbox: bool

    def refusal(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """Why a call is refused, written for the model; empty when it may run."""
        if tool in QUESTIONS:
            return "Nobody is there to answer. Decide yourself and go on."
        if self.access == "full" or self.inside_sandbox:
            return ""
        if self.access == "read-only":
            return f"File access is read-only: {tool} is not allowed."
        if tool in _OUTSIDE:
            return f"{tool} leaves the workspace; it needs file access full."
        if (name := _PATHS.get(tool)) and (path := arguments.get(name)) and not self._inside(str(path)):
            return f"{path} is outside the workspace; it needs file access full."
        return ""

    def _inside(self, path: str) -> bool:
        """Resolves symbolic links first: a link in the workspace does not open what it points to."""
        resolved = (self.roots[0] / path).resolve()
        return any(resolved.is_relative_to(root) for root in self.roots)


def permissions(turn: Turn, workspace: Path, tier: int) -> Permissions:
    """The permissions of ``turn``. Only the driver's tier 2 relaxes anything (L37)."""
    roots = tuple((workspace / path).resolve() for path in (".", *turn.add_dirs))
    relaxed = tier >= 2 and turn.file_access != "read-only"
    if turn.file_access == "read-only":
        servers = [f"mcp__{re.sub('[^a-zA-Z0-9_-]', '_', name)}" for name in turn.mcp_servers]
        arguments = ["--permission-mode", "dontAsk", "--restricted", "--tools", ",".join(READING)]
        arguments += ["--allowedTools", ",".join((*READING, *servers))]
    elif relaxed:
        arguments = ["--permission-mode", "bypassPermissions"]
    else:
        arguments = ["--permission-mode", "default"]
    arguments += ["--permission-prompt-tool", "stdio", "--disallowedTools", ",".join((*QUESTIONS, *LATER))]
    return Permissions(turn.file_access, tuple(arguments), roots, relaxed)
