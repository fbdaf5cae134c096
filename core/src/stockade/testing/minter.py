"""The contract kit of token minters."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Awaitable, Callable

import pytest

from stockade.contracts.authority import TokenMinter
from stockade.model.authority import Claims, Token
from stockade.testing.bounds import BLOCKED, bounded, shortest_block
from stockade.testing.capabilities import Kit, requires
from stockade.testing.examples import example_claims

Verify = Callable[[str, float], Awaitable[Claims | None]]
"""What a token's value is worth at a time (seconds since the epoch): its claims, or ``None`` for nothing."""


class MinterContract(Kit):
    """What every token minter owes. Subclass it, and give two fixtures::

        from stockade.testing import MinterContract

        class TestMyMinter(MinterContract):
            @pytest.fixture
            def minter(self):
                return MyMinter({})

            @pytest.fixture
            def verify(self, minter):
                return minter.verify

    ``verify`` is an async function from a token's value and a time to `Claims` or ``None`` (`Verify`), as the route
    does it that takes the tokens. Without one, say ``Capabilities(verifiable=False)``. A third fixture, ``elsewhere``,
    is another such function that shares nothing with the minter but what is on disk, unless
    ``Capabilities(durable=False)`` is said.
    """

    @pytest.fixture
    def minter(self) -> TokenMinter:
        """The minter under test, new for each test. To be given."""
        raise NotImplementedError("give a fixture `minter` that returns the minter")

    @pytest.fixture
    def verify(self) -> Verify:
        """How to tell what a token is worth. To be given, unless ``verifiable`` is not claimed."""
        raise NotImplementedError("give a fixture `verify`, or say Capabilities(verifiable=False)")

    @pytest.fixture
    def elsewhere(self) -> Verify:
        """What a route in another process, or after a restart, does. To be given, unless ``durable`` is not claimed."""
        raise NotImplementedError("give a fixture `elsewhere`, or say Capabilities(durable=False)")

    def test_it_is_written_for_this_contract(self, minter: TokenMinter) -> None:
        """It states ``API_VERSION`` itself, of this kernel's contract."""
        stated = [cls for cls in type(minter).__mro__ if "API_VERSION" in vars(cls) and cls is not TokenMinter]
        assert stated, "state API_VERSION in the class: a later kernel cannot tell otherwise what it was written for"
        major, minor = minter.API_VERSION
        assert (major, minor) <= TokenMinter.API_VERSION and major == TokenMinter.API_VERSION[0]

    @bounded
    async def test_mint_answers_with_a_token(self, minter: TokenMinter) -> None:
        """A `Token` with an id, a value and the end of its life."""
        token: object = await minter.mint(example_claims())
        assert isinstance(token, Token), type(token).__name__
        assert token.id and token.value
        assert token.expires > time.time(), "it is over already"

    # -- what a token is worth -----------------------------------------------------------------------------

    @requires("verifiable")
    @bounded
    async def test_a_token_says_exactly_its_claims(self, minter: TokenMinter, verify: Verify) -> None:
        """Nothing wider, nothing else: no models at all is no model. Only its life may be shorter."""
        limits = {"requests": 3, "input_tokens": 0, "output_tokens": 1000, "cost_microdollars": 5}
        for changes in ({}, {"models": ("one", "two")}, {"models": ()}, limits, {"user": "Zoë \"Z\" 'x'", "tier": 2}):
            claims = example_claims(**changes)
            worth = await verify((await minter.mint(claims)).value, time.time())
            assert worth is not None, f"worth nothing: {claims}"
            assert worth.expires <= claims.expires
            assert dataclasses.replace(worth, expires=claims.expires) == claims

    @requires("verifiable")
    @bounded
    async def test_an_expired_token_is_worth_nothing(self, minter: TokenMinter, verify: Verify) -> None:
        """A minute after its claims' end, so that clocks may differ."""
        claims = example_claims()
        token = await minter.mint(claims)
        assert await verify(token.value, claims.expires + 60) is None

    @bounded
    async def test_a_token_says_when_it_expires(self, minter: TokenMinter) -> None:
        """No later than its claims."""
        for seconds in (5.0, 3600.0):
            claims = example_claims(expires=float(int(time.time() + seconds)))
            assert (await minter.mint(claims)).expires <= claims.expires

    @requires("verifiable")
    @bounded
    async def test_a_revoked_token_is_worth_nothing(self, minter: TokenMinter, verify: Verify) -> None:
        """From the return of `TokenMinter.revoke` on, also beside an id that nobody knows (F76)."""
        tokens = [await minter.mint(example_claims(turn=turn)) for turn in ("turn-1", "turn-2")]
        await _revoke(minter, tokens[0].id)
        await _revoke(minter, "unknown", tokens[1].id)
        assert [await verify(token.value, time.time()) for token in tokens] == [None, None]

    @requires("durable")
    @bounded
    async def test_a_revocation_is_known_elsewhere(self, minter: TokenMinter, elsewhere: Verify) -> None:
        """In whatever process, and after a restart (F76)."""
        token = await minter.mint(example_claims())
        assert await elsewhere(token.value, time.time()) is not None
        await _revoke(minter, token.id)
        assert await elsewhere(token.value, time.time()) is None

    @requires("verifiable")
    @bounded
    async def test_revoking_one_leaves_the_others(self, minter: TokenMinter, verify: Verify) -> None:
        """Also those of the same sandbox, session and user."""
        tokens = [await minter.mint(example_claims(turn=turn)) for turn in ("turn-1", "turn-2")]
        await _revoke(minter, tokens[0].id)
        worth = await verify(tokens[1].value, time.time())
        assert worth is not None
        assert worth.turn == "turn-2"

    @requires("verifiable")
    @bounded
    async def test_concurrent_mints_do_not_mix(self, minter: TokenMinter, verify: Verify) -> None:
        """Many turns start at once; each gets a token for its own claims."""
        wanted = [example_claims(turn=f"turn-{number}", user=f"person-{number}") for number in range(20)]
        tokens = await asyncio.gather(*map(minter.mint, wanted))
        for claims, token in zip(wanted, tokens, strict=True):
            worth = await verify(token.value, time.time())
            assert worth is not None
            assert (worth.turn, worth.user) == (claims.turn, claims.user)

    # -- secrets -------------------------------------------------------------------------------------------

    @bounded
    async def test_the_value_is_not_shown(self, minter: TokenMinter) -> None:
        """Neither in the token's id and repr, nor in the minter's."""
        token = await minter.mint(example_claims())
        for shown in (token.id, repr(token), str(token), repr(minter)):
            assert token.value not in shown

    @bounded
    async def test_the_value_is_not_logged(self, minter: TokenMinter, caplog: pytest.LogCaptureFixture) -> None:
        """At no level."""
        caplog.set_level(logging.DEBUG)
        token = await minter.mint(example_claims())
        await _revoke(minter, token.id)
        assert token.value not in caplog.text

    @bounded
    async def test_every_token_has_its_own_id(self, minter: TokenMinter) -> None:
        """Revoking goes by id."""
        tokens = await asyncio.gather(*(minter.mint(example_claims()) for _ in range(20)))
        assert len({token.id for token in tokens}) == len(tokens)

    @bounded
    async def test_every_token_has_its_own_value(self, minter: TokenMinter) -> None:
        """Also for the same claims: the first to be revoked would end the other."""
        tokens = await asyncio.gather(*(minter.mint(example_claims()) for _ in range(20)))
        assert len({token.value for token in tokens}) == len(tokens)

    # -- calls ---------------------------------------------------------------------------------------------

    @bounded
    async def test_revoking_twice_does_no_harm(self, minter: TokenMinter) -> None:
        """The kernel calls it once for a token; a person may have been there before."""
        token = await minter.mint(example_claims())
        for _ in range(2):
            await minter.revoke([token.id], "the turn ended")

    @bounded
    async def test_revoking_the_unknown_does_no_harm(self, minter: TokenMinter) -> None:
        """Ids of an earlier kernel, and none at all."""
        await minter.revoke(["of-another-life"], "the turn ended")
        await minter.revoke([], "the turn ended")

    @bounded
    async def test_a_cancelled_mint_harms_no_other(self, minter: TokenMinter) -> None:
        """The caller may give up at any await."""
        task = asyncio.ensure_future(minter.mint(example_claims()))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task}, timeout=self.patience)
        assert task.done(), "it goes on after its cancellation"
        async with asyncio.timeout(self.patience):
            await minter.mint(example_claims())

    @bounded
    async def test_the_loop_is_not_blocked(self, minter: TokenMinter) -> None:
        """All turns of the kernel wait meanwhile."""
        blocked = await shortest_block(lambda: minter.mint(example_claims()))
        assert blocked < BLOCKED, f"{blocked:.2f} s"

    @bounded
    async def test_closing_is_idempotent(self, minter: TokenMinter) -> None:
        """Used or not."""
        await minter.mint(example_claims())
        for _ in range(2):
            await minter.aclose()


async def _revoke(minter: TokenMinter, *ids: str) -> None:
    """Revoke; what goes wrong with it is another test's."""
    try:
        await minter.revoke(ids, "the turn ended")
    except Exception:
        logging.getLogger("stockade.testing").debug("revoke failed", exc_info=True)
