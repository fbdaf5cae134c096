"""Drivers make sandboxes somewhere. Three verbs: create, destroy, reap."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from stockade.contracts.channel import Channel
from stockade.model.finding import Finding
from stockade.model.isolation import Isolation
from stockade.model.spec import SandboxSpec


@dataclass(frozen=True, slots=True)
class Ending:
    """How a sandbox ended. ``evidence`` is a sentence for a person: an exit status, a log's tail."""

    reason: Literal["exited", "oom", "ttl", "lost", "destroyed"]
    evidence: str = ""


@dataclass(frozen=True, slots=True)
class Orphan:
    """A sandbox whose owner is dead, seen twice. ``handle`` is what `Sandbox.handle` said, unverified."""

    id: str
    run_dir: Path
    handle: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ownership:
    """What a driver may sweep: the orphans, and nothing of ``live`` (ids of sandboxes with an owner).

    ``home`` is the state root; a driver marks what it makes with it, and never touches another's.
    """

    home: Path
    orphans: tuple[Orphan, ...]
    live: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Reaped:
    """The answer for one orphan: ``gone`` only when the driver confirmed that nothing of it runs."""

    id: str
    gone: bool
    evidence: str = ""


class Sandbox(ABC):
    """One live isolated place. Made by `Driver.create`, owned by the kernel from then on."""

    id: str
    isolation: Isolation
    channel: Channel

    @property
    def handle(self) -> Mapping[str, Any]:
        """JSON that helps `Driver.reap` to find the sandbox again; it is a hint, not a proof."""
        return {}

    @abstractmethod
    async def wait(self) -> Ending:
        """Return when the sandbox has ended by itself or by `destroy`. May be called many times."""

    @abstractmethod
    async def destroy(self, grace: float) -> Ending:
        """End it: ask, wait ``grace`` seconds, kill (L74). Returns when nothing of it runs.

        Idempotent; safe after the sandbox ended. Raises `DestroyFailed` when that cannot be confirmed.
        """

    async def revoke(self, route: str) -> None:
        """Close what the *driver* itself opened for ``route``.

        The kernel has closed the streams before it calls this. A driver whose sandboxes have no other
        way out than the channel has nothing left to do, says so by overriding this with a no-op, and
        any other raises `RevocationUnsupported` (L39), which is the default.
        """
        from stockade.errors import RevocationUnsupported

        raise RevocationUnsupported(
            f"driver of sandbox {self.id} cannot close route {route!r} outside the channel",
            sandbox=self.id,
            hint="Destroy the sandbox to cut its network.",
        )


class Driver(ABC):
    """Makes sandboxes. One instance a kernel, constructed with the driver's own settings.

    ``options`` is the table ``[plugin.NAME]`` of the settings, not yet validated; raise
    `stockade.errors.SettingsError` for what is wrong with it. The constructor starts nothing.
    """

    API_VERSION: ClassVar[tuple[int, int]] = (1, 0)

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options

    @abstractmethod
    async def create(self, spec: SandboxSpec) -> Sandbox:
        """Start ``python -m stockade.inside`` somewhere and return at once with its channel.

        The kernel greets the inside program itself. When this raises or is cancelled, nothing of the
        sandbox may be left; raise `CreateFailed` with a hint. Called concurrently.
        """

    @abstractmethod
    async def reap(self, owned: Ownership) -> list[Reaped]:
        """End what is left of the orphans, after checking that each really is what its handle says."""

    async def aclose(self) -> None:
        """Release clients and caches. All sandboxes were destroyed before. Idempotent."""

    @classmethod
    def diagnose(cls) -> Sequence[Finding]:
        """What the driver needs of this host, for ``stockade doctor``. May block for a few seconds."""
        return ()
