"""Observers and workspace preparation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Record:
    """One thing that happened. ``seq`` grows by one in a kernel (F91); ``time`` is seconds since the epoch.

    ``kind`` is an event's kind (``text`` …) or one of the kernel's: ``sandbox_created``,
    ``sandbox_ended``, ``admitted``, ``denied``, ``token_minted``, ``tokens_revoked``. ``data`` is JSON.
    """

    seq: int
    time: float
    kind: str
    sandbox: str = ""
    session: str = ""
    turn: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)


class Observer(ABC):
    """Sees every record, in order. Its errors and slowness hurt nobody else (F89)."""

    @abstractmethod
    async def on_event(self, record: Record) -> None:
        """Called for one record at a time. A slow observer gets ``gap`` records instead of a backlog."""


class Preparation(ABC):
    """Something to do to a workspace before the engine sees it."""

    @abstractmethod
    async def apply(self, workspace: Path) -> None:
        """Called once a sandbox, before it is created, in the order of the plugins' names.

        An error fails the creation.
        """
