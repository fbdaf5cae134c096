"""Asks Cedar. Its answer is an allow only if a policy permits, none forbids, and none failed."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import cedarpy

from stockade import AdmissionPolicy
from stockade.errors import SettingsError
from stockade.model.authority import SandboxRequest, Verdict
from stockade.model.isolation import Isolation

SCHEMA = resources.files("stockade_cedar").joinpath("stockade.cedarschema").read_text()
"""What policies may speak of: ``User`` in ``Group``, ``create`` and ``use`` of a ``Sandbox``, and a context."""
HINT = "The README of stockade-cedar shows both files, and the schema what policies may speak of."


class CedarPolicy(AdmissionPolicy):
    """``create`` is asked before a sandbox is made, ``use`` once its driver has attested tier and image."""

    name = "cedar"

    def __init__(self, policies: str, entities: str = "[]") -> None:
        """Parse both once. Raises `ValueError` for what Cedar cannot read, or what the schema does not allow."""
        checked = cedarpy.validate_policies(policies, SCHEMA)
        if not checked.validation_passed:
            raise ValueError("; ".join(str(error) for error in checked.errors))
        self._policies = cedarpy.PolicySet.from_str(policies)
        self._entities = cedarpy.Entities.from_json_str(entities, SCHEMA)
        self._schema = cedarpy.Schema.from_str(SCHEMA)

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> CedarPolicy:
        """From the settings ``policies`` and ``entities``, both paths. Raises `SettingsError`."""
        if "policies" not in options or options.keys() - {"policies", "entities"}:
            raise SettingsError("plugin.cedar has policies, a file, and perhaps entities, another", hint=HINT)
        try:
            texts = [
                Path(str(options[name])).expanduser().read_text()
                for name in ("policies", "entities")
                if name in options
            ]
            return cls(*texts)
        except (OSError, ValueError) as error:
            raise SettingsError(f"plugin.cedar cannot be used: {error}", hint=HINT) from error

    async def review(self, request: SandboxRequest) -> Verdict:
        return self._ask("create", request, {})

    async def confirm(self, request: SandboxRequest, isolation: Isolation) -> Verdict:
        return self._ask("use", request, {"tier": isolation.tier, "image": isolation.image})

    def _ask(self, action: str, request: SandboxRequest, attested: dict[str, object]) -> Verdict:
        context = {
            "driver": request.driver,
            "engine": request.engine,
            "fileAccess": request.file_access,
            "providerKeys": list(request.provider_keys),
            "ttl": int(request.ttl),
            "pack": request.pack,
            **attested,
        }
        asked = {
            # As objects, and not as text: a user may be called anything, quotes and newlines included.
            "principal": {"type": "User", "id": request.user},
            "action": {"type": "Action", "id": action},
            "resource": {"type": "Sandbox", "id": request.key},
            "context": context,
        }
        result = cedarpy.is_authorized(asked, self._policies, self._entities, self._schema)
        because = ", ".join(result.diagnostics.id_annotations_by_reason.values()) or ", ".join(
            result.diagnostics.reasons
        )
        if result.diagnostics.errors:
            # Cedar leaves out a policy that fails, and a forbid left out would be a permit.
            return Verdict.deny("a Cedar policy failed", "cedar_error", setting="plugin.cedar.policies")
        if result.allowed:
            return Verdict.allow(because, setting="plugin.cedar.policies")
        return Verdict.deny(because or "no Cedar policy permits it", "cedar", setting="plugin.cedar.policies")
