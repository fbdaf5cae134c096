"""A policy and a minter that remember what they were asked."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping
from typing import Any

from stockade.contracts.authority import AdmissionPolicy, TokenMinter
from stockade.model.authority import Claims, SandboxRequest, Token, Verdict


def allow_all(request: SandboxRequest) -> Verdict:
    """Nothing against anything."""
    return Verdict.allow()


class RecordingPolicy(AdmissionPolicy):
    """Decides by a function, and keeps the ``requests`` that it saw, in order."""

    def __init__(self, decide: Callable[[SandboxRequest], Verdict] = allow_all, name: str = "recording") -> None:
        self.name = name
        self.requests: list[SandboxRequest] = []
        self._decide = decide

    async def review(self, request: SandboxRequest) -> Verdict:
        self.requests.append(request)
        return self._decide(request)


class RecordingMinter(TokenMinter):
    """Random tokens, whose claims stay here: ``minted`` by token id, ``revoked`` reasons by token id."""

    API_VERSION = (1, 0)

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(options or {})
        self.minted: dict[str, Claims] = {}
        self.revoked: dict[str, str] = {}
        self._ids: dict[str, str] = {}

    async def mint(self, claims: Claims) -> Token:
        token = Token(f"token-{len(self.minted) + 1}", secrets.token_urlsafe(24), claims.expires)
        self.minted[token.id] = claims
        self._ids[token.value] = token.id
        return token

    async def revoke(self, token_ids: Collection[str], reason: str) -> None:
        for token_id in token_ids:
            self.revoked.setdefault(token_id, reason)

    async def verify(self, value: str, now: float) -> Claims | None:
        """What a token is worth at ``now`` (seconds since the epoch); ``None`` for nothing."""
        token_id = self._ids.get(value)
        if token_id is None or token_id in self.revoked:
            return None
        claims = self.minted[token_id]
        return claims if now < claims.expires else None
