"""The settings of the driver: the table ``[plugin.docker]``."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stockade.errors import SettingsError
from stockade.model.isolation import Tier

DEFAULT_IMAGE = "stockade:latest"
"""The tag that ``stockade image build`` gives."""

_SIZES = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
_CHOICES = {"user": ("caller", "root"), "seccomp": ("default", "unconfined"), "pull": ("never", "missing")}
_SIZED = ("memory", "tmp_size")


@dataclass(frozen=True, slots=True)
class Options:
    """Validated settings.

    ``host`` is the engine's address (empty: as the ``docker`` command finds it), ``image`` what containers
    are made from, ``require_digest`` refuses an image that is not named by digest, ``pull`` asks the engine for
    an image that it lacks. ``memory`` and ``tmp_size`` in bytes, ``cpus`` in processors, ``pids`` in
    processes and threads.

    Three settings weaken the sandbox and lower its tier to 1: ``network`` (the name of one of the engine's
    networks), ``seccomp = "unconfined"``, ``user = "root"``.
    """

    host: str = ""
    image: str = DEFAULT_IMAGE
    require_digest: bool = False
    pull: str = "never"
    memory: int = 4 * 1024**3
    tmp_size: int = 1024**3
    cpus: float = 2.0
    pids: int = 2048
    network: str = "none"
    seccomp: str = "default"
    user: str = "caller"

    @classmethod
    def parse(cls, table: Mapping[str, Any]) -> Options:
        """From the settings. Raises `SettingsError` that names the option."""
        fields = {field.name: field for field in dataclasses.fields(cls)}
        unknown = sorted(set(table) - set(fields))
        if unknown:
            raise SettingsError(
                f"[plugin.docker] has no option {', '.join(unknown)}", hint=f"Its options: {', '.join(sorted(fields))}."
            )
        return cls(**{name: _value(name, fields[name].default, value) for name, value in table.items()})

    @property
    def weakenings(self) -> tuple[str, ...]:
        """The settings that lower the tier, as they would be written."""
        default = Options()
        names = ("network", "seccomp", "user")
        return tuple(f"{n} = {getattr(self, n)!r}" for n in names if getattr(self, n) != getattr(default, n))

    @property
    def tier(self) -> Tier:
        """What a container with these settings is, once it was checked."""
        return 1 if self.weakenings else 2


def _value(name: str, default: Any, value: Any) -> Any:
    if name in _SIZED:
        return _size(name, value)
    if name == "cpus" and type(value) is int:
        value = float(value)
    wrong = type(value) is not type(default) or (type(value) in (int, float) and value <= 0)
    if wrong or (name in ("image", "network") and not value):
        kind = {"bool": "true or false", "str": "text", "int": "a whole number over 0", "float": "a number over 0"}
        raise SettingsError(f"[plugin.docker] {name} = {value!r}", hint=f"It is {kind[type(default).__name__]}.")
    if name in _CHOICES and value not in _CHOICES[name]:
        raise SettingsError(f"[plugin.docker] {name} = {value!r}", hint=f"One of {', '.join(_CHOICES[name])}.")
    return value


def _size(name: str, value: Any) -> int:
    match = re.fullmatch(r"([0-9]+)([kmg]?)", str(value).lower()) if type(value) in (int, str) else None
    size = int(match[1]) * _SIZES[match[2]] if match else 0
    # An engine refuses less than 6 MiB of memory, and Python does not start with less.
    if size < 32 * 1024**2:
        raise SettingsError(
            f"[plugin.docker] {name} = {value!r}", hint="Bytes, or a number with k, m or g: '4g'. At least 32m."
        )
    return size
