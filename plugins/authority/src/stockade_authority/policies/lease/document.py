"""What is signed: a lease, or its revocation. Both say of one name what holds from one moment on.

Claims, all needed: ``sub`` (the name), ``jti``, ``iat``, ``exp`` (seconds since the epoch), ``status``
(``active``, ``revoked``), ``stop`` (what happens to live sandboxes when it is over: ``ttl`` or ``now``), and
``max_ttl`` (longest life of a sandbox in seconds; 0: no limit). Whoever has several of one name goes by the newest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal, cast

from stockade_authority.signing import Keys, Signer

TYP = "stockade-lease+jwt"
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
"""What a lease may be called; it becomes a file's name and a part of a URL (L58)."""
SKEW = 60
"""Seconds by which two clocks may differ."""

Status = Literal["active", "revoked"]
Stop = Literal["ttl", "now"]


@dataclass(frozen=True, slots=True)
class Lease:
    """One of them. Times in seconds since the epoch."""

    name: str
    id: str
    issued: int
    expires: int
    status: Status = "active"
    stop: Stop = "ttl"
    max_ttl: int = 0

    def newer_than(self, other: Lease | None) -> bool:
        """Whether this one counts. Of two of one second, the revocation."""
        return other is None or (self.issued, self.status == "revoked") >= (other.issued, other.status == "revoked")


def seal(lease: Lease, signer: Signer) -> str:
    """The signed text."""
    from stockade_authority import compact

    claims = {
        "sub": lease.name,
        "jti": lease.id,
        "iat": lease.issued,
        "exp": lease.expires,
        "status": lease.status,
        "stop": lease.stop,
        "max_ttl": lease.max_ttl,
    }
    return compact.seal(claims, signer, TYP)


def unseal(text: str, name: str, keys: Keys, now: float) -> Lease:
    """The lease of this name in a signed text; it may be over.

    Raises `LeaseBadSignature`, `LeaseInvalid`, and `TrustError` when no key can be had.
    """
    from stockade_authority import compact
    from stockade_authority.errors import KeyUnknown, TokenForged, TokenRefused
    from stockade_authority.policies.lease.errors import LeaseBadSignature, LeaseInvalid

    try:
        claims, _ = compact.unseal(text.strip(), TYP, keys)
    except (TokenForged, KeyUnknown) as error:
        raise LeaseBadSignature(
            f"the lease {name!r} is not signed by a trusted key: {error.message}",
            hint="If its server has a new key, publish the set anew: stockade keys jwks --out FILE",
        ) from error
    except TokenRefused as error:
        raise LeaseInvalid(f"the lease {name!r} cannot be read: {error.message}", hint=_HINT) from error
    if _fault(claims):
        raise LeaseInvalid(f"the lease {name!r} cannot be read: {_fault(claims)}", hint=_HINT)
    if claims["sub"] != name:
        raise LeaseInvalid(f"this is the lease of another name than {name!r}", hint=_HINT)
    if claims["iat"] > now + SKEW:
        raise LeaseInvalid(f"the lease {name!r} is from the future: a clock is wrong", hint="Set this host's clock.")
    return Lease(
        name,
        claims["jti"],
        claims["iat"],
        claims["exp"],
        cast(Status, claims["status"]),
        cast(Stop, claims["stop"]),
        claims["max_ttl"],
    )


_HINT = "Make one with `stockade lease issue`, and give the file or URL of that."
_TYPES = {"sub": str, "jti": str, "iat": int, "exp": int, "status": str, "stop": str, "max_ttl": int}


def _fault(claims: dict[str, Any]) -> str:
    if claims.keys() != _TYPES.keys() or any(type(claims[name]) is not kind for name, kind in _TYPES.items()):
        return "it has other claims than a lease"
    if claims["status"] not in ("active", "revoked") or claims["stop"] not in ("ttl", "now"):
        return "its status or stop has no meaning"
    if not 0 <= claims["iat"] < claims["exp"] or claims["max_ttl"] < 0:
        return "its times are impossible"
    return ""
