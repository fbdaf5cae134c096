"""The tokens of turns: minted before, renewed while, and revoked once when each is over.

A token belongs to whoever takes it out of its session, in synchronous code; only that one revokes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from stockade.contracts.authority import TokenMinter
from stockade.errors import AuthFailed, Revoked, StockadeError
from stockade.model.authority import Claims, Token
from stockade.runtime.entry import Entry, Session

if TYPE_CHECKING:
    from stockade.plugins.hooks import Hooks
    from stockade.runtime.observers import Hub

log = logging.getLogger("stockade.tokens")

MINT_TIME = 10.0
"""Seconds for the minter to make one token."""
REVOKE_TIME = 5.0
"""Seconds for the minter to revoke; the end of a sandbox does not wait any longer."""
RENEWED_AT = 0.75
"""The part of a token's life after which it is renewed."""
PAUSE = 1.0
"""The least seconds between two mints for one turn, whatever the minter answers."""


class Tokens:
    """Those of one kernel. Without a minter, turns have none."""

    def __init__(self, minter: TokenMinter | None, hooks: Hooks, hub: Hub) -> None:
        self._minter = minter
        self._hooks = hooks
        self._hub = hub

    @contextlib.asynccontextmanager
    async def of_turn(self, entry: Entry, session: Session, claims: Claims) -> AsyncIterator[None]:
        """For the length of a turn the session has a token for ``claims``, as the hooks narrow them.

        Raises `AuthFailed`, or what the minter raised, when there is none; `Revoked` when the route was
        revoked meanwhile.
        """
        if self._minter is None:
            yield
            return
        session.token = await self._mint(claims)
        over = asyncio.Event()
        renewing = asyncio.create_task(self._renew(session, claims, over), name=f"stockade-renew-{claims.turn}")
        try:
            if entry.has_revoked(claims.audience):
                raise Revoked(f"route {claims.audience!r} was revoked", sandbox=entry.id)
            yield
        finally:
            token = session.take_token()
            over.set()
            await asyncio.shield(asyncio.ensure_future(self._finish(token, renewing)))

    async def revoke(self, tokens: Sequence[Token], reason: str) -> None:
        """Those that the caller took. A failure is logged: they expire by themselves, and no session has them."""
        if not tokens or self._minter is None:
            return
        ids = [token.id for token in tokens]
        try:
            async with asyncio.timeout(REVOKE_TIME):
                await self._minter.revoke(ids, reason)
        except Exception:
            log.exception("tokens %s could not be revoked (%s)", ", ".join(ids), reason)
        else:
            self._hub.publish("tokens_revoked", data={"ids": ids, "reason": reason})

    async def _finish(self, token: Token | None, renewing: asyncio.Task[None]) -> None:
        if token is not None:
            await self.revoke([token], "the turn is over")
        await asyncio.wait({renewing})  # it may have a new token in its hands

    async def _renew(self, session: Session, claims: Claims, over: asyncio.Event) -> None:
        """Replace the token before it expires, until it cannot last any longer or is taken away."""
        while (old := session.token) is not None and old.expires < claims.expires - 1:
            delay = max(PAUSE, (old.expires - time.time()) * RENEWED_AT)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await over.wait()
            if session.token is not old:
                return
            try:
                new = await self._mint(claims)
            except StockadeError as error:
                log.warning("the token of turn %s was not renewed: %s; trying again", claims.turn, error.message)
                continue
            if session.token is not old:
                await self.revoke([new], "the turn is over")
                return
            session.token = new
            await self.revoke([old], "renewed")

    async def _mint(self, claims: Claims) -> Token:
        assert self._minter is not None
        try:
            async with asyncio.timeout(MINT_TIME):
                token = await self._minter.mint(self._hooks.token_claims(claims))
        except StockadeError:
            raise
        except TimeoutError as error:
            message = f"no token was minted within {MINT_TIME:g} s"
            raise AuthFailed(message, sandbox=claims.sandbox) from error
        except Exception as error:
            message = f"no token could be minted: {type(error).__name__}"
            raise AuthFailed(message, sandbox=claims.sandbox) from error
        self._hub.publish(
            "token_minted",
            sandbox=claims.sandbox,
            session=claims.session,
            turn=claims.turn,
            data={"id": token.id, "expires": token.expires},
        )
        return token
