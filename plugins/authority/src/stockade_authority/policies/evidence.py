"""What the kernel decided and made, in the evidence log: no content, no secrets, no text of an agent."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stockade.contracts.lifecycle import Observer, Record
from stockade.runtime.evidence import EvidenceLog

if TYPE_CHECKING:
    from stockade.settings import Settings

_VERDICT = ("step", "key", "driver", "engine", "user", "file_access", "provider_keys", "pack", "tier", "image")
FIELDS: Mapping[str, tuple[str, ...]] = {
    "admitted": _VERDICT,
    "denied": _VERDICT,
    "sandbox_created": (
        "tier", "processes", "filesystem", "network", "user", "resources", "nested", "provider_key", "image"
    ),
    "sandbox_ended": ("reason",),
    "token_minted": ("id",),
    "tokens_revoked": ("ids",),
    "gap": ("missed",),
}  # fmt: skip
"""Kinds of records that are evidence, with what is kept of each; all others are left out."""

_DECISION = ("policy", "plugin", "allowed", "code", "reason", "setting", "seconds")


class Evidence(Observer):
    """Writes each record of `FIELDS` as one line."""

    def __init__(self, log: EvidenceLog) -> None:
        self._log = log

    async def on_event(self, record: Record) -> None:
        if record.kind in FIELDS:
            await asyncio.to_thread(self._log.append, line(record))


def line(record: Record) -> dict[str, Any]:
    """The line of one record. ``seq`` counts in one kernel, which ``process`` (a PID) runs."""
    found: dict[str, Any] = {
        "time": round(record.time, 3),
        "kind": record.kind,
        "process": os.getpid(),
        "seq": record.seq,
        "sandbox": record.sandbox,
        "session": record.session,
        "turn": record.turn,
    }
    found |= {name: record.data[name] for name in FIELDS[record.kind] if name in record.data}
    if "decisions" in record.data:
        found["decisions"] = [_decision(decision) for decision in record.data["decisions"]]
    return found


def _decision(decision: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: decision[name] for name in _DECISION}
    if kept["code"] == "error":
        kept["reason"] = kept["reason"].partition(":")[0]  # the text of a foreign exception may hold anything
    return kept


def observers(settings: Settings) -> list[Observer]:
    """The evidence of one kernel."""
    return [Evidence(EvidenceLog(settings.home))]
