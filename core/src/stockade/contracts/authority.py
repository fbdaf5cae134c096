"""Who may have a sandbox, and what a turn may spend."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from stockade.model.authority import Claims, SandboxRequest, Token, Verdict


class AdmissionPolicy(ABC):
    """Decides whether a sandbox may exist. All installed policies are asked; one deny is a no.

    An exception, a timeout (``admission.timeout`` seconds) or an answer of another type is a deny
    that names the policy.
    """

    name: str

    @abstractmethod
    async def review(self, request: SandboxRequest) -> Verdict:
        """Called before every creation, never for a reused sandbox; must not block the event loop."""


class TokenMinter(ABC):
    """Makes the short-lived token that a turn spends on a route. At most one a kernel.

    ``options`` is the settings table ``[plugin.NAME]``.
    """

    API_VERSION: ClassVar[tuple[int, int]] = (1, 0)

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options

    @abstractmethod
    async def mint(self, claims: Claims) -> Token:
        """A token for exactly these claims. A failure fails the turn with ``auth``."""

    @abstractmethod
    async def revoke(self, token_ids: Collection[str], reason: str) -> None:
        """The tokens are worth nothing from now on. Called once for each token, when its turn ends."""

    async def aclose(self) -> None:
        """Release clients. Idempotent."""
