"""The hook module. It lists what there is by name, and imports a part when it is used."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from importlib import import_module
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from stockade import AdmissionPolicy, hookimpl

if TYPE_CHECKING:
    from stockade.cli.group import CommandGroup
    from stockade.contracts.lifecycle import Observer
    from stockade.settings import Settings

COMMANDS: tuple[tuple[str, str, str], ...] = (
    ("keys", "The keys that sign warrants: generate, list, rotate, retire, publish", "stockade_authority.cli_keys"),
    ("lease", "Permits to run: issue, show, revoke, serve", "stockade_authority.policies.cli_lease"),
    ("admit", "Whether a sandbox would be admitted, and who says so", "stockade_authority.policies.cli_admit"),
)
"""Name, line of help, and a module with ``configure(parser)`` and ``run(args)``, imported when it is called."""

POLICIES: tuple[str, ...] = ("stockade_authority.policies:policies",)
"""Functions ``settings -> policies`` as ``module:name``, called at boot; each reads a table of its own."""


@hookimpl
def register_commands(group: CommandGroup) -> None:
    """Add `COMMANDS`."""
    for name, text, module in COMMANDS:
        group.add(name, text, _later(module, "configure"), _later(module, "run"))


@hookimpl
def admission_policies(settings: Settings) -> Sequence[AdmissionPolicy]:
    """What `POLICIES` answer for these settings."""
    return [policy for name in POLICIES for policy in resolve_name(name)(settings)]


@hookimpl
def observers(settings: Settings) -> Sequence[Observer]:
    """The evidence log."""
    from stockade_authority.policies import evidence

    return evidence.observers(settings)


def _later(module: str, name: str) -> Callable[[argparse.ArgumentParser | argparse.Namespace], Any]:
    return lambda argument: getattr(import_module(module), name)(argument)
