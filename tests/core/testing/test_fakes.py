"""The public fakes by themselves; the kits prove the rest of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from stockade.contracts.engine import EngineContext
from stockade.contracts.route import Caller, Origin
from stockade.errors import BudgetExceeded
from stockade.model.authority import Verdict
from stockade.model.events import Event, Text, ToolEnd, ToolStart
from stockade.model.turn import Outcome, Turn
from stockade.testing.examples import example_claims, example_request
from stockade.testing.fakes import MemoryStream, RecordingMinter, RecordingPolicy, RecordingRoute, ScriptedEngine


class Engines:
    """Engines of one script, and what they sent."""

    def __init__(self, folder: Path) -> None:
        self.events: list[Event] = []
        self._context = EngineContext("s", folder, folder, 0, {}, logging.getLogger("test"))

    def of(self, *steps: Event | Outcome | Exception) -> ScriptedEngine:
        class Played(ScriptedEngine):
            script: ClassVar[Sequence[Event | Outcome | Exception]] = steps

        return Played(self._context)

    async def emit(self, event: Event) -> None:
        self.events.append(event)


@pytest.fixture
def engines(tmp_path: Path) -> Engines:
    return Engines(tmp_path)


async def test_a_scripted_engine_sends_its_events_and_returns_its_outcome(engines: Engines) -> None:
    steps = (Text("one"), ToolStart("1", "ls"), ToolEnd("1", "a file"))
    engine, turn = engines.of(*steps, Outcome("completed", native_session="n")), Turn("t", "s", "go")
    assert await engine.run_turn(turn, engines.emit) == Outcome("completed", native_session="n")
    assert engines.events == [*steps]
    assert engine.turns == [turn]


async def test_a_scripted_engine_raises_its_exception(engines: Engines) -> None:
    with pytest.raises(BudgetExceeded):
        await engines.of(Text("one"), BudgetExceeded("no money")).run_turn(Turn("t", "s", "go"), engines.emit)


async def test_a_scripted_engine_without_an_end_waits_for_the_interrupt(engines: Engines) -> None:
    engine = engines.of(Text("one"))
    await engine.interrupt()
    running = asyncio.ensure_future(engine.run_turn(Turn("t", "s", "go"), engines.emit))
    done, _ = await asyncio.wait({running}, timeout=0.01)
    assert not done
    await engine.interrupt()
    assert (await running).status == "cancelled"


async def test_a_recording_policy_keeps_what_it_was_asked() -> None:
    policy, request = RecordingPolicy(lambda request: Verdict.deny("never")), example_request()
    assert await policy.review(request) == Verdict.deny("never")
    assert policy.requests == [request]


async def test_a_recording_minter_keeps_claims_and_reasons() -> None:
    minter, claims = RecordingMinter(), example_claims()
    token = await minter.mint(claims)
    await minter.revoke([token.id], "the turn ended")
    assert minter.minted == {token.id: claims}
    assert minter.revoked == {token.id: "the turn ended"}


async def test_a_recording_route_keeps_who_said_what() -> None:
    route, stream = RecordingRoute(), MemoryStream()
    origin = Origin("sb", "s", "echo", key="key", caller=Caller(user="ann"))
    stream.say(b"key\nhel")
    stream.say(b"lo")
    stream.finish()
    await route.serve(stream, origin)
    assert await stream.take() == b"hello"
    assert await stream.take() == b""
    [(who, said)] = route.calls
    assert (who.user, bytes(said)) == ("ann", b"hello")


async def test_a_recording_route_refuses_another_key() -> None:
    route, stream = RecordingRoute(), MemoryStream()
    stream.say(b"another\nhello")
    await route.serve(stream, Origin("sb", "s", "echo", key="key"))
    assert stream.code == "denied"
    assert route.calls == []


async def test_a_memory_stream_lets_the_route_be_a_window_ahead() -> None:
    stream = MemoryStream(window=4)
    sending = asyncio.ensure_future(stream.send(b"0123456789"))
    done, _ = await asyncio.wait({sending}, timeout=0.01)
    assert not done
    got = b""
    while len(got) < 10:
        taken = await stream.take()
        assert len(taken) <= 4
        got += taken
    await sending
    assert got == b"0123456789"


async def test_a_broken_memory_stream_is_a_connection_error_on_both_ways() -> None:
    stream = MemoryStream()
    stream.break_off()
    with pytest.raises(ConnectionError):
        await stream.receive()
    with pytest.raises(ConnectionError):
        await stream.send(b"x")
    assert await stream.take() == b""
