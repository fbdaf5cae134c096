"""Which plugins are enabled: the allow-list and the deny-list, applied before any import.

Light enough for ``plugins list``: without a settings file, nothing is imported. `stockade.settings`
reads the same two settings through the functions here, so that both always agree.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from stockade.errors import SettingsError
from stockade.plugins.scan import EntryPoint, normalized

FILE = "stockade.toml"
"""The settings file in the current directory; ``STOCKADE_CONFIG`` names another."""


class Selection:
    """The settings ``plugins`` (``allow``; ``None``: everything) and ``plugins_disabled`` (``deny``).

    Both hold names of plugins or of distributions; a name counts for all groups. Denied wins.
    """

    __slots__ = ("allow", "deny")

    def __init__(self, allow: Iterable[str] | None = None, deny: Iterable[str] = ()) -> None:
        self.allow = None if allow is None else frozenset(allow)
        self.deny = frozenset(deny)

    def blocked_by(self, entry: EntryPoint) -> str:
        """The setting that disables ``entry``; empty when it is enabled."""
        if _named(entry, self.deny):
            return "plugins_disabled"
        if self.allow is not None and not _named(entry, self.allow):
            return "plugins"
        return ""

    def enabled(self, entry: EntryPoint) -> bool:
        """Whether ``entry`` may be imported."""
        return not self.blocked_by(entry)

    def unmatched(self, entries: Iterable[EntryPoint]) -> list[str]:
        """Names in the lists that nothing installed answers to: perhaps misspelt."""
        known = list(entries)
        names = (self.allow or frozenset()) | self.deny
        return sorted(name for name in names if not any(_named(entry, {name}) for entry in known))


def _named(entry: EntryPoint, names: Iterable[str]) -> bool:
    return any(name == entry.name or normalized(name) == normalized(entry.dist) for name in names)


def settings_file(environ: Mapping[str, str] = os.environ) -> str:
    """Path of the settings file; empty when there is none. `SettingsError` when the named one is missing."""
    named = environ.get("STOCKADE_CONFIG", "")
    if named and not os.path.isfile(named):
        raise SettingsError(
            f"settings file {named} does not exist", hint="Correct or unset the variable STOCKADE_CONFIG."
        )
    return named or (FILE if os.path.isfile(FILE) else "")


def read_file(path: str) -> dict[str, object]:
    """The tables of a settings file. Raises `SettingsError` with the line that is wrong."""
    import tomllib

    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror}", hint="Make it readable.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not TOML: {error}", hint="Correct that line.") from error


def parse_names(value: object) -> tuple[str, ...]:
    """Names from a list, from JSON text (``["a", "b"]``) or from text with commas (``a, b``).

    Raises `ValueError` for anything else, without repeating the value.
    """
    if isinstance(value, str):
        if value.lstrip().startswith("["):
            import json

            try:
                value = json.loads(value)
            except ValueError:
                raise ValueError('write a JSON list of names, as ["a", "b"], or names with commas') from None
        else:
            value = [part.strip() for part in value.split(",") if part.strip()]
    if not isinstance(value, (list, tuple, set, frozenset)) or not all(isinstance(item, str) for item in value):
        raise ValueError('write a list of names, as ["a", "b"]')
    return tuple(str(item) for item in value)


def read_selection(environ: Mapping[str, str] = os.environ) -> Selection:
    """The selection in force here, from the variables and the settings file. Raises `SettingsError`."""
    found: dict[str, tuple[str, ...] | None] = {"plugins": None, "plugins_disabled": None}
    path = settings_file(environ)
    table = read_file(path) if path else {}
    for name in found:
        variable = "STOCKADE_" + name.upper()
        value: object = environ.get(variable) or table.get(name)
        source = f"variable {variable}" if environ.get(variable) else f"{name} in {path}"
        if value is not None:
            try:
                found[name] = parse_names(value)
            except ValueError as error:
                raise SettingsError(f"{source}: {error}", hint=f"Correct or remove {source}.") from error
    return Selection(found["plugins"], found["plugins_disabled"] or ())
