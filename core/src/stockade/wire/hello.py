"""HELLO and the JSON objects that frames carry. Standard library only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stockade.errors import ProtocolError

PROTOCOL = 1
MAX_OPEN = 256 * 1024
"""Bytes of the JSON of HELLO, OPEN and RESET."""


@dataclass(frozen=True, slots=True)
class Hello:
    """The first frame of each side."""

    capabilities: tuple[str, ...] = ()
    epoch: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    protocol: int = PROTOCOL

    def encode(self) -> bytes:
        """The payload of the HELLO frame."""
        return dump_object(
            {
                "protocol": self.protocol,
                "capabilities": list(self.capabilities),
                "epoch": self.epoch,
                "facts": dict(self.facts),
            }
        )

    @classmethod
    def decode(cls, payload: bytes) -> Hello:
        """Validate a peer's HELLO. Raises `ProtocolError`, also for another protocol version."""
        body = load_object(payload, "HELLO")
        protocol, capabilities = body.get("protocol"), body.get("capabilities", [])
        epoch, facts = body.get("epoch", ""), body.get("facts", {})
        if protocol != PROTOCOL:
            raise ProtocolError(
                f"the peer speaks protocol {protocol!r}, this side {PROTOCOL}",
                hint="Install the same minor version of stockade on both sides.",
            )
        if not isinstance(capabilities, list) or not all(isinstance(c, str) for c in capabilities):
            raise ProtocolError("HELLO with malformed capabilities")
        if not isinstance(epoch, str) or not isinstance(facts, dict):
            raise ProtocolError("HELLO with a malformed epoch or facts")
        return cls(tuple(capabilities), epoch, facts, protocol)


def dump_object(value: Mapping[str, Any]) -> bytes:
    """JSON bytes of an object."""
    return json.dumps(value, separators=(",", ":")).encode()


def load_object(payload: bytes, what: str) -> dict[str, Any]:
    """The object in ``payload``. Raises `ProtocolError` that names ``what``."""
    if len(payload) > MAX_OPEN:
        raise ProtocolError(f"{what} of {len(payload)} bytes is over the cap of {MAX_OPEN}")
    try:
        body = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"{what} is not JSON") from error
    if not isinstance(body, dict):
        raise ProtocolError(f"{what} is not a JSON object")
    return body
