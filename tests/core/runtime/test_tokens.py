"""The tokens of turns: current, renewed, and each revoked once at whatever end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stockade.errors import RevocationUnsupported, UsageError
from stockade.model.authority import Claims, Token
from stockade.model.events import Text
from stockade.model.turn import Outcome
from stockade.runtime import tokens
from stockade.testing.fakes import FakeTurn
from stockade.wire.mux import StreamReset

from .test_runner import until, wait_for_cancel
from .test_turns import connect


def short_lived(toy: Any, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens that last ``seconds``, whatever they may."""
    monkeypatch.setattr(tokens, "PAUSE", 0.01)

    async def mint(self: Any, claims: Claims) -> Token:
        toy.Minter.minted.append(claims)
        return Token(f"token-{len(toy.Minter.minted)}", "secret", min(claims.expires, time.time() + seconds))

    monkeypatch.setattr(toy.Minter, "mint", mint)


@pytest.mark.requirement("L45", "F76")
async def test_a_connection_that_outlives_a_turn_sees_the_next_turn_and_its_token(bench: Any) -> None:
    kept: list[Any] = []

    async def use_kept_connection(turn: FakeTurn) -> Outcome:
        kept.append(kept[0] if kept else await connect(turn, "echo"))
        await kept[0].send(b"x")
        await kept[0].receive()
        [origin] = bench.toy.Echo.origins
        return Outcome("completed", message=f"{origin.turn} {origin.token.id} {origin.user}")

    bench.driver.behaviour = use_kept_connection
    for number, user in ((1, "ann"), (2, "ben")):
        turn = await bench.turn(sandbox="k", session="s", user=user)
        assert (await turn.outcome()).message == f"{turn.id} token-{number} {user}"
        [origin] = bench.toy.Echo.origins
        assert (origin.turn, origin.token, origin.warranted) == ("", None, True)


async def test_the_token_does_not_enter_the_sandbox(bench: Any) -> None:
    seen: list[str] = []

    async def look(turn: FakeTurn) -> Outcome:
        seen.append(repr(turn.args) + repr(turn.sandbox.spec))
        return Outcome("completed")

    bench.driver.behaviour = look
    await (await bench.turn(sandbox="k")).outcome()
    assert bench.toy.Minter.minted
    assert seen and "secret-value-of-token" not in seen[0]


@pytest.mark.requirement("L45", "F75")
async def test_a_token_is_renewed_while_its_turn_runs_and_the_old_one_revoked(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    short_lived(bench.toy, 0.05, monkeypatch)
    bench.driver.behaviour = wait_for_cancel
    turn = await bench.turn(sandbox="k", session="s", timeout=60)
    await until(lambda: len(bench.toy.Minter.minted) >= 3)
    session = bench.kernel._runner.find("k").known("s")
    assert session.token.id not in bench.toy.Minter.revoked
    await turn.cancel()
    minted = [f"token-{n + 1}" for n in range(len(bench.toy.Minter.minted))]
    assert bench.toy.Minter.revoked == minted
    first, *later = bench.toy.Minter.minted
    assert all(claims == first for claims in later), "a renewal asks for nothing more, and for no longer"


async def test_a_token_that_lasts_as_long_as_the_turn_is_not_renewed(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "PAUSE", 0.0)
    bench.driver.behaviour = wait_for_cancel
    turn = await bench.turn(sandbox="k", timeout=0.2)
    assert (await turn.outcome()).code == "stalled"
    assert len(bench.toy.Minter.minted) == 1


@pytest.mark.requirement("F75")
async def test_a_renewal_that_fails_is_tried_again_and_the_turn_runs_on(
    bench: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    short_lived(bench.toy, 0.05, monkeypatch)
    mint, calls = bench.toy.Minter.mint, 0

    async def mint_or_fail(self: Any, claims: Claims) -> Token:
        nonlocal calls
        calls += 1
        if calls in (2, 3):
            raise OSError("the signer is away")
        token: Token = await mint(self, claims)
        return token

    monkeypatch.setattr(bench.toy.Minter, "mint", mint_or_fail)
    bench.driver.behaviour = wait_for_cancel
    turn = await bench.turn(sandbox="k", timeout=60)
    await until(lambda: len(bench.toy.Minter.minted) >= 2)
    assert "not renewed" in caplog.text
    assert (await turn.cancel()).status == "cancelled"


@pytest.mark.requirement("F79")
async def test_a_token_minted_while_its_turn_ends_is_revoked_too(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    short_lived(bench.toy, 0.02, monkeypatch)
    mint, minting, go_on = bench.toy.Minter.mint, asyncio.Event(), asyncio.Event()

    async def slow(self: Any, claims: Claims) -> Token:
        token: Token = await mint(self, claims)
        if len(bench.toy.Minter.minted) == 2:
            minting.set()
            await go_on.wait()
        return token

    monkeypatch.setattr(bench.toy.Minter, "mint", slow)
    bench.driver.behaviour = wait_for_cancel
    turn = await bench.turn(sandbox="k", timeout=60)
    await minting.wait()
    cancelling = asyncio.create_task(turn.cancel())
    await until(lambda: bench.toy.Minter.revoked == ["token-1"])
    go_on.set()
    await cancelling
    assert bench.toy.Minter.revoked == ["token-1", "token-2"]


async def test_a_minter_that_does_not_answer_fails_the_turn(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(self: Any, claims: Claims) -> Token:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(tokens, "MINT_TIME", 0.05)
    monkeypatch.setattr(bench.toy.Minter, "mint", never)
    assert (await (await bench.turn(sandbox="k")).outcome()).code == "auth"


async def test_a_minter_that_cannot_revoke_holds_no_ending_up(
    bench: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def never(self: Any, ids: Any, reason: str) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(tokens, "REVOKE_TIME", 0.05)
    monkeypatch.setattr(bench.toy.Minter, "revoke", never)
    bench.driver.behaviour = wait_for_cancel
    turn = await bench.turn(sandbox="k")
    await until(lambda: bench.driver.sandboxes and bench.driver.sandboxes[0].turns)
    await bench.kernel.destroy("k")
    assert (await turn.outcome()).status == "cancelled"
    assert "token-1 could not be revoked" in caplog.text


async def by_destroy(bench: Any, turn: Any) -> None:
    await bench.kernel.destroy("k")


async def by_cancel(bench: Any, turn: Any) -> None:
    await turn.cancel()


async def by_loss(bench: Any, turn: Any) -> None:
    await turn.sandbox_of_test.crash()


async def by_memory(bench: Any, turn: Any) -> None:
    await turn.sandbox_of_test.crash("oom")


async def by_withdrawal(bench: Any, turn: Any) -> None:
    await bench.kernel._runner.end_all("revoked", "the lease was revoked")


async def by_route(bench: Any, turn: Any) -> None:
    await bench.kernel.revoke("k", "all")
    await turn.cancel()


async def by_time(bench: Any, turn: Any) -> None:
    """A deadline that is in the turn's options passes."""


ENDINGS: dict[str, tuple[Callable[[Any, Any], Awaitable[None]], dict[str, Any], str]] = {
    "destroy": (by_destroy, {}, "cancelled"),
    "cancel": (by_cancel, {}, "cancelled"),
    "deadline of the turn": (by_time, {"timeout": 0.2}, "stalled"),
    "ttl": (by_time, {"ttl": 0.3}, "ttl"),
    "lost": (by_loss, {}, "lost"),
    "oom": (by_memory, {}, "oom"),
    "lease": (by_withdrawal, {}, "revoked"),
    "route": (by_route, {}, "cancelled"),
}


@pytest.mark.requirement("L45", "F76")
@pytest.mark.parametrize("ending", ENDINGS)
async def test_every_ending_revokes_the_tokens_once(bench: Any, ending: str) -> None:
    end, options, code = ENDINGS[ending]

    async def emit_and_wait(turn: FakeTurn) -> Outcome:
        await turn.emit(Text("begun"))  # so that a lost sandbox is no reason to try again
        return await wait_for_cancel(turn)

    bench.driver.behaviour = emit_and_wait
    turn = await bench.turn(sandbox="k", session="s", **options)
    other = await bench.turn(sandbox="k", session="t", **options)
    await until(lambda: turn.emitted and other.emitted)
    turn.sandbox_of_test = bench.driver.sandboxes[0]
    await end(bench, turn)
    assert (await turn.outcome()).code == code
    if ending in ("cancel", "route"):
        assert (await other.cancel()).status == "cancelled"
    await other.outcome()
    await until(lambda: ending in ("cancel", "route", "deadline of the turn") or not bench.kernel.sandboxes())
    assert sorted(bench.toy.Minter.revoked) == ["token-1", "token-2"]


async def test_closing_the_kernel_revokes_the_tokens_once(open_bench: Any) -> None:
    async with open_bench() as bench:
        bench.driver.behaviour = wait_for_cancel
        await bench.turn(sandbox="k")
        await until(lambda: bench.driver.sandboxes and bench.driver.sandboxes[0].turns)
    assert bench.toy.Minter.revoked == ["token-1"]


async def test_a_route_revoked_while_the_token_is_minted_gets_none(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    await (await bench.turn(sandbox="k")).outcome()
    mint, minting, go_on = bench.toy.Minter.mint, asyncio.Event(), asyncio.Event()

    async def slow(self: Any, claims: Claims) -> Token:
        minting.set()
        await go_on.wait()
        token: Token = await mint(self, claims)
        return token

    monkeypatch.setattr(bench.toy.Minter, "mint", slow)
    turn = await bench.turn(sandbox="k")
    await minting.wait()
    await bench.kernel.revoke("k", "all")
    go_on.set()
    assert (await turn.outcome()).code == "revoked"
    assert bench.toy.Minter.revoked == ["token-1", "token-2"]


async def test_a_turn_that_needs_a_revoked_route_does_not_start(bench: Any) -> None:
    await (await bench.turn(sandbox="k", engine="echoing")).outcome()
    await bench.kernel.revoke("k", "echo")
    outcome = await (await bench.turn(sandbox="k", engine="echoing")).outcome()
    assert outcome.code == "revoked"
    assert "new one" in outcome.hint
    assert len(bench.toy.Minter.minted) == 1


async def test_a_route_that_nobody_serves_cannot_be_revoked(bench: Any) -> None:
    await (await bench.turn(sandbox="k")).outcome()
    with pytest.raises(UsageError, match="'ecko'") as error:
        await bench.kernel.revoke("k", "ecko")
    assert "echo" in error.value.hint


@pytest.mark.requirement("L39", "F78")
async def test_another_process_can_revoke_a_route(open_bench: Any) -> None:
    opened = asyncio.Event()

    async def stay_open(turn: FakeTurn) -> Outcome:
        stream = await connect(turn, "echo")
        await stream.send(b"x")
        await stream.receive()
        opened.set()
        with pytest.raises(StreamReset) as error:
            await stream.receive()
        return Outcome("failed", "engine_failed", message=error.value.reset_code)

    async with open_bench() as owner, open_bench() as other:
        owner.driver.behaviour = stay_open
        turn = await owner.turn(sandbox="k", engine="echoing")
        await opened.wait()
        assert await other.kernel.revoke("k", "echo") == 1
        assert (await turn.outcome()).code == "revoked"
        assert await other.kernel.revoke("k", "all") == 0
        assert [row.wish for row in other.kernel.sandboxes()] == [""]


@pytest.mark.requirement("L39")
async def test_another_process_learns_that_a_driver_has_another_way_out(
    open_bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unsupported(route: str) -> None:
        raise RevocationUnsupported("it has a network of its own")

    async with open_bench() as owner, open_bench() as other:
        await (await owner.turn(sandbox="k")).outcome()
        monkeypatch.setattr(owner.driver.sandboxes[0], "revoke", unsupported)
        with pytest.raises(RevocationUnsupported, match="network of its own"):
            await other.kernel.revoke("k", "all")


async def test_the_record_of_a_token_names_it_and_shows_no_value(bench: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    await (await bench.turn(sandbox="k")).outcome()
    records = bench.toy.Watcher.records
    await until(lambda: any(r.kind == "tokens_revoked" for r in records))
    minted, revoked = (next(r for r in records if r.kind == kind) for kind in ("token_minted", "tokens_revoked"))
    assert minted.data["id"] == "token-1"
    assert revoked.data == {"ids": ["token-1"], "reason": "the turn is over"}
    assert "secret-value-of-token" not in repr(records) + caplog.text


@pytest.mark.requirement("F78")
async def test_a_revocation_takes_the_token_from_a_turn_that_goes_on(bench: Any) -> None:
    bench.driver.behaviour = wait_for_cancel
    turn = await bench.turn(sandbox="k", session="s")
    await until(lambda: bench.driver.sandboxes and bench.driver.sandboxes[0].turns)
    session = bench.kernel._runner.find("k").known("s")
    revoking = asyncio.ensure_future(bench.kernel.revoke("k", "echo"))
    await asyncio.sleep(0)
    assert session.token is None, "gone before anything is awaited"
    await revoking
    assert bench.toy.Minter.revoked == ["token-1"]
    assert (await turn.cancel()).status == "cancelled"
    assert bench.toy.Minter.revoked == ["token-1"]


@pytest.mark.requirement("F78")
async def test_a_revocation_ends_a_route_that_waits_for_somebody_else(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    serving, ended = asyncio.Event(), asyncio.Event()

    async def serve(self: Any, stream: Any, origin: Any) -> None:
        serving.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def use(turn: FakeTurn) -> Outcome:
        stream = await connect(turn, "echo")
        with pytest.raises(StreamReset) as error:
            await stream.receive()
        return Outcome("completed", message=error.value.reset_code)

    monkeypatch.setattr(bench.toy.Echo, "serve", serve)
    bench.driver.behaviour = use
    turn = await bench.turn(sandbox="k")
    await serving.wait()
    assert await bench.kernel.revoke("k", "echo") == 1
    await ended.wait()
    assert (await turn.outcome()).message == "revoked"
