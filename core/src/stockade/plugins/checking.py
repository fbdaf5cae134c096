"""The work of ``stockade plugins check``: import each plugin and compare it with its contract.

A *fault* is something that does not work; a *remark* something that works by luck. Disabled plugins
are not imported.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from stockade.errors import PluginError, PluginNotFound
from stockade.plugins.discovery import CONTRACTS, LoadedPlugin, find, load_entry, only
from stockade.plugins.hooks import implemented, new_manager, register
from stockade.plugins.scan import EntryPoint, of_kind, scan
from stockade.plugins.selection import Selection


@dataclass(frozen=True, slots=True)
class Finding:
    """The state of one plugin. ``api`` is its contract version, or the hooks that it answers."""

    entry: EntryPoint
    api: str = ""
    disabled_by: str = ""
    faults: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    error: PluginError | None = None

    @property
    def sound(self) -> bool:
        """Whether it can be used, or is not to be."""
        return not self.faults


def check(name: str, selection: Selection) -> list[Finding]:
    """Findings for all plugins, or for those called ``name``; raises `PluginNotFound` for none enabled."""
    entries = [entry for entry in scan() if not name or entry.name == name]
    if name and not any(selection.enabled(entry) for entry in entries):
        _none_enabled(name, entries, selection)
    return [_check(entry, selection) for entry in entries]


def _none_enabled(name: str, entries: list[EntryPoint], selection: Selection) -> None:
    if entries:
        find(entries[0].kind, name, selection)  # raises, and says which setting disables it
    known = ", ".join(sorted({entry.name for entry in scan() if selection.enabled(entry)})) or "none"
    raise PluginNotFound(
        f"no plugin {name!r} is installed; installed: {known}", plugin=name, hint="See: stockade plugins list"
    )


def _check(entry: EntryPoint, selection: Selection) -> Finding:
    setting = selection.blocked_by(entry)
    if setting:
        return Finding(entry, disabled_by=setting)
    try:
        only([other for other in of_kind(entry.kind) if other.name == entry.name and selection.enabled(other)])
        loaded = load_entry(entry)
        if entry.kind == "hooks":
            manager = new_manager()
            register(manager, loaded)
            hooks = implemented(manager)
            forgotten = "it answers no hook: was stockade.hookimpl forgotten?"
            return Finding(entry, api=", ".join(hooks), remarks=() if hooks else (forgotten,))
    except PluginError as error:
        return Finding(entry, faults=(str(error),), error=error)
    faults, remarks = tuple(_faults(loaded)), tuple(_remarks(loaded))
    return Finding(entry, api=".".join(map(str, loaded.obj.API_VERSION)), faults=faults, remarks=remarks)


def _faults(loaded: LoadedPlugin) -> Iterator[str]:
    """Methods that cannot take the arguments that the kernel gives."""
    contract = CONTRACTS[loaded.entry.kind]
    for name, ours in _methods(contract):
        theirs = inspect.getattr_static(loaded.obj, name)
        if theirs is inspect.getattr_static(contract, name):
            continue
        function = getattr(theirs, "__func__", theirs)
        if not callable(function):
            yield f"{name} is a {type(theirs).__name__}, not a method"
            continue
        try:
            theirs_signature = inspect.signature(function)
            theirs_signature.bind(*inspect.signature(ours).parameters)
        except TypeError as error:
            wanted = inspect.signature(ours)
            yield f"{name}{theirs_signature} cannot be called as {name}{wanted}: {error}"
        except ValueError:
            continue  # a function in C has no signature; it may well be right


def _remarks(loaded: LoadedPlugin) -> Iterator[str]:
    contract = CONTRACTS[loaded.entry.kind]
    between = loaded.obj.__mro__[: loaded.obj.__mro__.index(contract)]
    if not any("API_VERSION" in vars(cls) for cls in between):
        yield (
            f"it does not state API_VERSION (this kernel's is {contract.API_VERSION}), "
            "so a later kernel cannot tell what it was written for"
        )
    for name, ours in _methods(contract):
        theirs = getattr(loaded.obj, name)
        if inspect.iscoroutinefunction(ours) and not inspect.iscoroutinefunction(theirs):
            yield f"{name} is not declared async; it must return an awaitable"


def _methods(contract: type) -> list[tuple[str, Callable[..., object]]]:
    found: list[tuple[str, Callable[..., object]]] = []
    for name, value in vars(contract).items():
        function = getattr(value, "__func__", value)
        if inspect.isfunction(function) and (name == "__init__" or not name.startswith("_")):
            found.append((name, function))
    return found
