"""Turns inside: engines, sessions, outcomes, cancellation."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from stockade.errors import StockadeError
from tests.core.inside.client import Client, events, running, until
from tests.core.inside.conftest import Inside, Start


async def test_a_turn_streams_its_events_and_one_outcome(client: Client) -> None:
    *texts, ended = await client.turn({"say": ["one", "two"]})
    assert [event["text"] for event in texts] == ["one", "two"]
    assert ended["kind"] == "ended"
    assert ended["outcome"]["status"] == "completed"
    assert ended["outcome"]["usage"]["output_tokens"] == 5


@pytest.mark.requirement("L78")
async def test_a_session_keeps_its_engine_and_another_gets_its_own(client: Client) -> None:
    one, again, other = await client.facts(), await client.facts(), await client.facts(session="other")
    assert (one["engine"], one["turns"]) == (again["engine"], again["turns"] - 1)
    assert other["engine"] != one["engine"]


@pytest.mark.requirement("L22", "L23", "L25")
async def test_everything_an_engine_is_given_lies_under_the_state_dir(inside: Inside) -> None:
    facts = await inside.client.facts()
    for name in ("HOME", "TMPDIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        assert Path(facts["environment"][name]).is_relative_to(inside.state)
        assert Path(facts["environment"][name]).is_dir()
    assert facts["home"] == str(inside.state / "engines" / "scripted" / "shared")
    assert facts["cwd"] == facts["workspace"] == str(inside.workspace)


@pytest.mark.requirement("L31", "L36")
async def test_what_a_frame_does_not_say_is_the_least_and_no_guess(client: Client) -> None:
    facts = await client.facts()
    assert (facts["file_access"], facts["model"]) == ("read-only", None)
    facts = await client.facts(file_access="workspace-write", model="m-1")
    assert (facts["file_access"], facts["model"]) == ("workspace-write", "m-1")


@pytest.mark.requirement("L37", "L38")
async def test_the_tier_is_the_drivers_whatever_the_environment_says(start: Start) -> None:
    inside = await start("--tier", "1", STOCKADE_TIER="2")
    facts = await inside.client.facts()
    assert (facts["tier"], facts["environment"]["STOCKADE_TIER"]) == (1, "1")


async def test_only_the_standard_library_is_loaded_beside_the_engine(client: Client) -> None:
    modules = set((await client.facts())["modules"])
    assert not modules & {"pydantic", "pluggy", "stevedore", "cryptography", "aiohttp", "yaml", "rich", "argparse"}


@pytest.mark.requirement("L34", "L79")
async def test_a_native_session_is_resumed_by_the_next_sandbox_of_the_state_dir(start: Start) -> None:
    inside = await start()
    assert (await inside.client.facts())["resume"] is None
    assert (await inside.client.outcome({"native": "n-1"}))["native_session"] == "n-1"
    assert (await inside.client.facts())["resume"] is None, "a live engine resumes nothing"
    await inside.client.control("close_session", session="main")
    assert (await inside.client.facts())["resume"] == "n-1"
    assert (await inside.client.facts(session="other"))["resume"] is None
    assert (await inside.client.facts(home="another-user"))["resume"] is None


@pytest.mark.requirement("L58")
@pytest.mark.parametrize("name", ["../../etc", "..", "/abs", "a b", ".hidden", "x" * 200])
async def test_names_that_are_no_names_never_become_paths(inside: Inside, name: str) -> None:
    outcome = await inside.client.outcome({"say": "x"}, home=name)
    assert (outcome["status"], outcome["code"]) == ("failed", "protocol")


@pytest.mark.requirement("L85")
@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        ("AuthFailed", "failed", "auth"),
        ("ResumeFailed", "failed", "resume_failed"),
        ("BudgetExceeded", "failed", "budget"),
        ("Cancelled", "cancelled", "cancelled"),
        ("ValueError", "failed", "engine_failed"),
        ("CancelledError", "failed", "engine_failed"),
        ("SystemExit", "failed", "engine_failed"),
    ],
)
async def test_an_exception_of_an_engine_becomes_a_typed_outcome(
    client: Client, error: str, status: str, code: str
) -> None:
    outcome = await client.outcome({"raise": error})
    assert (outcome["status"], outcome["code"]) == (status, code)
    assert (await client.outcome({"say": "next"}))["status"] == "completed"


@pytest.mark.requirement("L35")
async def test_a_failed_outcome_stays_failed_with_a_known_code(client: Client) -> None:
    assert (await client.outcome({"fail": "auth"}))["code"] == "auth"
    assert (await client.outcome({"fail": "whatever"}))["code"] == "engine_failed"


async def test_an_engine_that_returns_no_outcome_failed(client: Client) -> None:
    outcome = await client.outcome({"give": "done!"})
    assert outcome["code"] == "engine_failed"
    assert "not an Outcome" in outcome["message"]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("no_such_module:Engine", "no_such_module"),
        ("scripted_engine:Nothing", "Nothing"),
        ("scripted_engine:NOT_AN_ENGINE", "not an Engine class"),
        ("scripted_engine:FromTheFuture", "contract 1.99"),
        ("broken_engine:Engine", "no licence found"),
    ],
)
async def test_an_engine_that_cannot_be_loaded_says_why(client: Client, entry: str, message: str) -> None:
    outcome = await client.outcome({"say": "x"}, entry=entry)
    assert outcome["code"] == "engine_failed"
    assert message in outcome["message"]
    assert outcome["hint"]


async def test_another_engine_in_a_session_replaces_the_first(inside: Inside) -> None:
    one = await inside.client.facts()
    other = await inside.client.facts(entry="scripted_engine:Other", engine="other")
    assert other["engine"] != one["engine"]
    assert (inside.workspace / f"closed-{one['engine']}").exists()


@pytest.mark.requirement("L77")
async def test_what_an_engine_prints_goes_to_the_log_and_never_into_the_stream(inside: Inside) -> None:
    text, ended = await inside.client.turn({"print": "\x01\x05stray"})
    assert text["text"] == "''", "stdin is empty"
    assert ended["outcome"]["status"] == "completed"
    assert inside.log.read_bytes().count(b"stray") == 3


async def test_nothing_is_emitted_after_the_outcome(inside: Inside) -> None:
    received = await inside.client.turn({"late": "too late", "say": "in time"})
    assert [event["kind"] for event in received] == ["text", "ended"]
    await until(lambda: b"after its outcome" in inside.log.read_bytes(), "the late event is logged")


@pytest.mark.requirement("L18")
async def test_a_stray_error_of_an_engine_does_not_end_the_program(inside: Inside) -> None:
    assert (await inside.client.outcome({"stray": True}))["status"] == "completed"
    assert (await inside.client.outcome({"say": "alive"}))["status"] == "completed"
    await until(lambda: b"ZeroDivisionError" in inside.log.read_bytes(), "the stray error is logged")


async def test_many_events_keep_their_order(client: Client) -> None:
    *texts, _ = await client.turn({"count": 20_000})
    assert [event["text"] for event in texts] == [str(number) for number in range(20_000)]


@pytest.mark.requirement("F18")
async def test_an_event_over_the_cap_crosses_truncated_and_the_turn_goes_on(client: Client) -> None:
    long, short, ended = await client.turn({"shout": 2 * 1024 * 1024, "say": "after"})
    assert (long["kind"], long["size"] > 2 * 1024 * 1024) == ("truncated", True)
    assert (short["text"], ended["outcome"]["status"]) == ("after", "completed")


async def test_a_message_of_two_mebibytes_arrives_whole(client: Client) -> None:
    message = json.dumps({"say": "x", "give": "é" * (1024 * 1024)}, ensure_ascii=False).encode()
    assert "not an Outcome" in (await client.outcome(message))["message"]


async def test_a_message_that_is_no_text_is_a_protocol_failure(client: Client) -> None:
    assert (await client.outcome(b"\xff\xfe"))["code"] == "protocol"


async def test_turns_of_two_sessions_run_at_the_same_time(inside: Inside) -> None:
    waiting = await inside.client.open_turn({"await_file": "go"}, session="one")
    await inside.client.outcome({"say": "x"}, session="two")
    (inside.workspace / "go").touch()
    assert (await events(waiting))[-1]["outcome"]["status"] == "completed"


@pytest.mark.requirement("L9")
async def test_turns_of_one_session_wait_for_each_other_and_a_failed_one_lets_the_next_run(inside: Inside) -> None:
    client = inside.client
    running_ = await client.open_turn({"say": "a", "await_file": "go", "raise": "ValueError"})
    assert await running_.receive()
    queued = asyncio.create_task(client.outcome({"say": "b"}))
    assert (await client.control("stats"))["turns"]
    assert not queued.done()
    (inside.workspace / "go").touch()
    assert (await events(running_))[-1]["outcome"]["status"] == "failed"
    assert (await queued)["status"] == "completed"


@pytest.mark.requirement("L61")
async def test_a_cancelled_turn_ends_with_what_the_engine_still_said(client: Client) -> None:
    stream = await client.open_turn({"until_interrupted": "n-7"}, turn="mine")
    assert await stream.receive()
    assert await client.control("cancel", turn="mine") == {"cancelled": True}
    outcome = (await events(stream))[-1]["outcome"]
    assert (outcome["status"], outcome["native_session"]) == ("cancelled", "n-7")
    assert outcome["usage"]["input_tokens"] == 9
    assert (await client.facts())["resume"] == "n-7", "the next turn has a new engine"


@pytest.mark.slow
async def test_an_engine_that_ignores_everything_is_cancelled_all_the_same(client: Client) -> None:
    stream = await client.open_turn({"ignore_everything": True}, turn="mine")
    assert await stream.receive()
    assert await client.control("cancel", turn="mine") == {"cancelled": True}
    assert (await events(stream))[-1]["outcome"]["status"] == "cancelled"
    assert (await client.outcome({"say": "next"}))["status"] == "completed"


async def test_a_turn_whose_engine_is_still_being_imported_can_be_cancelled(inside: Inside) -> None:
    os.mkfifo(inside.workspace / "gate")
    stream = await inside.client.open_turn({"say": "never"}, entry="slow_engine:Slow", turn="mine")
    with (inside.workspace / "gate").open("w"):  # opens when the import has begun, which never ends
        assert await inside.client.control("cancel", turn="mine") == {"cancelled": True}
        assert [event["kind"] for event in await events(stream)] == ["ended"]
        assert (await inside.client.outcome({"say": "next"}))["status"] == "completed"


@pytest.mark.requirement("L73")
async def test_a_queued_turn_sees_its_cancellation_while_it_waits(inside: Inside) -> None:
    client = inside.client
    busy = await client.open_turn({"say": "a", "await_file": "go"})
    assert await busy.receive()
    queued = await client.open_turn({"say": "never"}, turn="queued")
    assert await client.control("cancel", turn="queued") == {"cancelled": True}
    assert [event["kind"] for event in await events(queued)] == ["ended"]
    (inside.workspace / "go").touch()
    assert (await events(busy))[-1]["outcome"]["status"] == "completed"


async def test_cancelling_what_does_not_run_says_so(client: Client) -> None:
    assert await client.control("cancel", turn="unknown") == {"cancelled": False}


@pytest.mark.slow
@pytest.mark.requirement("F2", "F3", "F5", "F9")
async def test_cancelling_ends_every_process_of_the_session_and_of_no_other(inside: Inside) -> None:
    client = inside.client
    tree = "trap '' TERM; (setsid sh -c \"trap '' TERM; sleep 4001 & echo ok >daemon; sleep 4002\" &) ; sleep 4003"
    other = await client.open_turn({"shell": "echo ok >other; sleep 4004", "await_file": "go"}, session="other")
    stream = await client.open_turn({"shell": tree, "await_file": "never"}, turn="mine")
    await until(lambda: all((inside.workspace / name).exists() for name in ("daemon", "other")), "both trees run")
    await client.control("cancel", turn="mine")
    assert (await events(stream))[-1]["outcome"]["status"] == "cancelled"
    assert [number for number in range(4001, 4005) if running(f"sleep\0{number}")] == [4004]
    (inside.workspace / "go").touch()
    await events(other)


async def test_a_turn_whose_stream_is_dropped_is_cancelled(inside: Inside) -> None:
    stream = await inside.client.open_turn({"until_interrupted": "n-1"}, turn="mine")
    assert await stream.receive()
    await stream.reset("gone")
    await until(lambda: list(inside.workspace.glob("closed-*")), "the engine was closed")


@pytest.mark.requirement("L12", "L78")
async def test_sessions_are_bounded_and_a_running_one_is_never_closed(inside: Inside) -> None:
    client = inside.client
    busy = await client.open_turn({"say": "a", "await_file": "go"}, session="busy")
    assert await busy.receive()
    for number in range(40):
        await client.outcome({"say": "x"}, session=f"s{number}")
    assert (await client.control("stats"))["sessions"] == 32
    assert len(list(inside.workspace.glob("closed-*"))) == 9
    (inside.workspace / "go").touch()
    assert (await events(busy))[-1]["outcome"]["status"] == "completed"


async def test_a_malformed_turn_is_refused_and_hurts_nobody(client: Client) -> None:
    stream = await client.mux.open("turn", {"turn": "t", "routes": 7})
    with pytest.raises(StockadeError):
        await stream.receive()
    assert (await client.outcome({"say": "x"}))["status"] == "completed"


async def test_the_engine_is_preloaded_after_the_greeting(start: Start, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    await start("--preload", "scripted_engine:Scripted", STOCKADE_TEST_PRELOADED=str(mark))
    await until(mark.exists, "the engine is imported")
