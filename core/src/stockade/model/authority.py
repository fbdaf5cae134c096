"""What is asked of policies and minters, and what they answer."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from stockade.model.isolation import Tier
from stockade.model.turn import FileAccess


@dataclass(frozen=True, slots=True)
class SandboxRequest:
    """A wish for a sandbox: what every policy and every ``request`` hook sees.

    ``engine`` is empty for a bare command. ``ttl`` is in seconds. ``env_pass`` are the names (never the
    values) of host variables the caller wants inside, ``provider_keys`` those of them that are keys of
    model providers. ``user`` is what the caller said; only a policy may believe it. ``pack`` is the digest
    of the signed pack that the sandbox is for, empty without one. ``dry_run``: somebody only wants to know
    the answer (``stockade admit``); a policy that counts must not count this.
    """

    sandbox: str
    key: str
    driver: str
    engine: str
    user: str
    session: str
    file_access: FileAccess
    workspace: Path
    ttl: float
    env_pass: tuple[str, ...] = ()
    provider_keys: tuple[str, ...] = ()
    add_dirs: tuple[Path, ...] = ()
    pack: str = ""
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """A wish for a turn: its id, its session, and the wish for the sandbox that it is to run in.

    ``sandbox.sandbox`` is the id of a sandbox only if this turn is the one that makes it; ``sandbox.key``
    is the key in any case.
    """

    turn: str
    session: str
    sandbox: SandboxRequest


@dataclass(frozen=True, slots=True)
class Verdict:
    """A policy's answer. Use `allow` and `deny`; anything else is a deny that names the policy.

    ``setting`` is the setting behind the answer, dotted (``plugin.corp.hours``), for whoever wants to change it.
    """

    allowed: bool
    reason: str = ""
    code: str = ""
    setting: str = ""

    @classmethod
    def allow(cls, reason: str = "", *, setting: str = "") -> Verdict:
        """Nothing against it."""
        return cls(True, reason, "", setting)

    @classmethod
    def deny(cls, reason: str, code: str = "denied", *, setting: str = "") -> Verdict:
        """No; ``reason`` is shown to the caller, ``code`` is for machines."""
        return cls(False, reason, code, setting)


@dataclass(frozen=True, slots=True)
class Constraints:
    """Limits on a sandbox from ``driver_constraints`` hooks. The narrowest of all wins.

    ``None`` means no opinion. ``max_ttl`` in seconds. ``min_tier`` is the least that the driver must attest.
    """

    max_ttl: float | None = None
    file_access: FileAccess | None = None
    provider_keys: bool | None = None
    min_tier: Tier | None = None


@dataclass(frozen=True, slots=True)
class Claims:
    """What a turn may do on a route; the minter signs it. Hooks may only narrow it.

    ``expires`` in seconds since the epoch, ``audience`` is the route. ``None`` means no limit; no models at
    all (an empty tuple) is no model. The budgets are those of the whole turn, whose tokens share them.
    ``pack`` is the digest of the signed pack that the turn is for, empty without one.
    """

    sandbox: str
    session: str
    turn: str
    user: str
    engine: str
    tier: int
    audience: str
    expires: float
    models: tuple[str, ...] | None = None
    requests: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_microdollars: int | None = None
    pack: str = ""


@dataclass(frozen=True, slots=True)
class ClaimLimits:
    """What a ``token_claims`` hook answers: the same claims, each ``None`` for no opinion."""

    expires: float | None = None
    models: tuple[str, ...] | None = None
    requests: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_microdollars: int | None = None

    def narrow(self, claims: Claims) -> Claims:
        """``claims`` with every limit at the smaller of the two; never wider."""
        changes: dict[str, object] = {}
        for name in ("expires", "requests", "input_tokens", "output_tokens", "cost_microdollars"):
            mine, theirs = getattr(self, name), getattr(claims, name)
            if mine is not None:
                changes[name] = mine if theirs is None else min(mine, theirs)
        if self.models is not None:
            allowed = self.models if claims.models is None else claims.models
            changes["models"] = tuple(sorted(set(self.models) & set(allowed)))
        return dataclasses.replace(claims, **changes)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Token:
    """A minted warrant. ``value`` is a secret: it never appears in a repr, log or event."""

    id: str
    value: str = dataclasses.field(repr=False)
    expires: float = 0.0
