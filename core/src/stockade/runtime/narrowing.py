"""How the answers of several plugins become one: the narrowest wins, and a conflict is an error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from stockade.errors import PluginBroken, PluginError
from stockade.model.authority import ClaimLimits, Claims, Constraints
from stockade.model.providers import provider_keys
from stockade.model.turn import FILE_ACCESS
from stockade.plugins.answers import Answer

KERNEL_NAMES = frozenset({"PATH", "HOME", "TMPDIR", "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "IS_SANDBOX"})
"""Variables that no plugin may set, besides the prefixes below: the kernel's own, and the loader's."""
KERNEL_PREFIXES = ("STOCKADE_", "XDG_", "PYTHON")


def constraints(answers: Sequence[Constraints]) -> Constraints:
    """The smallest TTL, the narrowest file access, the highest tier, no provider keys once anybody says no."""
    keys = [answer.provider_keys for answer in answers if answer.provider_keys is not None]
    access = [answer.file_access for answer in answers if answer.file_access is not None]
    return Constraints(
        max_ttl=min((answer.max_ttl for answer in answers if answer.max_ttl is not None), default=None),
        file_access=min(access, key=FILE_ACCESS.index, default=None),
        provider_keys=all(keys) if keys else None,
        min_tier=max((answer.min_tier for answer in answers if answer.min_tier is not None), default=None),
    )


def claims(wanted: Claims, limits: Iterable[ClaimLimits]) -> Claims:
    """``wanted`` with every limit applied; no order of limits makes it wider."""
    for limit in limits:
        wanted = limit.narrow(wanted)
    return wanted


def environment(answers: Sequence[Answer[Mapping[str, str]]] | Sequence[Answer[dict[str, str]]]) -> dict[str, str]:
    """All variables. Raises `PluginError` with the plugins' and variables' names, never with a value."""
    merged: dict[str, str] = {}
    owner: dict[str, str] = {}
    for answer in answers:
        _refuse(answer.plugin, answer.value)
        for name, value in answer.value.items():
            if merged.setdefault(name, value) != value:
                raise PluginError(
                    f"plugins {owner[name]!r} and {answer.plugin!r} want different values for variable {name}",
                    plugin=answer.plugin,
                    hint=f"Configure them alike, or name one in STOCKADE_PLUGINS_DISABLED: "
                    f"{owner[name]} or {answer.plugin}",
                )
            owner.setdefault(name, answer.plugin)
    return merged


def _refuse(plugin: str, variables: Mapping[str, str]) -> None:
    keys = provider_keys(variables)
    if keys:
        raise PluginBroken(
            f"plugin {plugin!r} puts a model provider's key into the sandbox: {', '.join(keys)}",
            plugin=plugin,
            hint="Keys stay on the host: the model route adds them. A caller may opt in with --env-pass.",
        )
    for name, value in variables.items():
        if not (name.isidentifier() and name.isascii()) or "\0" in value:
            raise PluginBroken(
                f"plugin {plugin!r}: {name!r} cannot be an environment variable",
                plugin=plugin,
                hint="Letters, digits and _ in the name, no NUL in the value.",
            )
        if name in KERNEL_NAMES or name.startswith(KERNEL_PREFIXES):
            raise PluginBroken(
                f"plugin {plugin!r} sets {name}, which is the kernel's",
                plugin=plugin,
                hint="Choose another name.",
            )
