"""What a plugin claims to do, and the skip of a test of something that it does not claim."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TypeVar

import pytest

T = TypeVar("T", bound=Callable[..., object])


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The claims of one plugin. A kit tests every claim; a test of a claim not made is skipped, naming the flag.

    What every plugin of a kind owes has no flag. Claim everything that is true: a skipped test proves nothing.
    """

    # Drivers.
    host_processes: bool = True
    """What runs in a sandbox is seen in this machine's ``/proc``, as of a container, not of a virtual machine."""
    host_files: bool = True
    """Workspace and state dir are the very directories of the spec, mounted and not copied."""

    # Engines.
    shell: bool = True
    """The agent runs shell commands."""
    streaming: bool = True
    """Text arrives in more than one event."""
    thinking: bool = True
    """The model's reasoning arrives as ``thinking`` events."""
    tools: bool = True
    """Tool calls arrive as a start and an end with the same id."""
    usage: bool = True
    """The outcome says how many tokens were used."""
    resume: bool = True
    """A later engine object goes on with a stored native session."""
    read_only: bool = True
    """``read-only`` keeps the agent from writing, and says so."""
    workspace_write: bool = True
    """``workspace-write`` lets the agent write in the workspace."""
    mcp: bool = True
    """MCP servers of the turn are offered to the agent."""

    # Policies.
    allows: bool = True
    """There are requests that it allows."""
    denies: bool = True
    """There are requests that it denies."""
    stateless: bool = True
    """The same request always gets the same answer."""

    # Minters.
    verifiable: bool = True
    """The tests can tell what a token is worth: the fixture ``verify``."""
    durable: bool = True
    """Tokens and revocations are known to other processes, and after a restart: the fixture ``elsewhere``."""

    # Routes.
    authenticates: bool = True
    """Only a caller that presents the session's key is served."""
    warrants: bool = True
    """A call without a turn's token is refused where the kernel mints tokens."""
    preflight: bool = True
    """It says before a sandbox is made what is not configured: the fixture ``unconfigured``."""


NAMES = frozenset(field.name for field in fields(Capabilities))


def requires(*flags: str) -> Callable[[T], T]:
    """Mark a test of a kit as one of these claims: `skip_unclaimed` skips it where one of them is not made."""
    if unknown := set(flags) - NAMES:
        raise ValueError(f"Capabilities has no flag {', '.join(sorted(unknown))}")

    def mark(test: T) -> T:
        test.__stockade_requires__ = flags  # type: ignore[attr-defined]
        return test

    return mark


class Kit:
    """What all kits share: the claims, and the skips that name a flag."""

    capabilities = Capabilities()
    """Override with the claims of the plugin under test."""

    limit: float = 30.0
    """Seconds that one test may take. Override for a plugin that is slow on purpose."""

    patience: float = 8.0
    """Seconds for what has to happen soon: an interrupted turn ends, an ended process is gone."""

    @pytest.fixture(autouse=True)
    def skip_unclaimed(self, request: pytest.FixtureRequest) -> None:
        """Skips a test of a claim that is not made."""
        for flag in getattr(request.function, "__stockade_requires__", ()):
            if not getattr(self.capabilities, flag):
                pytest.skip(f"not claimed: Capabilities({flag}=False)")
