"""A turn as its caller sees it: events, one outcome, cancel, tokens, routes."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from stockade.errors import SandboxNotFound, UsageError
from stockade.model.events import MAX_EVENT, Ended, Gap, Text, ToolEnd, Unparsed
from stockade.model.turn import Outcome, Usage
from stockade.runtime import turns
from stockade.runtime.turns import TurnHandle
from stockade.testing.fakes import FakeTurn
from stockade.wire.mux import MuxStream, StreamReset

from .test_runner import until, wait_for_cancel


async def talk(turn: FakeTurn) -> Outcome:
    for word in ("one", "two", "three"):
        await turn.emit(Text(word))
    return Outcome("completed", usage=Usage(3, 4), native_session="native-1")


@pytest.mark.requirement("F88", "L79")
async def test_every_reader_sees_every_event_and_the_outcome(bench: Any) -> None:
    bench.driver.behaviour = talk
    turn = await bench.turn()

    async def read() -> list[Any]:
        return [e async for e in turn]

    both = await asyncio.gather(read(), read())
    assert both[0] == both[1]
    assert [e.text for e in both[0][:-1]] == ["one", "two", "three"]
    outcome = await turn.outcome()
    assert both[0][-1] == Ended(outcome)
    assert (outcome.usage, outcome.native_session) == (Usage(3, 4), "native-1")


@pytest.mark.requirement("F87", "F89")
async def test_a_reader_that_is_too_slow_gets_a_gap_with_the_number_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "BACKLOG", 3)
    handle = TurnHandle(id="t", session="s", sandbox="k")
    reader = aiter(handle)
    handle.add(Text("0"))
    assert await anext(reader) == Text("0")
    for i in range(1, 8):
        handle.add(Text(str(i)))
    handle.finish(Outcome("completed"))
    assert await anext(reader) == Gap(5)
    assert [e.kind async for e in reader] == ["text", "text", "ended"]


async def test_a_turn_has_one_outcome_and_no_event_after_it() -> None:
    handle = TurnHandle(id="t", session="s", sandbox="k")
    first = handle.finish(Outcome("completed"))
    assert handle.finish(Outcome("failed", "lost")) is first
    handle.add(Text("late"))
    assert [e.kind async for e in handle] == ["ended"]


@pytest.mark.requirement("F35")
async def test_a_passed_secret_is_redacted_even_when_split_over_events(
    bench: Any, open_bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "canary-0123456789"
    monkeypatch.setenv("MY_SECRET", secret)

    async def leak(turn: FakeTurn) -> Outcome:
        for piece in ("key: can", "ary-01234", "56789 end", " can"):
            await turn.emit(Text(piece))
        await turn.emit(ToolEnd("t1", f"env shows {secret}"))
        return Outcome("failed", "engine_failed", f"bad key {secret}")

    async with open_bench() as bench:
        bench.driver.behaviour = leak
        turn = await bench.turn(env_pass=["MY_SECRET"])
        events = [e async for e in turn]
    assert secret not in repr(events)
    assert "".join(e.text for e in events if e.kind == "text") == "key: [redacted] end can"
    assert "[redacted]" in (await turn.outcome()).message
    assert secret not in repr(bench.toy.Watcher.records)


@pytest.mark.requirement("F18")
async def test_an_event_over_the_cap_arrives_as_truncated_and_the_stream_goes_on(bench: Any) -> None:
    async def flood(turn: FakeTurn) -> Outcome:
        await turn.emit(Text("x" * (MAX_EVENT + 1)))
        raw = b'{"kind":"text","text":"' + b"y" * (10 * 1024 * 1024) + b'"}\n'
        await turn.stream.send(raw)
        await turn.emit(Text("after"))
        return Outcome("completed")

    bench.driver.behaviour = flood
    turn = await bench.turn()
    kinds = [(e.kind, getattr(e, "size", 0) > MAX_EVENT) async for e in turn]
    assert kinds == [("truncated", True), ("truncated", True), ("text", False), ("ended", False)]


@pytest.mark.requirement("F22")
async def test_an_event_of_an_unknown_kind_is_unparsed_and_garbage_is_a_protocol_failure(bench: Any) -> None:
    async def newer(turn: FakeTurn) -> Outcome:
        await turn.stream.send(b'{"kind":"hologram","x":1}\n')
        if turn.message == "garbage":
            await turn.stream.send(b"\x1b[?2004h\n")
        return Outcome("completed")

    bench.driver.behaviour = newer
    turn = await bench.turn()
    assert [type(e) async for e in turn] == [Unparsed, Ended]
    assert (await (await bench.turn("garbage")).outcome()).code == "protocol"


async def test_cancel_tells_the_inside_and_ends_as_cancelled(bench: Any) -> None:
    bench.driver.behaviour = wait_for_cancel
    turn = await bench.turn(sandbox="k")
    await until(lambda: bench.driver.sandboxes and bench.driver.sandboxes[0].turns)
    assert (await turn.cancel()).status == "cancelled"
    assert bench.driver.sandboxes[0].destroyed == 0


async def test_a_turn_over_its_time_limit_is_stalled(bench: Any) -> None:
    bench.driver.behaviour = wait_for_cancel
    outcome = await (await bench.turn(sandbox="k", timeout=0.05)).outcome()
    assert (outcome.status, outcome.code) == ("failed", "stalled")


@pytest.mark.requirement("L45", "F76")
async def test_a_turn_has_its_own_token_narrowed_by_hooks_and_revoked_once(bench: Any) -> None:
    for _ in range(2):
        await (await bench.turn(sandbox="k", session="s", user="ann")).outcome()
    first, second = bench.toy.Minter.minted
    assert first.turn != second.turn
    assert first.sandbox == second.sandbox == bench.driver.sandboxes[0].id
    assert (first.user, first.requests, first.tier) == ("ann", 7, 0)
    assert bench.toy.Minter.revoked == ["token-1", "token-2"]


async def connect(turn: FakeTurn, route: str) -> MuxStream:
    stream: MuxStream = await turn.sandbox.mux.open("tunnel", {"route": route, "session": turn.args["session"]})
    return stream


async def test_a_route_gets_bytes_and_the_kernels_own_word_on_their_origin(bench: Any) -> None:
    async def use_route(turn: FakeTurn) -> Outcome:
        stream = await connect(turn, "echo")
        await stream.send(b"ping")
        await stream.send_end()
        answer = b""
        while data := await stream.receive():
            answer += data
        return Outcome("completed", message=answer.decode())

    bench.driver.behaviour = use_route
    turn = await bench.turn(sandbox="k", session="s", user="ann")
    assert (await turn.outcome()).message == "ping"
    [origin] = bench.toy.Echo.origins
    assert (origin.sandbox, origin.session, origin.user) == (bench.driver.sandboxes[0].id, "s", "ann")
    assert bench.toy.Echo.turns == [turn.id]
    assert "secret-value-of-token" not in repr(origin)


@pytest.mark.requirement("L39", "F78")
async def test_revoking_a_route_cuts_its_streams_and_refuses_new_ones(bench: Any) -> None:
    opened = asyncio.Event()
    codes: list[str] = []

    async def stay_open(turn: FakeTurn) -> Outcome:
        stream = await connect(turn, "echo")
        opened.set()
        for attempt in (stream, None):
            try:
                await (attempt or await connect(turn, "echo")).receive()
            except StreamReset as error:
                codes.append(error.reset_code)
        return Outcome("failed", "engine_failed")

    bench.driver.behaviour = stay_open
    turn = await bench.turn(sandbox="k", engine="echoing")
    await opened.wait()
    await until(lambda: bench.kernel._runner.find("k").tunnels)
    assert await bench.kernel.revoke("k", "echo") == 1
    assert (await turn.outcome()).code == "revoked"
    assert codes == ["revoked", "revoked"]
    assert bench.driver.sandboxes[0].revoked == ["echo"]
    assert bench.toy.Minter.revoked == ["token-1"]


async def test_a_route_nobody_serves_is_refused(bench: Any) -> None:
    async def wrong_route(turn: FakeTurn) -> Outcome:
        stream = await connect(turn, "internet")
        with pytest.raises(StreamReset) as error:
            await stream.receive()
        return Outcome("completed", message=error.value.reset_code)

    bench.driver.behaviour = wrong_route
    assert (await (await bench.turn()).outcome()).message == "denied"


@pytest.mark.requirement("F91")
async def test_observers_see_records_with_growing_numbers(bench: Any) -> None:
    bench.driver.behaviour = talk
    await (await bench.turn()).outcome()
    records = bench.toy.Watcher.records
    await until(lambda: records and records[-1].kind == "sandbox_ended")
    assert [r.seq for r in records] == sorted({r.seq for r in records})
    assert [r.kind for r in records if r.kind != "text"] == [
        "admitted", "sandbox_created", "token_minted", "tokens_revoked", "sandbox_ended",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"message": "  "}, "empty"),
        ({"file_access": "everything"}, "read-only"),
        ({"ttl": 0}, "time to live"),
        ({"env_pass": ["LD_PRELOAD"]}, "LD_PRELOAD"),
        ({"env_pass": ["STOCKADE_TIER"]}, "STOCKADE_TIER"),
        ({"session": "a\nb"}, "session"),
        ({"workspace": "/nowhere/at/all"}, "mkdir"),
        ({"mcp_servers": {"a b": {"command": "x"}}}, "MCP"),
    ],
)
@pytest.mark.requirement("L58")
async def test_bad_input_is_refused_before_anything_starts(bench: Any, options: dict[str, Any], said: str) -> None:
    message = options.pop("message", "hi")
    with pytest.raises(UsageError, match=said):
        await bench.turn(message, **options)
    assert bench.driver.sandboxes == []


async def test_the_state_root_cannot_be_a_workspace(bench: Any) -> None:
    for path in (bench.kernel.settings.home, bench.kernel.settings.home.parent):
        with pytest.raises(UsageError, match="own state"):
            await bench.turn(workspace=path)


async def test_destroying_what_is_not_there_says_so(bench: Any) -> None:
    with pytest.raises(SandboxNotFound, match="no sandbox 'x'"):
        await bench.kernel.destroy("x")


@pytest.mark.requirement("L32", "L33", "L30")
async def test_what_a_turn_is_crosses_the_boundary_and_the_users_name_does_not(bench: Any) -> None:
    seen: list[dict[str, Any]] = []

    async def note(turn: FakeTurn) -> Outcome:
        seen.append(dict(turn.args))
        return Outcome("completed")

    bench.driver.behaviour = note
    for user in ("ann", "ben", "ann"):
        options = {
            "sandbox": "k",
            "session": f"of-{user}",
            "user": user,
            "model": "m",
            "file_access": "workspace-write",
        }
        turn = await bench.turn(**options)
        await turn.outcome()
        assert (seen[-1]["turn"], seen[-1]["session"], seen[-1]["model"]) == (turn.id, f"of-{user}", "m")
    assert seen[0]["home"] == seen[2]["home"] != seen[1]["home"]
    assert [a["file_access"] for a in seen] == ["workspace-write"] * 3
    assert not any("ann" == value for value in seen[0].values())


@pytest.mark.requirement("F13")
async def test_a_silent_turn_runs_on_and_the_next_has_its_own_time(bench: Any) -> None:
    finish = asyncio.Event()

    async def silent(turn: FakeTurn) -> Outcome:
        if turn.message == "long":
            await finish.wait()
        return Outcome("completed")

    bench.driver.behaviour = silent
    long = await bench.turn("long", sandbox="k", timeout=60)
    short = await bench.turn("short", sandbox="k", timeout=60)
    assert (await short.outcome()).status == "completed"
    assert "running" in repr(long)
    finish.set()
    assert (await long.outcome()).status == "completed"


async def test_without_a_minter_turns_carry_no_token_and_the_log_says_so_once(
    open_bench: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def use_route(turn: FakeTurn) -> Outcome:
        stream = await connect(turn, "echo")
        await stream.send_end()
        await stream.receive()
        return Outcome("completed")

    (entry_points,) = Path(sys.path[0]).glob("*/entry_points.txt")
    entry_points.write_text(entry_points.read_text().replace("toy = stockade_toy:Minter", ""))
    entry_points.parent.rename(entry_points.parent.with_name("stockade_toy-1.1.dist-info"))
    with caplog.at_level(logging.INFO):
        async with open_bench() as bench:
            bench.driver.behaviour = use_route
            for _ in range(2):
                assert (await (await bench.turn()).outcome()).status == "completed"
    assert [origin.token for origin in bench.toy.Echo.origins] == [None, None]
    assert caplog.text.count("turns carry no token") == 1


async def test_without_a_name_the_first_engine_runs_and_says_so(bench: Any, caplog: pytest.LogCaptureFixture) -> None:
    outcome = await (await bench.turn(engine=None)).outcome()
    assert outcome.status == "completed"
    assert bench.toy.Policy.seen[-1].engine == "echoing"
    assert "echoing runs (installed: echoing, null)" in caplog.text
