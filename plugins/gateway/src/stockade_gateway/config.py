"""Where model calls go. The vendors' keys are read here and never leave the gateway."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError, field_validator

from stockade.errors import NotConfigured, SettingsError

BASE_URLS = {"anthropic": "https://api.anthropic.com", "openai": "https://api.openai.com"}


class Upstream(BaseModel):
    """One vendor, or anything that speaks its dialect. ``bearer`` sends the key as ``Authorization``."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    base_url: str
    key: SecretStr | None = None
    bearer: bool = False

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


class Options(BaseModel):
    """The table ``[plugin.gateway]``. What it leaves out comes from the vendors' own variables."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    anthropic: Upstream | None = None
    openai: Upstream | None = None


def upstreams(options: Mapping[str, Any], host: Mapping[str, str]) -> dict[str, Upstream]:
    """The configured upstreams by dialect. Raises `SettingsError`; never repeats a value.

    Settings win over the vendors' own variables, and the two are never mixed: a ``stockade.toml`` that
    came with somebody's repository must not be able to send the operator's key elsewhere. A base URL
    without a key counts as configured, since a company's gateway may need none.
    """
    try:
        chosen = Options.model_validate(dict(options))
        found: dict[str, Upstream] = {}
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
        said = "; ".join(
            f"{'.'.join(str(p) for p in e['loc']) or 'base_url'}: {e['msg']}" for e in error.errors(include_input=False)
        )
        raise SettingsError(
            f"the gateway is configured wrongly: {said}",
            hint="See the table [plugin.gateway] of stockade.toml, ANTHROPIC_BASE_URL and OPENAI_BASE_URL.",
        ) from None
    return found


def _from_variables(dialect: str, base_url: str | None, key: str | None, token: str | None) -> Upstream | None:
    if not (base_url or key or token):
        return None
    secret = key or token
    return Upstream(
        base_url=base_url or BASE_URLS[dialect],
        key=SecretStr(secret) if secret else None,
        bearer=dialect == "openai" or not key,
    )


def require(found: Mapping[str, Upstream], dialect: str) -> Upstream:
    """The upstream of a dialect. Raises `NotConfigured` with both ways on."""
    if dialect not in found:
        keys = {"anthropic": "ANTHROPIC_API_KEY (or ANTHROPIC_AUTH_TOKEN)", "openai": "OPENAI_API_KEY"}
        raise NotConfigured(
            f"no model is configured for the {dialect} dialect",
            hint=f"Either set {keys.get(dialect, 'an upstream')} for the real model, "
            "or use a scripted one that needs no key: --rehearse hello",
        )
    return found[dialect]
