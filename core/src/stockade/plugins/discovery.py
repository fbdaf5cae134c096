"""Loads one plugin by its name. The only import of stevedore.

stevedore's `DriverManager` imports the entry point; its own search is answered by `scan`, because its
disk cache serves stale entries, loses the distribution, and is a file that names code to import.
Everything that can be wrong without importing is found before importing.
"""

from __future__ import annotations

import difflib
import importlib.metadata
import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Never

from stevedore.driver import DriverManager

from stockade.contracts.authority import TokenMinter
from stockade.contracts.driver import Driver
from stockade.contracts.engine import Engine
from stockade.errors import PluginAmbiguous, PluginBroken, PluginIncompatible, PluginNotFound
from stockade.plugins.scan import EntryPoint, of_kind
from stockade.plugins.selection import Selection

CONTRACTS: dict[str, type[Driver | Engine | TokenMinter]] = {
    "driver": Driver,
    "engine": Engine,
    "minter": TokenMinter,
}
"""Kind of a named plugin: the class that it must be a subclass of."""


@dataclass(frozen=True, slots=True)
class LoadedPlugin:
    """An imported entry point: a subclass of its kind's contract, or a hook module."""

    entry: EntryPoint
    obj: Any


class _Loader(DriverManager[Any]):
    """stevedore with one entry point that we already chose."""

    def __init__(self, entry: EntryPoint) -> None:
        self._entry = importlib.metadata.EntryPoint(entry.name, entry.value, entry.group)
        super().__init__(entry.group, entry.name)

    def list_entry_points(self) -> list[importlib.metadata.EntryPoint]:
        """Instead of stevedore's cache."""
        return [self._entry]


def load(kind: str, name: str, selection: Selection) -> LoadedPlugin:
    """Import the driver, engine, minter or hook module ``name`` and check it against its contract.

    Raises `PluginNotFound`, `PluginAmbiguous` (both before any import), `PluginBroken` or
    `PluginIncompatible`.
    """
    return load_entry(find(kind, name, selection))


def find(kind: str, name: str, selection: Selection) -> EntryPoint:
    """The one enabled entry point of this name, not imported."""
    installed = of_kind(kind)
    found = [entry for entry in installed if entry.name == name and selection.enabled(entry)]
    if not found:
        _not_found(kind, name, installed, selection)
    only(found)
    return found[0]


def only(found: Sequence[EntryPoint]) -> None:
    """Refuse several entry points of one name."""
    if len(found) > 1:
        first = found[0]
        offers = " and ".join(f"{entry.dist} {entry.version} ({entry.value})" for entry in found)
        raise PluginAmbiguous(
            f"{_label(first.kind)} {first.name!r} is offered by {offers}",
            plugin=first.name,
            hint="Uninstall one of them, or name its distribution in STOCKADE_PLUGINS_DISABLED: " + found[-1].dist,
        )


def load_entry(entry: EntryPoint) -> LoadedPlugin:
    """Import an entry point that was chosen, and check it."""
    try:
        obj = _Loader(entry).driver
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a plugin may call sys.exit or fail an assertion while it is imported
        raise PluginBroken(
            f"{_label(entry.kind)} {entry} cannot be imported from {entry.value!r}: {type(error).__name__}: {error}",
            plugin=entry.name,
            hint=_repair(entry),
        ) from error
    if entry.kind in CONTRACTS:
        _validate(entry, obj)
    elif inspect.isclass(obj):
        raise PluginBroken(
            f"hook module {entry} is the class {obj.__name__}; hooks of a class have no instance to run on",
            plugin=entry.name,
            hint="Publish a module, or an instance of the class.",
        )
    return LoadedPlugin(entry, obj)


def _validate(entry: EntryPoint, obj: object) -> None:
    contract = CONTRACTS[entry.kind]
    where = f"{contract.__module__}.{contract.__name__}"
    if not inspect.isclass(obj):
        raise PluginBroken(
            f"{entry.kind} {entry}: {entry.value!r} is a {type(obj).__name__}, not a subclass of {where}",
            plugin=entry.name,
            hint=f"The entry point must name a class. {_repair(entry)}",
        )
    # Before the base class: what was written for another major version may not inherit from this one.
    _check_version(entry, getattr(obj, "API_VERSION", None), contract.API_VERSION)
    if not issubclass(obj, contract):
        raise PluginBroken(
            f"{entry.kind} {entry}: class {obj.__name__} is not a subclass of {where}",
            plugin=entry.name,
            hint=_repair(entry),
        )
    missing = sorted(getattr(obj, "__abstractmethods__", ()))
    if missing:
        raise PluginBroken(
            f"{entry.kind} {entry}: class {obj.__name__} does not implement {', '.join(missing)}",
            plugin=entry.name,
            hint=f"See the docstrings of {where}. {_repair(entry)}",
        )


def _check_version(entry: EntryPoint, version: object, ours: tuple[int, int]) -> None:
    match version:
        case None:
            return  # not a subclass either: the next check says so
        case (int(major), int(minor)):
            pass
        case _:
            raise PluginBroken(
                f"{entry.kind} {entry}: API_VERSION must be two numbers, as (1, 0)",
                plugin=entry.name,
                hint=_repair(entry),
            )
    if major != ours[0] or minor > ours[1]:
        direction = "Upgrade stockade" if (major, minor) > ours else f"Upgrade {entry.dist}"
        raise PluginIncompatible(
            f"{entry.kind} {entry} is written for contract {major}.{minor}; this kernel has {ours[0]}.{ours[1]}",
            plugin=entry.name,
            hint=f"{direction}: pip install --upgrade {'stockade' if (major, minor) > ours else entry.dist}",
        )


def _label(kind: str) -> str:
    return "hook module" if kind == "hooks" else kind


def _repair(entry: EntryPoint) -> str:
    return f"Reinstall or upgrade {entry.dist}, or name {entry.name!r} in STOCKADE_PLUGINS_DISABLED."


def _not_found(kind: str, name: str, installed: Sequence[EntryPoint], selection: Selection) -> Never:
    label = _label(kind)
    for entry in installed:
        if entry.name == name:
            setting = selection.blocked_by(entry)
            verb = "takes it out" if setting == "plugins_disabled" else "does not have it"
            raise PluginNotFound(
                f"{label} {entry} is installed but not enabled: setting {setting} {verb}",
                plugin=name,
                hint=f"Change {setting} in stockade.toml or the variable STOCKADE_{setting.upper()}.",
            )
    names = [entry.name for entry in installed if selection.enabled(entry)]
    known = ", ".join(str(entry) for entry in installed if selection.enabled(entry)) or "none"
    close = difflib.get_close_matches(name, names, n=1)
    advice = [f"Did you mean {close[0]!r}?"] if close else []
    if re.fullmatch(r"[a-z0-9][a-z0-9_-]*", name):
        advice.append(f"Install it, for example with: pip install stockade-{name}")
    raise PluginNotFound(f"no {label} {name!r} is installed; installed: {known}", plugin=name, hint=" ".join(advice))
