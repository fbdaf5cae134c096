"""The table ``[plugin.authority]``."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from stockade.errors import SettingsError
from stockade_authority.policies.lease.document import NAME
from stockade_authority.policies.lease.source import is_local

Places = Annotated[int, Field(ge=0, strict=True)]
_CONFIG = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class QuotaOptions(BaseModel):
    """How many at once, in all processes of one state root; ``None``: as many as they like."""

    model_config = _CONFIG

    sandboxes: Places | None = None
    sandboxes_per_user: Places | None = None
    turns: Places | None = None
    turns_per_user: Places | None = None
    turns_per_key: Places | None = None
    """Turns in the sandbox of one key."""

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not self.model_fields_set:
            raise ValueError(f"say how many of what: {', '.join(QuotaOptions.model_fields)}")
        return self


class LeaseOptions(BaseModel):
    """Where the lease comes from (``url`` or ``file``), what it must be called, and whose signature counts.

    ``keys`` is a JWK set: a file, or a URL (https, or http on this machine). ``token_file`` holds what the
    server wants to see of us. ``refresh`` is in seconds.
    """

    model_config = _CONFIG

    name: str
    keys: str
    url: str = ""
    file: Path | None = None
    token_file: Path | None = None
    refresh: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 60.0

    @field_validator("name")
    @classmethod
    def _name(cls, name: str) -> str:
        if not NAME.fullmatch(name):
            raise ValueError(
                "a lease's name has 1 to 64 of a-z, 0-9, '.', '_' and '-', and begins with one of a-z, 0-9"
            )
        return name

    @field_validator("url")
    @classmethod
    def _url(cls, url: str) -> str:
        wanted = "give http(s)://HOST[:PORT][/PATH], without credentials, query or fragment"
        try:
            parts = urlsplit(url)
            parts.port  # noqa: B018 - read for its check; the message would repeat the value
        except ValueError:
            raise ValueError(wanted) from None
        clean = url.isascii() and url.isprintable() and not any(mark in url for mark in " @?#\\")
        if url and (not clean or parts.scheme not in ("http", "https") or not parts.hostname):
            raise ValueError(wanted)
        return url.rstrip("/")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if bool(self.url) == bool(self.file):
            raise ValueError("give either url or file")
        if self.token_file and not (self.url.startswith("https://") or is_local(self.url)):
            raise ValueError("a token_file is only for a url with https, or on this machine")
        return self


class Options(BaseModel):
    """The table ``[plugin.authority]``. Nothing of it set: nothing is denied."""

    model_config = _CONFIG

    rules: Path | None = None
    """A file of allow and deny rules."""
    quota: QuotaOptions | None = None
    lease: LeaseOptions | None = None

    @field_validator("rules")
    @classmethod
    def _home(cls, path: Path | None) -> Path | None:
        return path.expanduser() if path else None


def read_options(table: Mapping[str, Any]) -> Options:
    """The options. Raises `SettingsError` with all that is wrong; never repeats a value."""
    try:
        return Options.model_validate(dict(table))
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False, include_input=False)
        said = "; ".join(_problem(tuple(map(str, p["loc"])), p["type"], p["msg"]) for p in problems)
        raise SettingsError(said, hint="See docs/reference/policies.md, and stockade.toml.") from None


def _problem(path: tuple[str, ...], kind: str, message: str) -> str:
    dotted = ".".join(("plugin", "authority", *path))
    if kind != "extra_forbidden":
        return f"{dotted}: {message.removeprefix('Value error, ')}"
    tables: dict[tuple[str, ...], type[BaseModel]] = {(): Options, ("quota",): QuotaOptions, ("lease",): LeaseOptions}
    known = tables[path[:-1]].model_fields
    close = difflib.get_close_matches(path[-1], known, n=1)
    return f"{dotted}: no such setting; " + (f"did you mean {close[0]}?" if close else f"known: {', '.join(known)}")
