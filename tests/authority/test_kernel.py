"""Warrants in a kernel: minted for a turn, seen by a route, and nowhere else."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from stockade import Kernel
from stockade.model.events import Text
from stockade.model.turn import Outcome
from stockade.runtime import tokens
from stockade.testing.fakes import FakeTurn, MemoryDriver
from stockade_authority.errors import TokenMisdirected, TokenRevoked
from stockade_authority.keys import Keyring
from stockade_authority.verify import Verifier, Warrant, local
from tests.support.toys import Toys, toys

__all__ = ["toys"]

HOOKS = """\
from stockade import hookimpl
from stockade.contracts.lifecycle import Observer
from stockade.contracts.route import Route
from stockade.model.authority import ClaimLimits
from stockade.testing.fakes import NullEngine

origins, records = [], []


class Model(Route):
    async def serve(self, stream, origin):
        origins.append(origin)
        while await stream.receive():
            await stream.send(origin.token.id.encode() if origin.token else b"none")


class Modelled(NullEngine):
    ROUTES = {"model": "any"}


class Watcher(Observer):
    async def on_event(self, record):
        records.append(record)


@hookimpl
def routes(settings):
    return {"model": Model()}


@hookimpl
def observers(settings):
    return [Watcher()]


@hookimpl
def token_claims(request):
    return ClaimLimits(requests=7, models=("small",))
"""

ENTRY_POINTS = {
    "stockade.drivers": {"memory": "stockade.testing.fakes:MemoryDriver"},
    "stockade.engines": {"modelled": "toy_model:Modelled"},
    "stockade.minters": {"warrant": "stockade_authority.minter:WarrantMinter"},
    "stockade.plugins": {"model": "toy_model"},
}


class Bench:
    """A kernel with the minter, its driver, and the toy plugin's module."""

    def __init__(self, kernel: Kernel, home: Path) -> None:
        driver = kernel._catalog.driver("memory")
        assert isinstance(driver, MemoryDriver)
        self.kernel, self.driver, self.home = kernel, driver, home
        self.toy: Any = sys.modules["toy_model"]
        self.verifier: Verifier = local(home)

    async def turn(self, **options: Any) -> Any:
        return await self.kernel.turn("hi", **{"sandbox": "k", "session": "s", **options})

    def check(self, value: str, sandbox: str = "") -> Warrant:
        return self.verifier.verify(value, audience="model", sandbox=sandbox or self.driver.sandboxes[0].id)


@contextlib.asynccontextmanager
async def opened(home: Path, **settings: Any) -> AsyncIterator[Bench]:
    async with Kernel.open(home=home, **settings) as kernel:
        bench = Bench(kernel, home)
        yield bench
        bench.verifier.close()


@pytest.fixture
def installed(toys: Toys) -> None:
    toys.dist("toy-model", ENTRY_POINTS, modules={"toy_model": HOOKS})


async def until(condition: Callable[[], Any]) -> None:
    while not condition():  # noqa: ASYNC110 - a condition, and no sleep
        await asyncio.sleep(0.001)


async def call(turn: FakeTurn) -> bytes:
    """One call on the model route, as an engine makes it."""
    stream = await turn.sandbox.mux.open("tunnel", {"route": "model", "session": turn.args["session"]})
    await stream.send(b"?")
    answer: bytes = await stream.receive()
    await stream.send_end()
    return answer


@pytest.mark.usefixtures("installed")
@pytest.mark.requirement("L32", "L45", "F76")
async def test_a_turn_has_a_warrant_that_is_good_for_its_route_and_no_longer(home: Path) -> None:
    values: list[str] = []

    async def look(turn: FakeTurn) -> Outcome:
        await call(turn)
        values.append(bench.toy.origins[-1].token.value)
        warrant = bench.check(values[-1])
        assert (warrant.turn, warrant.session, warrant.user) == (turn.args["turn"], "s", "ann")
        assert (warrant.engine, warrant.tier, warrant.models, warrant.budget.requests) == ("modelled", 0, ("small",), 7)
        with pytest.raises(TokenMisdirected):
            bench.check(values[-1], "another-sandbox")
        return Outcome("completed")

    async with opened(home) as bench:
        bench.driver.behaviour = look
        for _ in range(2):
            assert (await (await bench.turn(user="ann")).outcome()).status == "completed"
        assert len(set(values)) == 2
        for value in values:
            with pytest.raises(TokenRevoked):
                bench.check(value)
        assert bench.toy.origins[-1].token is None


@pytest.mark.usefixtures("installed")
@pytest.mark.slow
@pytest.mark.requirement("L45")
async def test_a_long_turn_always_has_a_warrant_that_is_good(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "PAUSE", 0.05)

    async def look(turn: FakeTurn) -> Outcome:
        seen: list[Warrant] = []
        while len({warrant.id for warrant in seen}) < 3:
            await call(turn)
            seen.append(bench.check(bench.toy.origins[-1].token.value))
        assert {warrant.turn for warrant in seen} == {turn.args["turn"]}
        return Outcome("completed")

    async with opened(home, plugin={"warrant": {"lifetime": 2}}) as bench:
        bench.driver.behaviour = look
        assert (await (await bench.turn()).outcome()).status == "completed"


@pytest.mark.usefixtures("installed")
@pytest.mark.requirement("L45")
async def test_neither_warrant_nor_key_is_in_the_sandbox_an_event_a_record_or_the_log(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    values: list[str] = []

    async def look(turn: FakeTurn) -> Outcome:
        answer = await call(turn)
        values.append(bench.toy.origins[-1].token.value)
        assert values[-1] not in repr(bench.toy.origins)
        await turn.emit(Text(repr(turn.args) + repr(turn.sandbox.spec) + answer.decode()))
        return Outcome("failed", "engine_failed", message=repr(turn.args))

    async with opened(home) as bench:
        bench.driver.behaviour = look
        turn = await bench.turn()
        events = [event async for event in turn]
        await bench.kernel.revoke("k", "all")
        again = await (await bench.turn()).outcome()
        assert again.code == "revoked"
        await until(lambda: any(r.kind == "tokens_revoked" for r in bench.toy.records))
        said = "\n".join(map(repr, [events, await turn.outcome(), again, bench.toy.records])) + caplog.text
        secrets = [*values, *(value.split(".")[2] for value in values)]
        ring = Keyring(home / "keys")
        secrets += [str(ring.get(file.kid).as_dict(private=True)["d"]) for file in ring.files()]
    assert len(secrets) == 3
    assert "token_minted" in said
    assert not [secret for secret in secrets if secret in said]
    for path in (p for p in home.rglob("*") if p.is_file() and p.suffix != ".pem"):
        data = path.read_bytes()
        assert not [secret for secret in secrets if secret.encode() in data], path


@pytest.mark.usefixtures("installed")
@pytest.mark.requirement("L46")
async def test_keys_that_others_can_open_fail_the_turn_with_the_remedy(home: Path) -> None:
    async with opened(home) as bench:
        assert (await (await bench.turn()).outcome()).status == "completed"
        (home / "keys").chmod(0o755)
        outcome = await (await bench.turn()).outcome()
    assert (outcome.code, outcome.hint) == ("keys_unsafe", f"chmod 700 {home / 'keys'}")


@pytest.mark.usefixtures("installed")
async def test_a_wrong_setting_refuses_the_kernel(home: Path) -> None:
    from stockade.errors import SettingsError

    with pytest.raises(SettingsError, match="lifetime"):
        async with opened(home, plugin={"warrant": {"lifetime": -1}}):
            pass
