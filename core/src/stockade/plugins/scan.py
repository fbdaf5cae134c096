"""What is installed: one scan of ``sys.path`` for the entry points of Stockade's groups.

Reads ``*.dist-info`` and ``*.egg-info`` folders only. ``importlib.metadata`` would say the same, but its
import alone costs five times ``python3 -c pass``, and listing must stay cheap; so the rules are
copied from it: of two distributions with one name the first on the path wins, and an editable
install counts through the folder that lies next to its ``.pth``. Zipped eggs are not read.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

GROUPS = {
    "driver": "stockade.drivers",
    "engine": "stockade.engines",
    "minter": "stockade.minters",
    "hooks": "stockade.plugins",
}
"""Kind of a plugin: the entry point group that publishes it."""


class EntryPoint:
    """One line of an ``entry_points.txt``. Never changed once made.

    ``value`` is ``module`` or ``module:attr``, not imported. ``requires`` is the range of kernel
    versions that the distribution's metadata asks for, empty without one.

    (A class by hand: making a named tuple costs 4 ms, importing dataclasses 20, and listing has 30.)
    """

    __slots__ = ("dist", "group", "name", "requires", "value", "version")

    def __init__(self, group: str, name: str, value: str, dist: str, version: str, requires: str = "") -> None:
        self.group = group
        self.name = name
        self.value = value
        self.dist = dist
        self.version = version
        self.requires = requires

    @property
    def kind(self) -> str:
        """A key of `GROUPS`."""
        return next(kind for kind, group in GROUPS.items() if group == self.group)

    @property
    def order(self) -> tuple[int, str, str, str]:
        """For sorting: by kind as in `GROUPS`, then by name."""
        return list(GROUPS).index(self.kind), self.name, self.dist, self.value

    def __str__(self) -> str:
        return f"{self.name} ({self.dist} {self.version})"

    def __repr__(self) -> str:
        return f"<EntryPoint {self.group} {self.name} = {self.value} of {self.dist} {self.version}>"


_cache: dict[tuple[tuple[str, int], ...], tuple[EntryPoint, ...]] = {}


def scan(path: list[str] | None = None) -> tuple[EntryPoint, ...]:
    """All entry points of the four groups, by kind and name. ``path`` defaults to ``sys.path``.

    Repeated only when the path, or the modification time of a folder on it, changed.
    """
    key = tuple((entry, _changed(entry)) for entry in (sys.path if path is None else path))
    if key not in _cache:
        _cache.clear()  # only the latest is of use
        _cache[key] = tuple(sorted(_scan([entry for entry, _ in key]), key=lambda entry: entry.order))
    return _cache[key]


def of_kind(kind: str) -> tuple[EntryPoint, ...]:
    """The installed plugins of one kind, enabled or not."""
    return tuple(entry for entry in scan() if entry.group == GROUPS[kind])


def normalized(name: str) -> str:
    """A distribution's name as PEP 503 compares it."""
    return "-".join(part for part in name.lower().replace("_", "-").replace(".", "-").split("-") if part)


def _changed(entry: str) -> int:
    try:
        return os.stat(entry or ".").st_mtime_ns
    except OSError:
        return -1  # not there: as the import system, skip it


def _scan(path: list[str]) -> Iterator[EntryPoint]:
    seen: set[str] = set()
    for entry in dict.fromkeys(path):
        try:
            names = sorted(os.listdir(entry or "."))
        except OSError:
            continue  # a zip file, a folder that is not there or not ours: nothing to import from by us
        for name in names:
            if not name.endswith((".dist-info", ".egg-info")):
                continue
            dist = normalized(name.rpartition(".")[0].partition("-")[0])
            if dist in seen:
                continue
            # Also without entry points: an older copy further down must not speak for it.
            seen.add(dist)
            yield from _read(os.path.join(entry, name))


def _read(folder: str) -> Iterator[EntryPoint]:
    text = _text(os.path.join(folder, "entry_points.txt"))
    if "stockade." not in text:
        return
    lines = list(_lines(text))
    if not lines:
        return
    name, version, requires = _metadata(folder)
    for group, key, value in dict.fromkeys(lines):
        yield EntryPoint(group, key, value, name, version, requires)


def _lines(text: str) -> Iterator[tuple[str, str, str]]:
    group = ""
    for line in map(str.strip, text.splitlines()):
        if not line or line[0] in "#;":
            continue
        if line[0] == "[" and line[-1] == "]":
            group = line[1:-1].strip()
        elif group in GROUPS.values():
            key, _, value = line.partition("=")
            # Extras ("value [extra]") are allowed by the format and mean nothing any more.
            yield group, key.strip(), value.partition("[")[0].strip()


def _metadata(folder: str) -> tuple[str, str, str]:
    """Name, version, and the range on the kernel; from the folder's name where the file says nothing."""
    name, _, version = os.path.basename(folder).rpartition(".")[0].partition("-")
    requires = ""
    text = _text(os.path.join(folder, "METADATA")) or _text(os.path.join(folder, "PKG-INFO"))
    for line in text.splitlines():
        if not line:
            break  # the description begins
        key, _, value = line.partition(":")
        value = value.strip()
        if key == "Name":
            name = value
        elif key == "Version":
            version = value
        elif key == "Requires-Dist" and value.startswith("stockade"):
            rest = value[len("stockade") :].partition(";")[0]
            if rest.strip() and rest.lstrip()[0] in "<>=!~(":
                requires = rest.strip(" ()")
    return name, version or "unknown", requires


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""  # absent, or an egg-info that is a plain file
