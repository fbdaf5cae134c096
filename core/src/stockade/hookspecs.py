"""Every hook: when it is called, what it returns, how the answers combine.

Hooks are synchronous and cheap: they return values, or objects whose methods the kernel awaits
itself, with a time limit and the plugin's name on each failure. A hook that returns a coroutine is
broken (`PluginBroken`): a coroutine is never ``None`` and would pass for an answer. The order of
plugins never matters.

Hooks with ``settings`` are called once, at boot; a failure there refuses the boot. Hooks with
``request`` are called for each sandbox or turn; a failure there fails that sandbox or turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from stockade.cli.group import CommandGroup
    from stockade.contracts.authority import AdmissionPolicy
    from stockade.contracts.lifecycle import Observer, Preparation
    from stockade.contracts.route import Route
    from stockade.model.authority import ClaimLimits, Claims, Constraints, SandboxRequest
    from stockade.settings import Settings

PROJECT = "stockade"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class DriverHooks:
    """Choice and limits of drivers."""

    @hookspec(firstresult=True)
    def select_driver(self, request: SandboxRequest, available: Sequence[str]) -> str | None:
        """The driver for a request that names none (``request.driver`` is empty); ``None`` for no opinion.

        A name that is not in ``available`` is a `PluginBroken`. Without an answer: the setting
        ``driver``, else the only one installed.
        """

    @hookspec
    def driver_constraints(self, request: SandboxRequest) -> Constraints | None:
        """Limits on this sandbox. Every plugin is asked; the narrowest of each limit wins."""


class EngineHooks:
    """What engines get."""

    @hookspec
    def engine_environment(self, request: SandboxRequest) -> Mapping[str, str] | None:
        """Variables for the sandbox. Two plugins with different values for one name fail the creation.

        Model providers' keys and the names the kernel sets itself are refused (L38, L80).
        """

    @hookspec
    def prepare_workspace(self, request: SandboxRequest) -> Preparation | None:
        """Work on the workspace before the sandbox is created; applied in the order of plugin names."""


class AdmissionHooks:
    """Who may have a sandbox."""

    @hookspec
    def admission_policies(self, settings: Settings) -> Sequence[AdmissionPolicy]:
        """Policies to ask before every creation. All are asked, concurrently; one deny is a no."""


class TokenHooks:
    """What a turn's token may do."""

    @hookspec
    def token_claims(self, request: Claims) -> ClaimLimits | None:
        """Limits on a turn's token, before it is minted. They can only narrow; the narrowest wins."""


class RouteHooks:
    """The ways out of a sandbox."""

    @hookspec
    def routes(self, settings: Settings) -> Mapping[str, Route]:
        """Routes by name. Two plugins with the same name refuse the boot."""


class LifecycleHooks:
    """Who watches."""

    @hookspec
    def observers(self, settings: Settings) -> Sequence[Observer]:
        """Objects that see every record. Their failures are logged, never fatal."""


class CommandHooks:
    """More commands."""

    @hookspec
    def register_commands(self, group: CommandGroup) -> None:
        """Add commands to the command line. Called only for a command that the kernel does not have."""


ALL = (DriverHooks, EngineHooks, AdmissionHooks, TokenHooks, RouteHooks, LifecycleHooks, CommandHooks)
