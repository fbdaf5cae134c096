"""Answers of hooks: whose they are, and whether they are of the type that the hook promises."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from stockade.errors import PluginBroken
from stockade.model.authority import ClaimLimits, Constraints
from stockade.model.turn import FILE_ACCESS

T = TypeVar("T")
C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """A value and the entry point name of the plugin that gave it."""

    plugin: str
    value: T


def expect(plugin: str, hook: str, value: object, kind: type[C]) -> C:
    """``value``, checked; `PluginBroken` names the plugin and the hook."""
    if isinstance(value, kind) and not inspect.isawaitable(value):
        return value
    raise wrong(plugin, hook, value, kind.__name__)


def expect_all(plugin: str, hook: str, value: object, kind: type[C]) -> list[C]:
    """A sequence of ``kind``, checked."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise wrong(plugin, hook, value, f"sequence of {kind.__name__}")
    for item in value:
        if isinstance(item, type) or not isinstance(item, kind):
            _close(value)
            raise wrong(plugin, hook, item, f"{kind.__name__} in the sequence")
    return list(value)


def expect_table(plugin: str, hook: str, value: object, kind: type[C]) -> dict[str, C]:
    """A mapping from names to ``kind``, checked."""
    if not isinstance(value, Mapping):
        raise wrong(plugin, hook, value, f"mapping of names to {kind.__name__}")
    for name, item in value.items():
        if not isinstance(name, str) or not name:
            raise wrong(plugin, hook, name, "name as key")
        if not isinstance(item, kind):
            _close(value)
            raise wrong(plugin, hook, item, f"{kind.__name__} under {name!r}")
    return dict(value)


def expect_constraints(plugin: str, value: object) -> Constraints:
    """Constraints whose fields can be compared: a NaN or a foreign word would silently be no limit."""
    answer = expect(plugin, "driver_constraints", value, Constraints)
    if answer.max_ttl is not None and not (_number(answer.max_ttl) and answer.max_ttl > 0):
        raise wrong(plugin, "driver_constraints", answer.max_ttl, "positive number as max_ttl")
    if answer.file_access is not None and answer.file_access not in FILE_ACCESS:
        raise wrong(plugin, "driver_constraints", answer.file_access, f"file_access of {', '.join(FILE_ACCESS)}")
    if answer.provider_keys is not None and not isinstance(answer.provider_keys, bool):
        raise wrong(plugin, "driver_constraints", answer.provider_keys, "bool as provider_keys")
    if answer.min_tier is not None and repr(answer.min_tier) not in ("0", "1", "2"):
        raise wrong(plugin, "driver_constraints", answer.min_tier, "tier 0, 1 or 2 as min_tier")
    return answer


def expect_limits(plugin: str, value: object) -> ClaimLimits:
    """Limits whose fields can be compared."""
    answer = expect(plugin, "token_claims", value, ClaimLimits)
    if answer.expires is not None and not (_number(answer.expires) and answer.expires >= 0):
        raise wrong(plugin, "token_claims", answer.expires, "number of at least 0 as expires")
    for name in ("requests", "input_tokens", "output_tokens", "cost_microdollars"):
        number = getattr(answer, name)
        if number is not None and not (isinstance(number, int) and _number(number) and number >= 0):
            raise wrong(plugin, "token_claims", number, f"whole number of at least 0 as {name}")
    models = answer.models
    if models is not None and not (isinstance(models, tuple) and all(isinstance(model, str) for model in models)):
        raise wrong(plugin, "token_claims", models, "tuple of names as models")
    return answer


def wrong(plugin: str, hook: str, value: object, expected: str) -> PluginBroken:
    """The error for an answer of another type; an abandoned coroutine is closed, so that it never warns."""
    _close(value)
    found = "coroutine" if inspect.iscoroutine(value) else type(value).__name__
    advice = "Hooks are synchronous: write def, not async def. " if inspect.isawaitable(value) else ""
    return PluginBroken(
        f"plugin {plugin!r}: hook {hook} answered with a {found}, not with a {expected}",
        plugin=plugin,
        hint=f"{advice}Correct the plugin, or name {plugin!r} in STOCKADE_PLUGINS_DISABLED.",
    )


def _close(value: object) -> None:
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else [value]
    for item in items:
        if inspect.iscoroutine(item):
            item.close()


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
