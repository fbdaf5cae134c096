"""Makes the short-lived token that a turn spends on a route."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from stockade import TokenMinter
from stockade.errors import SettingsError
from stockade.model.authority import Claims, Token


class AcmeMinter(TokenMinter):
    """Tokens are random words. What they are worth is looked up here, so a revoked one is worthless at once.

    Nothing is stored: the tokens of a kernel that has ended are worth nothing either.
    """

    API_VERSION: ClassVar[tuple[int, int]] = (1, 0)

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        if unknown := sorted(set(options) - {"home"}):
            raise SettingsError(f"[plugin.acme] has no option {', '.join(unknown)}", hint="Remove the table.")
        # By the hash of the value: what is kept here cannot be spent.
        self._minted: dict[str, tuple[str, Claims]] = {}

    async def mint(self, claims: Claims) -> Token:
        """See `TokenMinter.mint`."""
        now = time.time()
        self._minted = {key: kept for key, kept in self._minted.items() if kept[1].expires > now}
        token = Token(secrets.token_hex(8), secrets.token_urlsafe(32), claims.expires)
        self._minted[_hash(token.value)] = token.id, claims
        return token

    async def revoke(self, token_ids: Collection[str], reason: str) -> None:
        """See `TokenMinter.revoke`. Unknown ids are none of ours."""
        self._minted = {key: kept for key, kept in self._minted.items() if kept[0] not in token_ids}

    async def verify(self, value: str, at: float) -> Claims | None:
        """What a token is worth at a time, in seconds since the epoch; ``None`` for nothing."""
        _, claims = self._minted.get(_hash(value), ("", None))
        return claims if claims is not None and at < claims.expires else None

    async def aclose(self) -> None:
        """See `TokenMinter.aclose`."""
        self._minted.clear()


def _hash(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()
