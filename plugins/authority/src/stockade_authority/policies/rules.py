"""Allow and deny rules: what they match, and what follows from all of them together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Literal

from stockade.model.authority import SandboxRequest
from stockade.model.isolation import Isolation
from stockade_authority.policies.hours import Window

Effect = Literal["allow", "deny"]
Facts = Mapping[str, object]
"""What is known about a request, by field. ``None``: only the driver will know (`ATTESTED`)."""

ATTESTED = ("tier", "image")
"""Fields that are known only once there is a sandbox."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Matches when each of its fields has one of its values, unless the same is true of ``unless``."""

    effect: Effect
    name: str
    where: str
    """File and line, for messages."""
    fields: Mapping[str, Sequence[object]]
    unless: Mapping[str, Sequence[object]] = field(default_factory=dict)
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.effect} rule {self.name!r} ({self.where})"

    def matches(self, facts: Facts) -> bool | None:
        """``None`` while it depends on what only the driver will know."""
        # Of a set (the keys inside), one is enough to forbid and all are needed to permit.
        every = self.effect == "allow"
        wanted = _all(_meets(name, values, facts, every=every) for name, values in self.fields.items())
        if wanted is False or not self.unless:
            return wanted
        excepted = _all(_meets(name, values, facts, every=not every) for name, values in self.unless.items())
        return _all([wanted, None if excepted is None else not excepted])

    @property
    def waits_for(self) -> list[str]:
        """Those of its fields that only the driver knows."""
        return [name for name in ATTESTED if name in self.fields or name in self.unless]


@dataclass(frozen=True, slots=True)
class Answer:
    """What follows from the rules: whether it is allowed, and because of which rule (``None``: for lack of one)."""

    allowed: bool
    because: Rule | None
    open: tuple[Rule, ...] = ()
    """Rules that may still change the answer, once the driver has attested."""


def decide(rules: Sequence[Rule], facts: Facts) -> Answer:
    """Deny wins; without an allow rule everything else is allowed, with one nothing else is."""
    matched = [(rule, rule.matches(facts)) for rule in rules]
    waiting = tuple(rule for rule, match in matched if match is None)
    for rule, match in matched:
        if rule.effect == "deny" and match:
            return Answer(False, rule)
    allowing = [(rule, match) for rule, match in matched if rule.effect == "allow"]
    if not allowing:
        return Answer(True, None, waiting)
    for rule, match in allowing:
        if match:
            return Answer(True, rule, tuple(other for other in waiting if other.effect == "deny"))
    for rule, match in allowing:
        if match is None:
            return Answer(True, rule, waiting)
    return Answer(False, None)


def facts(request: SandboxRequest, isolation: Isolation | None, moment: datetime) -> dict[str, object]:
    """What is known about a request at ``moment`` (in the rules' zone), before or after its sandbox was made."""
    return {
        "driver": request.driver,
        "engine": request.engine,
        "user": request.user,
        "file_access": request.file_access,
        "provider_key": request.provider_keys,
        "pack": request.pack,
        "time": moment,
        "tier": None if isolation is None else isolation.tier,
        "image": None if isolation is None else isolation.image,
    }


def _meets(name: str, values: Sequence[object], facts: Facts, *, every: bool) -> bool | None:
    fact = facts[name]
    if fact is None:
        return None
    return MATCHERS[name](fact, values, every)


def _any_pattern(fact: object, values: Sequence[object], every: bool) -> bool:
    return any(fnmatchcase(str(fact), str(value)) for value in values)


def _keys(fact: object, values: Sequence[object], every: bool) -> bool:
    assert isinstance(fact, tuple)
    return bool(fact) and (all if every else any)(_any_pattern(key, values, every) for key in fact)


def _window(fact: object, values: Sequence[object], every: bool) -> bool:
    assert isinstance(fact, datetime)
    return any(isinstance(value, Window) and value.contains(fact) for value in values)


def _equal(fact: object, values: Sequence[object], every: bool) -> bool:
    return fact in values


MATCHERS: dict[str, Callable[[object, Sequence[object], bool], bool]] = {
    "driver": _any_pattern,
    "engine": _any_pattern,
    "user": _any_pattern,
    "image": _any_pattern,
    "pack": _any_pattern,
    "file_access": _equal,
    "tier": _equal,
    "provider_key": _keys,
    "time": _window,
}
"""How a field's values are compared with the fact."""


def _all(values: Iterable[bool | None]) -> bool | None:
    """Kleene's and."""
    found = list(values)
    if False in found:
        return False
    return None if None in found else True
