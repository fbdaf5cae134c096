"""File access mapped to what Cursor's bridge enforces. Standard library only.

| file access     | tier < 2                                         | tier 2      |
| --------------- | ------------------------------------------------ | ----------- |
| read-only       | reading tools; the bridge's read-only sandbox    | the same    |
| workspace-write | the bridge's sandbox: workspace and ``add_dirs`` | everything  |
| full            | everything                                       | everything  |

The lists of tools are obeyed by the *vendor's backend*: the bridge only sends them along, and would run a tool that
is not on them. Its sandbox is what holds here. Where it cannot start, the bridge refuses the agent: never unconfined.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stockade.model.turn import FileAccess

READING = ("read", "grep", "glob", "ls", "readLints", "readTodos", "updateTodos")

QUESTIONS = ("askQuestion",)
"""Tools that wait for a person (L65)."""

OUTSIDE = ("mcp", "task", "webFetch", "webSearch")
"""Not offered in the bridge's sandbox: MCP calls are refused there, and nobody has shown that it holds the others."""


@dataclass(frozen=True, slots=True)
class Permissions:
    """What one session may do. ``policy`` is the content of the bridge's ``sandbox.json``; None for no sandbox."""

    policy: dict[str, Any] | None
    tools: tuple[str, ...] | None
    disallowed: tuple[str, ...]


def permissions(access: FileAccess, tier: int, writable: tuple[str, ...]) -> Permissions:
    """The permissions of a turn; ``writable`` are the paths besides the workspace that workspace-write opens.

    Only the driver's tier 2 relaxes anything (L37), and never read-only.
    """
    if access == "read-only":
        return Permissions({"type": "workspace_readonly"}, READING, (*QUESTIONS, *OUTSIDE))
    if access == "workspace-write" and tier < 2:
        policy = {"type": "workspace_readwrite", "disableTmpWrite": True, "additionalReadwritePaths": list(writable)}
        return Permissions(policy, None, (*QUESTIONS, *OUTSIDE))
    return Permissions(None, None, QUESTIONS)
