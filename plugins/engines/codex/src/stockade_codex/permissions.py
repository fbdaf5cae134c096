"""File access mapped to Codex's own sandbox. Standard library only.

| file access     | tier < 2                                       | tier 2                                    |
| --------------- | ---------------------------------------------- | ----------------------------------------- |
| read-only       | Codex's sandbox: reads everything, no network  | the same, or everything where it can't start |
| workspace-write | Codex's sandbox: writes in the workspace too   | everything                                |
| full            | everything                                     | everything                                |

Codex asks nobody anything: its approval policy is ``never``, so what its sandbox refuses stays refused (L65).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from stockade.model.turn import Turn

Mode = Literal["read-only", "workspace-write", "danger-full-access"]

APPROVALS = "never"
"""The SDK's own default is a reviewer, and its default answer to a question is yes."""

_READS = ("/bin/sh", "-c", ":")
_WRITES = ("/bin/sh", "-c", "test -w .")


@dataclass(frozen=True, slots=True)
class Permissions:
    """What Codex's commands may do.

    ``mode`` is for a thread. ``roots`` may be written besides the workspace. ``relaxed`` says that the driver's
    boundary stands in for Codex's sandbox where that cannot start (L37).
    """

    mode: Mode
    roots: tuple[str, ...] = ()
    relaxed: bool = False

    @property
    def policy(self) -> dict[str, Any]:
        """The sandbox policy, as the app-server's protocol has it. /tmp is not the sandbox's own: it stays closed."""
        if self.mode == "danger-full-access":
            return {"type": "dangerFullAccess"}
        if self.mode == "read-only":
            return {"type": "readOnly", "networkAccess": False}
        roots = list(self.roots)
        return {"type": "workspaceWrite", "writableRoots": roots, "networkAccess": False, "excludeSlashTmp": True}

    @property
    def probe(self) -> tuple[str, ...]:
        """A command that succeeds in the workspace exactly where the policy can be kept; empty without a sandbox."""
        return {"read-only": _READS, "workspace-write": _WRITES}.get(self.mode, ())


UNCONFINED = Permissions("danger-full-access")


def permissions(turn: Turn, workspace: Path, tier: int) -> Permissions:
    """The permissions of ``turn``. Only the driver's tier 2 relaxes anything (L37)."""
    if turn.file_access == "full" or (turn.file_access == "workspace-write" and tier >= 2):
        return UNCONFINED
    if turn.file_access == "read-only":
        return Permissions("read-only", relaxed=tier >= 2)
    return Permissions("workspace-write", tuple(str((workspace / path).resolve()) for path in turn.add_dirs))
