"""Settings: ``stockade.toml``, then ``STOCKADE_*`` variables, then what the caller says. Later wins.

``__`` nests in a variable: ``STOCKADE_ADMISSION__REQUIRED='["corp-policy"]'``. Lists may also be
written with commas. In ``[plugin.NAME]`` tables a variable's value is JSON where it is valid JSON,
else text; ``-`` in the name becomes ``_``. An empty variable counts as not set. Values are never
repeated in an error: they may be secrets.
"""

from __future__ import annotations

import difflib
import json
import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from stockade.errors import SettingsError
from stockade.plugins.selection import Selection, parse_names, read_file, settings_file

log = logging.getLogger("stockade.settings")

PREFIX = "STOCKADE_"
NOT_SETTINGS = frozenset(
    {"STOCKADE_CONFIG", "STOCKADE_DEBUG", "STOCKADE_REQUIRE", "STOCKADE_SANDBOX", "STOCKADE_SCOPE", "STOCKADE_TIER"}
)
"""Variables with the prefix that are read elsewhere."""

Names = Annotated[tuple[str, ...], BeforeValidator(parse_names)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


def _default_home() -> Path:
    """The platform's state directory. A relative ``XDG_STATE_HOME`` is invalid and ignored, as XDG says."""
    base = Path(os.environ.get("XDG_STATE_HOME", ""))
    if not base.is_absolute():
        try:
            base = Path.home() / ".local" / "state"
        except RuntimeError as error:
            raise SettingsError("no home directory for this user", hint="Set STOCKADE_HOME to a folder.") from error
    return base / "stockade"


class Admission(BaseModel):
    """Who decides whether a sandbox may exist."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    required: Names = ()
    """Hook modules that must answer with a policy; without one of them there is no sandbox."""
    timeout: Seconds = 10.0
    """Seconds for one policy's answer; no answer is a deny."""


class Settings(BaseSettings):
    """What a kernel is made of. Use `load`; immutable afterwards."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    home: Path = Field(default_factory=_default_home)
    """The state root (design §8); a relative path is taken from the current directory."""
    driver: str = ""
    """Driver of requests that name none; empty: a plugin's choice, else the only one installed."""
    engine: str = ""
    """Engine of turns that name none; empty: the first installed by name, with a warning when there are several."""
    ttl: Seconds = 3600.0
    """Seconds from creation to the end of a sandbox."""
    lease: Seconds = 30.0
    """Seconds of the kernel's silence that a sandbox survives."""
    turn_timeout: Seconds | None = None
    """Seconds for one turn; none: only the sandbox's TTL limits it."""
    boot_timeout: Seconds = 60.0
    """Seconds for a new sandbox to greet."""
    grace: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 2.0
    """Seconds between asking a sandbox to end and killing it."""
    max_sandboxes: Annotated[int, Field(gt=0)] = 256
    """Sandboxes that one kernel may have at once."""
    max_copy_bytes: Annotated[int, Field(gt=0)] = 10 * 1024**3
    """Bytes of one copy into or out of a sandbox; the holes of files count."""
    max_copy_members: Annotated[int, Field(gt=0)] = 200_000
    """Files, folders and links of one copy."""
    plugins: Names | None = None
    """Allow-list of plugins or distributions; none: all that are installed."""
    plugins_disabled: Names = ()
    """Deny-list of plugins or distributions; wins over ``plugins``."""
    admission: Admission = Admission()
    rehearse: str | None = None
    """A scripted model (a name, or a path) that answers instead of a vendor."""
    record: Path | None = None
    """A file for the model traffic of this kernel, secrets removed. Excludes ``rehearse`` and ``replay``."""
    replay: Path | None = None
    """A recorded file that answers instead of a vendor."""
    env_pass: Names = ()
    """Names of host variables that every sandbox gets."""
    plugin: dict[str, dict[str, Any]] = Field(default_factory=dict, repr=False)
    """The tables ``[plugin.NAME]``; read them with `options`. May hold secrets."""

    @field_validator("home")
    @classmethod
    def _absolute(cls, home: Path) -> Path:
        try:
            return home.expanduser().absolute()
        except RuntimeError:
            raise ValueError("the user in this path is not known") from None

    @field_validator("rehearse", "record", "replay", "turn_timeout", mode="before")
    @classmethod
    def _empty_is_none(cls, value: object) -> object:
        return None if value == "" else value

    @field_validator("env_pass")
    @classmethod
    def _names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if not name.isidentifier() or not name.isascii():
                raise ValueError("name variables, not values: letters, digits and _ only")
        return names

    @classmethod
    def load(cls, **overrides: Any) -> Settings:
        """Read everything; ``overrides`` win, those that are ``None`` were not given.

        Raises `SettingsError` with the file or variable that is wrong and what to write instead.
        """
        given = {name: value for name, value in overrides.items() if value is not None}
        try:
            return cls(**given)
        except ValidationError as error:
            raise _explained(error, given) from None

    @property
    def selection(self) -> Selection:
        """Which plugins may be imported."""
        return Selection(self.plugins, self.plugins_disabled)

    def options(self, name: str) -> dict[str, Any]:
        """The table of plugin ``name``, not validated; empty without one. ``-`` and ``_`` are the same."""
        return dict(self.plugin.get(_table_name(name), {}))

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Our own readers: the library's cannot read lists with commas, and skip unknown variables."""
        return (
            _Source(settings_cls, _tables(init_settings())),
            _Source(settings_cls, _from_environment()),
            _Source(settings_cls, _from_file()),
        )


class _Source(PydanticBaseSettingsSource):
    def __init__(self, settings_cls: type[BaseSettings], values: dict[str, Any]) -> None:
        super().__init__(settings_cls)
        self._values = values

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
        return self._values.get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        return self._values


def _table_name(name: str) -> str:
    return name.lower().replace("-", "_")


def _tables(values: dict[str, Any]) -> dict[str, Any]:
    """One spelling of plugin names, so that the tables of several sources merge."""
    plugin = values.get("plugin")
    if not isinstance(plugin, Mapping):
        return values
    merged: dict[str, Any] = {}
    for name, table in plugin.items():
        merged[_table_name(str(name))] = table
    return {**values, "plugin": merged}


def _from_file() -> dict[str, Any]:
    path = settings_file()
    return _tables(cast(dict[str, Any], read_file(path))) if path else {}


def _variables() -> Iterator[tuple[str, tuple[str, ...], str]]:
    for variable, value in sorted(os.environ.items()):
        if variable.startswith(PREFIX) and variable not in NOT_SETTINGS and value:
            yield variable, tuple(variable[len(PREFIX) :].lower().split("__")), value


def _from_environment() -> dict[str, Any]:
    values: dict[str, Any] = {}
    for variable, path, value in _variables():
        if path[0] not in Settings.model_fields:
            _unknown_variable(variable, path)
            continue
        table = values
        for part in path[:-1]:
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                raise SettingsError(f"{variable} conflicts with a variable for the whole table", hint="Unset one.")
        table[path[-1]] = _decoded(value) if path[0] in ("plugin", "admission") and path[1:] != ("required",) else value
    return _tables(values)


def _decoded(value: str) -> Any:
    try:
        return json.loads(value, parse_constant=lambda _: value)
    except ValueError:
        return value


def _unknown_variable(variable: str, path: tuple[str, ...]) -> None:
    close = difflib.get_close_matches(path[0], Settings.model_fields, n=1, cutoff=0.75)
    if close:
        # Nearly a setting, so meant as one: ignoring it could switch a protection off.
        meant = PREFIX + "__".join((close[0], *path[1:])).upper()
        raise SettingsError(f"variable {variable} is no setting", hint=f"Did you mean {meant}?")
    log.warning("variable %s is no setting of Stockade and is ignored", variable)


def _explained(error: ValidationError, overrides: Mapping[str, Any]) -> SettingsError:
    lines, hints = [], []
    for problem in error.errors(include_url=False, include_context=False, include_input=False):
        path = tuple(str(part) for part in problem["loc"])
        dotted, source = ".".join(path), _source(path, overrides)
        lines.append(f"{dotted} ({source}): {_message(problem['type'], problem['msg'])}")
        if problem["type"] == "extra_forbidden":
            known = Admission.model_fields if path[0] == "admission" else Settings.model_fields
            close = difflib.get_close_matches(path[-1], known, n=1)
            meant = ".".join((*path[:-1], *close))
            hints.append(f"Did you mean {meant}?" if close else f"Known: {', '.join(known)}.")
        else:
            hints.append(f"Correct or remove {source}.")
    return SettingsError("; ".join(lines), hint=" ".join(dict.fromkeys(hints)))


def _message(kind: str, message: str) -> str:
    return "no such setting" if kind == "extra_forbidden" else message.removeprefix("Value error, ")


def _source(path: tuple[str, ...], overrides: Mapping[str, Any]) -> str:
    if path[0] in overrides:
        return f"argument {path[0]}"
    for variable, parts, _ in _variables():
        if parts == path[: len(parts)] or path == parts[: len(path)]:
            return f"variable {variable}"
    return f"{'.'.join(path)} in {settings_file() or 'the settings'}"
