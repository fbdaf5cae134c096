"""Where model calls go. The vendors' keys are read here and never leave the gateway."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator

from stockade.errors import NotConfigured, SettingsError

BASE_URLS = {"anthropic": "https://api.anthropic.com", "openai": "https://api.openai.com"}


Seconds = Annotated[float, Field(gt=0, le=86400, allow_inf_nan=False)]


class Upstream(BaseModel):
    """One vendor, or anything that speaks its dialect. ``bearer`` sends the key as ``Authorization``.

    Seconds: ``connect_timeout`` for one attempt to connect, ``silence_timeout`` between two chunks of an answer,
    and before the first. ``remote_content`` passes on bodies that name an address which the upstream is to fetch.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    base_url: str
    key: SecretStr | None = None
    bearer: bool = False
    connect_timeout: Seconds = 15.0
    silence_timeout: Seconds = 600.0
    remote_content: bool = False

    @field_validator("base_url")
    @classmethod
    def _url(cls, value: str) -> str:
        wanted = "give http(s)://HOST[:PORT][/PATH], without credentials, query or fragment"
        try:
            parts = urlsplit(value)
            parts.port  # noqa: B018 - read for its check; the message would repeat the value
        except ValueError:
            raise ValueError(wanted) from None
        clean = value.isascii() and value.isprintable() and not any(mark in value for mark in " @?#\\")
        if not clean or parts.scheme not in ("http", "https") or not parts.hostname or ".." in parts.path.split("/"):
            raise ValueError(wanted)
        # Vendors' SDKs take OpenAI's base with /v1 and Anthropic's without: both mean the same here.
        return value.rstrip("/").removesuffix("/v1")

    @field_validator("key")
    @classmethod
    def _header(cls, value: SecretStr | None) -> SecretStr | None:
        secret = value.get_secret_value().strip() if value else ""
        if not secret.isascii() or not secret.isprintable():
            # Found here, because an HTTP library's own complaint might show the value.
            raise ValueError("a key is one line of printable ASCII")
        return SecretStr(secret) if secret else None


Pattern = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[^*\s]*\*?$")]


class Named(Upstream):
    """A table ``[plugin.gateway.upstreams.NAME]``: an upstream for some models of a dialect.

    A pattern is a model's name, or the beginning of names and then ``*``.
    """

    dialect: Literal["anthropic", "openai"]
    models: Annotated[tuple[Pattern, ...], Field(min_length=1)]


class Options(BaseModel):
    """The table ``[plugin.gateway]``. What it leaves out comes from the vendors' own variables."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    anthropic: Upstream | None = None
    openai: Upstream | None = None
    upstreams: dict[str, Named] = {}
    prices: Path | None = None
    warrants: Literal["on", "off"] = "on"
    jwks: str = ""
    issuer: str = ""

    @model_validator(mode="after")
    def _one_home(self) -> Options:
        homes: dict[tuple[str, str], str] = {}
        for name, upstream in sorted(self.upstreams.items()):
            for pattern in upstream.models:
                other = homes.setdefault((upstream.dialect, pattern), name)
                if other != name:
                    raise ValueError(f"the upstreams {other} and {name} both have the model {pattern}")
        return self


def read(options: Mapping[str, Any]) -> Options:
    """The table, validated. Raises `SettingsError`; never repeats a value."""
    try:
        return Options.model_validate(dict(options))
    except ValidationError as error:
        raise _explained(error) from None


def upstreams(options: Mapping[str, Any], host: Mapping[str, str]) -> dict[str, Upstream]:
    """The configured upstreams by dialect. Raises `SettingsError`; never repeats a value.

    Settings win over the vendors' own variables, and the two are never mixed: a ``stockade.toml`` that
    came with somebody's repository must not be able to send the operator's key elsewhere. A base URL
    without a key counts as configured, since a company's gateway may need none.
    """
    chosen = read(options)
    found: dict[str, Upstream] = {}
    try:
        if chosen.anthropic is not None:
            found["anthropic"] = chosen.anthropic
        elif upstream := _from_variables(
            "anthropic", host.get("ANTHROPIC_BASE_URL"), host.get("ANTHROPIC_API_KEY"), host.get("ANTHROPIC_AUTH_TOKEN")
        ):
            found["anthropic"] = upstream
        if chosen.openai is not None:
            found["openai"] = chosen.openai
        elif upstream := _from_variables("openai", host.get("OPENAI_BASE_URL"), None, host.get("OPENAI_API_KEY")):
            found["openai"] = upstream
    except ValidationError as error:
        raise _explained(error) from None
    return found


def _explained(error: ValidationError) -> SettingsError:
    said = "; ".join(
        f"{'.'.join(str(p) for p in e['loc']) or 'plugin.gateway'}: {e['msg'].removeprefix('Value error, ')}"
        for e in error.errors(include_input=False)
    )
    return SettingsError(
        f"the gateway is configured wrongly: {said}",
        hint="See the table [plugin.gateway] of stockade.toml, ANTHROPIC_BASE_URL and OPENAI_BASE_URL.",
    )


def _from_variables(dialect: str, base_url: str | None, key: str | None, token: str | None) -> Upstream | None:
    if not (base_url or key or token):
        return None
    secret = key or token
    return Upstream(
        base_url=base_url or BASE_URLS[dialect],
        key=SecretStr(secret) if secret else None,
        bearer=dialect == "openai" or not key,
    )


class Routing:
    """Which upstream serves a call: the one that has the model's name, else the one with the longest beginning of it,
    else the dialect's own. Their order never matters."""

    def __init__(self, own: Mapping[str, Upstream], named: Iterable[Named] = ()) -> None:
        self._own = own
        self._exact: dict[tuple[str, str], Upstream] = {}
        self._prefixes: dict[str, list[tuple[str, Upstream]]] = {}
        for upstream in named:
            for pattern in upstream.models:
                if pattern.endswith("*"):
                    self._prefixes.setdefault(upstream.dialect, []).append((pattern[:-1], upstream))
                else:
                    self._exact[upstream.dialect, pattern] = upstream
        for prefixes in self._prefixes.values():
            prefixes.sort(key=lambda item: len(item[0]), reverse=True)

    def of(self, dialect: str, model: str) -> Upstream | None:
        """The upstream for a model; ``None`` when this host has none."""
        found = self._exact.get((dialect, model))
        if found is None and dialect in self._prefixes:
            found = next((u for prefix, u in self._prefixes[dialect] if model.startswith(prefix)), None)
        return found or self._own.get(dialect)

    def all(self, dialect: str) -> list[Upstream]:
        """Every upstream of a dialect, each once, the dialect's own first."""
        found = [self._own.get(dialect), *(u for _, u in self._prefixes.get(dialect, []))]
        found += [u for (of, _), u in self._exact.items() if of == dialect]
        return list({id(u): u for u in found if u is not None}.values())

    def require(self, dialect: str) -> None:
        """Raises `NotConfigured`, with both ways on, when the dialect has no upstream."""
        if not self.all(dialect):
            keys = {"anthropic": "ANTHROPIC_API_KEY (or ANTHROPIC_AUTH_TOKEN)", "openai": "OPENAI_API_KEY"}
            raise NotConfigured(
                f"no model is configured for the {dialect} dialect",
                hint=f"Either set {keys.get(dialect, 'an upstream')} for the real model, "
                "or use a scripted one that needs no key: --rehearse hello",
            )
