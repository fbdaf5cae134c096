"""Who may have a sandbox, and what a turn may spend."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from stockade.model.authority import Claims, SandboxRequest, Token, TurnRequest, Verdict
from stockade.model.isolation import Isolation


class AdmissionPolicy(ABC):
    """Decides whether a sandbox may exist, and whether a turn may run. One instance a kernel.

    Every question goes to all installed policies at once; one deny is a no. An exception, a timeout
    (``admission.timeout`` seconds) or an answer of another type is a deny that names the policy. A policy
    is asked only what it has a method for, and must not block the event loop.
    """

    name: str

    @abstractmethod
    async def review(self, request: SandboxRequest) -> Verdict:
        """May this sandbox exist? Called before every creation (L13).

        Called again when a live sandbox is to serve another engine, user or file access than it was
        admitted for; ``request.sandbox`` is then the live one's id. An allow is no promise that a sandbox
        follows: another policy may deny, the creation may fail, the question may be a dry run.
        """

    async def confirm(self, request: SandboxRequest, isolation: Isolation) -> Verdict:
        """May it be used, being what the driver attests? Called whenever `review` allowed, before the first use.

        What only a driver can know (tier, image) is known only now. A deny destroys a new sandbox.
        """
        return Verdict.allow()

    async def review_turn(self, request: TurnRequest) -> Verdict:
        """May this turn run? Called once a turn, before anything is made for it and before it waits for its session."""
        return Verdict.allow()

    async def turn_ended(self, request: TurnRequest) -> None:
        """The turn is over, or does not happen. Called exactly once after each `review_turn`.

        Whatever was answered, also when no answer came in time, also when the kernel closes. What it raises is
        logged; after ``admission.timeout`` seconds nobody waits for it any more.
        """

    async def withdrawn(self) -> str:
        """Return, with the reason, when everything that was admitted has to end now.

        Awaited for the life of the kernel and cancelled at its end: a loop that keeps something fresh may live
        here. The kernel then ends all its sandboxes (``revoked``) and awaits this anew, so return once for each
        withdrawal. An exception counts as a withdrawal. By default never.
        """
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    async def aclose(self) -> None:
        """Release clients and files; nothing is asked afterwards. Idempotent."""


class TokenMinter(ABC):
    """Makes the short-lived token that a turn spends on a route. At most one a kernel.

    ``options`` is the settings table ``[plugin.NAME]``, and ``home`` in it the state root (a `Path`): what
    has to survive a restart, or be known to every kernel of the root, lives there under a name of the
    minter's own. Raise `stockade.errors.SettingsError` for what is wrong with the table. The constructor
    opens nothing; it may begin slow imports in a thread.
    """

    API_VERSION: ClassVar[tuple[int, int]] = (1, 0)

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options

    @abstractmethod
    async def mint(self, claims: Claims) -> Token:
        """A token for exactly these claims, or one with a shorter life. A failure fails the turn with ``auth``.

        Called before a turn starts, and again while it runs when three quarters of the token's life are
        over, with the same claims as plugins narrow them then; the old token is revoked afterwards. A
        failure while the turn runs is tried again. Called concurrently; 10 seconds are the limit.
        """

    @abstractmethod
    async def revoke(self, token_ids: Collection[str], reason: str) -> None:
        """The tokens are worth nothing from now on, in whatever process, and after a restart.

        Called exactly once for each token: when it was renewed, when its turn is over, when its route was
        revoked or its sandbox ends (``reason``: ``ttl``, ``oom``, ``lost``, ``cancelled``, ``revoked``),
        whichever comes first. After 5 seconds nobody waits for it any more.
        """

    async def aclose(self) -> None:
        """Release clients. Idempotent."""
