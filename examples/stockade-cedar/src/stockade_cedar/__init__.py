"""Admission by Cedar policies. The hook module of the entry point ``cedar``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from stockade import AdmissionPolicy, hookimpl

if TYPE_CHECKING:
    from stockade import Settings


@hookimpl
def admission_policies(settings: Settings) -> Sequence[AdmissionPolicy]:
    """One policy when ``[plugin.cedar]`` is configured, otherwise none."""
    options = settings.options("cedar")
    if not options:
        return ()
    from stockade_cedar.policy import CedarPolicy  # Cedar is loaded only where it is used

    return [CedarPolicy.from_options(options)]
