"""Reads a file of rules, and says of everything wrong in which rule and line."""

from __future__ import annotations

import difflib
import re
import tomllib
import zoneinfo
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from pathlib import Path
from typing import Any, cast

from stockade.errors import SettingsError
from stockade.model.turn import FILE_ACCESS
from stockade_authority.policies import hours
from stockade_authority.policies.rules import MATCHERS, Effect, Rule

SETTING = "plugin.authority.rules"
_HEADER = re.compile(r"\s*\[\[\s*(allow|deny)\s*\]\]")


@dataclass(frozen=True, slots=True)
class RuleFile:
    """The rules in the order of the file, and the zone that their times are meant in."""

    path: Path
    rules: tuple[Rule, ...]
    zone: tzinfo


def read(path: Path) -> RuleFile:
    """The rules of a file. Raises `SettingsError` with every fault that it has."""
    try:
        text = path.read_text(encoding="utf-8")
        values = tomllib.loads(text)
    except OSError as error:
        raise SettingsError(
            f"cannot read the rules {path}: {error.strerror}", hint=f"Correct the setting {SETTING}, or the file."
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"the rules {path} are not TOML: {error}", hint="Correct that line.") from error
    return _Reading(path, text).file(values)


class _Reading:
    def __init__(self, path: Path, text: str) -> None:
        self._path = path
        self._lines = text.splitlines()
        self._faults: list[str] = []
        self._names: set[str] = set()

    def file(self, values: Mapping[str, Any]) -> RuleFile:
        for name in values.keys() - {"allow", "deny", "timezone"}:
            self._fault(self._line_of(name, 0), f"there is no {name!r}{_close(name, ('allow', 'deny', 'timezone'))}")
        zone = self._zone(values.get("timezone", "UTC"))
        rules = [*self._rules("deny", values), *self._rules("allow", values)]
        if not rules and not self._faults:
            self._faults.append("there is no rule in it; write [[allow]] or [[deny]]")
        if self._faults:
            raise SettingsError(
                f"the rules {self._path} cannot be used: " + "; ".join(self._faults),
                hint="docs/reference/policies.md lists the fields of a rule and their values.",
            )
        return RuleFile(self._path, tuple(rules), zone)

    def _zone(self, name: object) -> tzinfo:
        try:
            return zoneinfo.ZoneInfo(cast(str, name))
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, TypeError, OSError):
            fault = f"this host knows no time zone {name!r}; write one such as Europe/Berlin (package tzdata), or UTC"
            self._fault(self._line_of("timezone", 0), fault)
            return zoneinfo.ZoneInfo("UTC")

    def _rules(self, effect: Effect, values: Mapping[str, Any]) -> list[Rule]:
        tables = values.get(effect, [])
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            self._fault(self._line_of(effect, 0), f"write [[{effect}]], with two brackets, before each rule")
            return []
        headers = [n for n, line in enumerate(self._lines, 1) if (m := _HEADER.match(line)) and m[1] == effect]
        lines = headers if len(headers) == len(tables) else [0] * len(tables)
        both = zip(tables, lines, strict=True)
        return [self._rule(effect, number, table, line) for number, (table, line) in enumerate(both, 1)]

    def _rule(self, effect: Effect, number: int, table: Mapping[str, Any], line: int) -> Rule:
        name, reason = table.get("name", ""), table.get("reason", "")
        called = f"{effect} rule {name!r}" if name else f"{effect} rule {number}"
        if not isinstance(name, str) or not name.strip():
            self._fault(line, f"{called} needs a name, which denials and records show")
        elif name in self._names:
            self._fault(line, f"{called}: another rule has that name")
        self._names.add(str(name))
        if not isinstance(reason, str):
            self._fault(line, f"{called}: a reason is text")
        unless = table.get("unless", {})
        if not isinstance(unless, dict):
            self._fault(line, f'{called}: write unless = {{ user = "…" }}')
            unless = {}
        own = {key: value for key, value in table.items() if key not in ("name", "reason", "unless")}
        fields = self._fields(called, own, line, ("name", "reason", "unless"))
        where = f"{self._path.name}:{line}" if line else self._path.name
        return Rule(effect, str(name), where, fields, self._fields(f"{called}, unless", unless, line, ()), str(reason))

    def _fields(
        self, called: str, table: Mapping[str, Any], line: int, others: Sequence[str]
    ) -> dict[str, Sequence[object]]:
        found: dict[str, Sequence[object]] = {}
        for name, value in table.items():
            if name not in MATCHERS:
                close = _close(name, (*MATCHERS, *others))
                self._fault(self._line_of(name, line), f"{called} has no field {name!r}{close}")
                continue
            given = value if isinstance(value, list) else [value]
            try:
                if not given:
                    raise ValueError("an empty list matches nothing")
                found[name] = tuple(_VALUES.get(name, _pattern)(item) for item in given)
            except ValueError as error:
                self._fault(self._line_of(name, line), f"{called}, {name}: {error}")
        return found

    def _line_of(self, name: str, after: int) -> int:
        """The line where ``name`` is given a value, from a rule's own on; that of the rule when it is not found."""
        key = re.compile(rf'\s*(?:\[\[?\s*)?["\']?{re.escape(name)}["\']?\s*[=\]]|.*\b{re.escape(name)}\s*=')
        for number, line in enumerate(self._lines[after:], after + 1):
            if after and _HEADER.match(line):
                break
            if key.match(line):
                return number
        return after

    def _fault(self, line: int, text: str) -> None:
        self._faults.append(f"line {line}: {text}" if line else text)


def _close(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else f"; there is {', '.join(known)}"


def _pattern(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not text; * stands for anything")
    return value


def _file_access(value: object) -> str:
    if value not in FILE_ACCESS:
        raise ValueError(f"{value!r} is none of {', '.join(FILE_ACCESS)}")
    return cast(str, value)


def _tier(value: object) -> int:
    if isinstance(value, bool) or value not in (0, 1, 2):
        raise ValueError(f"{value!r} is no tier; they are 0, 1 and 2")
    assert isinstance(value, int)
    return value


_VALUES: dict[str, Callable[[object], object]] = {
    "file_access": _file_access,
    "tier": _tier,
    "time": lambda value: hours.parse(_pattern(value)),
}
