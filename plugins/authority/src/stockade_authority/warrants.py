"""The warrant: what its claims are, and the only way to read them.

``docs/reference/warrants.md`` has the format. Every member is always there, so that a missing one is never
taken for a limit that nobody set; ``null`` is "no limit", which somebody said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stockade_authority.compact import MAX_NUMBER
from stockade_authority.errors import TokenMalformed

if TYPE_CHECKING:
    from stockade.model.authority import Claims

TYP = "stockade-warrant+jwt"
ISSUER = "stockade"
MAX_LIFETIME = 86400
"""Seconds that a warrant can be good for."""
BUDGETS = ("requests", "input_tokens", "output_tokens", "cost_microdollars")


@dataclass(frozen=True, slots=True)
class Budget:
    """What a *turn* may use up; ``None`` is no limit. All warrants of a turn share it."""

    requests: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_microdollars: int | None = None


@dataclass(frozen=True, slots=True)
class Warrant:
    """A genuine warrant. Times in whole seconds since the epoch; ``models`` is ``None`` for any, empty for none.

    ``id`` is what is revoked, ``key`` names the key that signed it.
    """

    id: str
    issuer: str
    sandbox: str
    audience: str
    issued: int
    not_before: int
    expires: int
    session: str
    turn: str
    user: str
    tier: int
    engine: str
    models: tuple[str, ...] | None
    budget: Budget
    pack: str = ""
    key: str = ""


def write(claims: Claims, *, id: str, issuer: str, now: float, lifetime: float) -> dict[str, Any]:
    """The members of a warrant for ``claims`` that lasts ``lifetime`` seconds, and never longer than they say."""
    issued = int(now)
    members: dict[str, Any] = {
        "iss": issuer,
        "sub": claims.sandbox,
        "aud": claims.audience,
        "jti": id,
        "iat": issued,
        "nbf": issued,
        "exp": int(min(claims.expires, now + lifetime)),
        "session": claims.session,
        "turn": claims.turn,
        "user": claims.user,
        "tier": claims.tier,
        "engine": claims.engine,
        "models": None if claims.models is None else list(claims.models),
        "budget": {name: _at_most(getattr(claims, name)) for name in BUDGETS},
    }
    return members | ({"pack": claims.pack} if claims.pack else {})


def read(members: Mapping[str, Any], key: str) -> Warrant:
    """The warrant with these members; others are passed over (RFC 7519 §4). Raises `TokenMalformed`."""
    budget = members.get("budget")
    models = members.get("models", ...)
    if not isinstance(budget, dict) or not budget.keys() >= set(BUDGETS):
        raise TokenMalformed("the budget is not an object with every limit")
    if models is not None and not (isinstance(models, list) and all(_is_text(name) for name in models)):
        raise TokenMalformed("the models are neither null nor a list of names")
    warrant = Warrant(
        id=_text(members, "jti", least=1),
        issuer=_text(members, "iss", least=1),
        sandbox=_text(members, "sub", least=1),
        audience=_text(members, "aud", least=1),
        issued=_number(members, "iat"),
        not_before=_number(members, "nbf"),
        expires=_number(members, "exp"),
        session=_text(members, "session"),
        turn=_text(members, "turn"),
        user=_text(members, "user"),
        tier=_number(members, "tier"),
        engine=_text(members, "engine"),
        models=None if models is None else tuple(models),
        budget=Budget(**{name: None if budget[name] is None else _number(budget, name) for name in BUDGETS}),
        pack=_text(members, "pack") if "pack" in members else "",
        key=key,
    )
    if warrant.expires > warrant.issued + MAX_LIFETIME:
        raise TokenMalformed(f"a warrant lasts {MAX_LIFETIME} s at most")
    return warrant


def _at_most(limit: float | None) -> int | None:
    return None if limit is None else int(min(limit, MAX_NUMBER))


def _is_text(value: object) -> bool:
    return isinstance(value, str) and (not value or value.isprintable())


def _text(members: Mapping[str, Any], name: str, least: int = 0) -> str:
    value = members.get(name)
    if not isinstance(value, str) or not _is_text(value) or len(value) < least:
        raise TokenMalformed(f"the member {name} is not a text as it must be")
    return value


def _number(members: Mapping[str, Any], name: str) -> int:
    value = members.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TokenMalformed(f"the member {name} is not a whole number of at least 0")
    return value
