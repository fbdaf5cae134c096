"""The hook module: what the kernel imports at boot."""

from __future__ import annotations

from collections.abc import Sequence

from stockade import AdmissionPolicy, Settings, hookimpl


@hookimpl
def admission_policies(settings: Settings) -> Sequence[AdmissionPolicy]:
    """One policy, with the settings of the plugin of this name. A wrong setting refuses the boot."""
    from stockade_acme.policy import AcmePolicy

    return [AcmePolicy(settings.options("acme"))]
