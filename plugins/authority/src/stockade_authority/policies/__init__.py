"""Who may have a sandbox: a lease, quotas and rules. Each decides only once its setting is there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from stockade import AdmissionPolicy

if TYPE_CHECKING:
    from stockade.settings import Settings


def policies(settings: Settings) -> Sequence[AdmissionPolicy]:
    """Those that the table ``[plugin.authority]`` configures; without it, none. Raises `SettingsError`."""
    table = settings.options("authority")
    if not table:
        return ()
    from stockade_authority.policies.config import read_options

    options = read_options(table)
    found: list[AdmissionPolicy] = []
    if options.rules is not None:
        from stockade_authority.policies import rulefile
        from stockade_authority.policies.ruling import RulesPolicy

        found.append(RulesPolicy(rulefile.read(options.rules)))
    if options.quota is not None:
        from stockade_authority.policies.quota import QuotaPolicy

        found.append(QuotaPolicy(settings.home, options.quota))
    if options.lease is not None:
        from stockade_authority.policies.lease.policy import LeasePolicy

        found.append(LeasePolicy(settings.home, options.lease))
    return found
