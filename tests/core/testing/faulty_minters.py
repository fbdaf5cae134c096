"""Minters with one fault each. ``verify`` stands for the route that takes their tokens."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Collection, Mapping
from typing import Any

from stockade.model.authority import Claims, Token
from stockade.testing.fakes import RecordingMinter
from tests.core.testing.faults import fails

log = logging.getLogger("toy.minter")


@fails("test_it_is_written_for_this_contract")
class FromTheFuture(RecordingMinter):
    API_VERSION = (1, 99)


class Dressed:
    """Has the fields of a token, and is none."""

    def __init__(self, token: Token) -> None:
        self.id, self.value, self.expires = token.id, token.value, token.expires


@fails("test_mint_answers_with_a_token")
class NoToken(RecordingMinter):
    async def mint(self, claims: Claims) -> Any:
        return Dressed(await super().mint(claims))


@fails("test_a_token_says_exactly_its_claims")
class DropsBudgets(RecordingMinter):
    async def mint(self, claims: Claims) -> Token:
        return await super().mint(dataclasses.replace(claims, requests=None))


@fails("test_a_token_says_exactly_its_claims")
class NoModelsIsAnyModel(RecordingMinter):
    async def mint(self, claims: Claims) -> Token:
        return await super().mint(dataclasses.replace(claims, models=claims.models or None))


@fails("test_an_expired_token_is_worth_nothing")
class IgnoresTheEnd(RecordingMinter):
    async def verify(self, value: str, now: float) -> Claims | None:
        return await super().verify(value, 0.0)


@fails("test_a_token_says_when_it_expires")
class LivesADay(RecordingMinter):
    async def mint(self, claims: Claims) -> Token:
        return dataclasses.replace(await super().mint(claims), expires=time.time() + 86400)


@fails("test_a_revoked_token_is_worth_nothing")
class RevokesAllOrNothing(RecordingMinter):
    async def revoke(self, token_ids: Collection[str], reason: str) -> None:
        if all(token_id in self.minted for token_id in token_ids):
            await super().revoke(token_ids, reason)


@fails("test_a_revocation_is_known_elsewhere")
class RevokesHere(RecordingMinter):
    async def elsewhere(self, value: str, now: float) -> Claims | None:
        return next((self.minted[token_id] for known, token_id in self._ids.items() if known == value), None)


@fails("test_revoking_one_leaves_the_others")
class RevokesTheSession(RecordingMinter):
    async def revoke(self, token_ids: Collection[str], reason: str) -> None:
        sessions = {self.minted[token_id].session for token_id in token_ids if token_id in self.minted}
        await super().revoke([*token_ids, *(i for i, c in self.minted.items() if c.session in sessions)], reason)


@fails("test_concurrent_mints_do_not_mix")
class SharesTheClaims(RecordingMinter):
    claims: Claims

    async def mint(self, claims: Claims) -> Token:
        self.claims = claims
        await asyncio.sleep(0)
        return await super().mint(self.claims)


@fails("test_the_value_is_not_shown")
class ValueAsId(RecordingMinter):
    async def mint(self, claims: Claims) -> Token:
        token = await super().mint(claims)
        self.minted[token.value] = self.minted[token.id]
        self._ids[token.value] = token.value
        return dataclasses.replace(token, id=token.value)


@fails("test_the_value_is_not_logged")
class Logs(RecordingMinter):
    async def mint(self, claims: Claims) -> Token:
        token = await super().mint(claims)
        log.debug("minted %s", token.value)
        return token


@fails("test_every_token_has_its_own_id")
class IdByTurn(RecordingMinter):
    async def mint(self, claims: Claims) -> Token:
        token = await super().mint(claims)
        self.minted[claims.turn] = claims
        self._ids[token.value] = claims.turn
        return dataclasses.replace(token, id=claims.turn)


@fails("test_every_token_has_its_own_value")
class ValueByTurn(RecordingMinter):
    """Ids are new, but the value is made of the claims alone."""

    async def mint(self, claims: Claims) -> Token:
        token = await super().mint(claims)
        value = f"signed-{hash(dataclasses.astuple(claims))}"
        self._ids[value] = token.id
        return dataclasses.replace(token, value=value)


@fails("test_revoking_twice_does_no_harm")
class RevokesOnce(RecordingMinter):
    async def revoke(self, token_ids: Collection[str], reason: str) -> None:
        if set(token_ids) & set(self.revoked):
            raise ValueError("revoked before")
        await super().revoke(token_ids, reason)


@fails("test_revoking_the_unknown_does_no_harm")
class KnowsItsOwn(RecordingMinter):
    async def revoke(self, token_ids: Collection[str], reason: str) -> None:
        await super().revoke(token_ids, reason)
        for token_id in token_ids:
            self.minted[token_id]


@fails("test_a_cancelled_mint_harms_no_other")
class KeepsTheLock(RecordingMinter):
    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(options)
        self.lock = asyncio.Lock()

    async def mint(self, claims: Claims) -> Token:
        await self.lock.acquire()
        await asyncio.sleep(0)
        token = await super().mint(claims)
        self.lock.release()
        return token


@fails("test_the_loop_is_not_blocked")
class Blocks(RecordingMinter):
    calls = 0

    async def mint(self, claims: Claims) -> Token:
        self.calls += 1
        if self.calls <= 3:
            time.sleep(0.12)
        return await super().mint(claims)


@fails("test_closing_is_idempotent")
class ClosesOnce(RecordingMinter):
    closed = False

    async def aclose(self) -> None:
        if self.closed:
            raise RuntimeError("it is closed")
        self.closed = True
