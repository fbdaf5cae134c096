"""Requests and claims as the kernel makes them, to be changed where it matters. Without pytest."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stockade.model.authority import Claims, SandboxRequest


@dataclass(frozen=True)
class Requests:
    """Examples for a policy: what it allows, and what it denies."""

    allowed: Sequence[SandboxRequest] = field(default=())
    denied: Sequence[SandboxRequest] = field(default=())


def example_request(**changes: Any) -> SandboxRequest:
    """An ordinary wish for a sandbox, with the fields of `SandboxRequest` that are given."""
    request = SandboxRequest(
        sandbox="sb-1",
        key="person-work",
        driver="process",
        engine="claude",
        user="person",
        session="work",
        file_access="read-only",
        workspace=Path("/srv/work"),
        ttl=3600.0,
    )
    return dataclasses.replace(request, **changes)


def example_claims(**changes: Any) -> Claims:
    """An ordinary turn's claims, good for ten minutes, with the fields of `Claims` that are given."""
    claims = Claims(
        sandbox="sb-1",
        session="work",
        turn="turn-1",
        user="person",
        engine="claude",
        tier=0,
        audience="model",
        expires=float(int(time.time()) + 600),
    )
    return dataclasses.replace(claims, **changes)
