"""A turn as the engine sees it, and its one outcome. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

FileAccess = Literal["read-only", "workspace-write", "full"]
FILE_ACCESS: tuple[FileAccess, ...] = ("read-only", "workspace-write", "full")
Status = Literal["completed", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a route can be reached inside: ``url`` without a trailing slash, and a placeholder credential.

    ``key`` is not a secret of the vendor: it is random for each session, means nothing outside this
    route, and keeps other local processes from spending the budget (L70).
    """

    url: str
    key: str


@dataclass(frozen=True, slots=True)
class Turn:
    """One message to an engine. ``resume`` is the engine's own session id, from the state dir (L34)."""

    id: str
    session: str
    message: str
    model: str | None = None
    file_access: FileAccess = "read-only"
    routes: Mapping[str, Endpoint] = field(default_factory=dict)
    mcp_servers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    add_dirs: tuple[str, ...] = ()
    resume: str | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one turn."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a turn ended: exactly one a turn.

    ``code`` is empty for a completed turn, else the ``code`` of a `stockade.errors.StockadeError`: one of
    `ENDINGS` once the turn ran, or that of what kept it from running (``create_failed``, ``in_use``, …).
    ``native_session`` belongs to this outcome, not to the engine object (L79). ``seconds`` is stamped by the kernel.
    """

    status: Status
    code: str = ""
    message: str = ""
    hint: str = ""
    usage: Usage = Usage()
    native_session: str = ""
    seconds: float = 0.0
