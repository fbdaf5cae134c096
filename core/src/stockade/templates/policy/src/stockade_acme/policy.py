"""Decides whether a sandbox may exist. All installed policies are asked; one deny is a no."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stockade import AdmissionPolicy
from stockade.errors import SettingsError
from stockade.model.authority import SandboxRequest, Verdict

DEFAULTS: Mapping[str, Any] = {"max_ttl": 3600, "provider_keys": False}
"""The options: the longest life of a sandbox in seconds, and whether model providers' keys may be inside."""


class AcmePolicy(AdmissionPolicy):
    """Denies by its options, which are the table ``[plugin.acme]`` of the settings."""

    name = "acme"

    def __init__(self, options: Mapping[str, Any]) -> None:
        if unknown := sorted(set(options) - set(DEFAULTS)):
            raise SettingsError(f"[plugin.acme] has no option {unknown[0]}", hint=f"Known: {', '.join(DEFAULTS)}.")
        values = {**DEFAULTS, **options}
        self._max_ttl, self._provider_keys = values["max_ttl"], values["provider_keys"]
        # A policy that misreads its settings would let through what it was installed against.
        if isinstance(self._max_ttl, bool) or not isinstance(self._max_ttl, (int, float)) or not self._max_ttl > 0:
            raise SettingsError(f"[plugin.acme] max_ttl = {self._max_ttl!r}", hint="Seconds, more than 0.")
        if not isinstance(self._provider_keys, bool):
            raise SettingsError(f"[plugin.acme] provider_keys = {self._provider_keys!r}", hint="true or false.")

    async def review(self, request: SandboxRequest) -> Verdict:
        """See `AdmissionPolicy.review`. The reason is shown to the caller, the code is for programs."""
        if request.ttl > self._max_ttl:
            return Verdict.deny(f"a sandbox may live {self._max_ttl:g} s, not {request.ttl:g} s", code="ttl")
        if request.provider_keys and not self._provider_keys:
            names = ", ".join(request.provider_keys)
            return Verdict.deny(f"keys of model providers stay outside: {names}", code="provider_keys")
        return Verdict.allow()
