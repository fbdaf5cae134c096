"""What the real bridge cannot be made to do offline, with a bridge that behaves in the ways of fake_bridge.py."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stockade.errors import AuthFailed, BudgetExceeded, EngineFailed, ResumeFailed
from stockade.model.events import Started, Text, Thinking, ToolEnd, ToolStart, Truncated, Unparsed
from stockade.model.turn import Usage
from stockade.testing.bounds import until
from stockade_cursor import bridge as bridge_module
from tests.cursor.conftest import KEY, PLACEHOLDER, Session

Play = Callable[..., Session]


@pytest.fixture
def play(open_session: Callable[..., Session], fake_bridge: Callable[[str], Path]) -> Play:
    """A session on a fake bridge of this way."""
    return lambda way, **options: open_session(bridge=fake_bridge(way), **options)


def requests(session: Session, name: str) -> list[dict[str, Any]]:
    """What came to the fake bridge under this name."""
    lines = (session.context.workspace / "bridge.log").read_text().splitlines()
    return [body for method, body in map(json.loads, lines) if method == name]


# -- events ------------------------------------------------------------------------------------------


@pytest.mark.requirement("L76")
async def test_parallel_calls_of_one_tool_keep_their_results(play: Play) -> None:
    session = play("tools")
    assert (await session.run()).status == "completed"
    assert [(e.id, e.input) for e in session.of(ToolStart)][:2] == [
        ("a", {"command": "first"}),
        ("b", {"command": "second"}),
    ]
    assert session.calls == {
        "a": ("shell", ToolEnd("a", "of a", True)),
        "b": ("shell", ToolEnd("b", '{"stdout": "of b"}', False)),
        "c": ("shell", ToolEnd("c", '{"status": "error", "error": "of c"}', True)),
    }


async def test_thinking_and_text_come_as_deltas(play: Play) -> None:
    session = play("thinking")
    await session.run()
    assert session.events == [
        Started("cursor", "fake-model"), Thinking("h"), Thinking("m"), Text("So "), Text("it is."),
    ]  # fmt: skip


@pytest.mark.requirement("L60")
async def test_cumulative_snapshots_become_deltas(play: Play) -> None:
    session = play("snapshots")
    await session.run()
    assert session.thinking == "First I look."
    assert session.text == "Hello, youBye."


@pytest.mark.requirement("L60")
async def test_two_snapshots_are_told_from_deltas_by_the_result(play: Play) -> None:
    session = play("two-snapshots")
    await session.run()
    assert session.text == "Hello"


@pytest.mark.requirement("L60")
async def test_deltas_that_look_like_snapshots_lose_nothing(play: Play) -> None:
    session = play("counting")
    await session.run()
    assert session.text == "11000"


@pytest.mark.requirement("L67")
async def test_a_text_that_was_not_streamed_is_taken_from_the_result(play: Play) -> None:
    session = play("silent-text")
    await session.run()
    assert session.of(Text) == [Text("only in the result")]


async def test_the_usage_of_all_steps_is_summed(play: Play) -> None:
    assert (await play("usage").run()).usage == Usage(10, 4, 6, 2)


@pytest.mark.requirement("F22", "L65")
async def test_messages_that_nobody_knows_are_passed_on_and_the_turn_goes_on(play: Play) -> None:
    session = play("unknown")
    assert (await session.run()).status == "completed"
    assert [json.loads(event.text)["is"] for event in session.of(Unparsed)] == ["fine"]
    assert session.notices == ["Cursor asks a person something; nobody is there to answer", "half of it"]
    assert session.text == "fine"


@pytest.mark.requirement("F18")
async def test_what_is_too_long_for_an_event_is_cut_and_said(play: Play) -> None:
    session = play("long")
    assert (await session.run()).status == "completed"
    assert session.text == "é" * 3_000_000
    assert [event.size for event in session.of(Truncated)] == [2_000_015, 10_485_760]
    assert "t" in session.calls


@pytest.mark.requirement("F25")
async def test_a_chatty_standard_error_blocks_nobody(play: Play) -> None:
    session = play("stderr")
    assert (await session.run()).status == "completed"


# -- the agent ---------------------------------------------------------------------------------------


@pytest.mark.requirement("L66", "L78")
async def test_the_second_turn_uses_the_same_bridge_and_agent_and_sends_only_its_message(play: Play) -> None:
    session = play("plain")
    first, second = await session.run("one"), await session.run("two")
    assert first.native_session == second.native_session == "agent-1"
    assert [r["message"] for r in requests(session, "Send")] == [{"text": "one"}, {"text": "two"}]
    assert len(requests(session, "CreateAgent")) == 1


@pytest.mark.requirement("L34")
async def test_a_new_engine_resumes_the_agent_by_its_id(play: Play) -> None:
    session = play("plain")
    first = await session.run()
    await session.renew()
    assert (await session.run(resume=first.native_session)).native_session == "agent-1"
    assert [r["agentId"] for r in requests(session, "ResumeAgent")] == ["agent-1"]
    assert len(requests(session, "CreateAgent")) == 1


@pytest.mark.requirement("L34")
async def test_other_options_get_another_bridge_and_resume_the_agent(play: Play) -> None:
    session = play("plain")
    await session.run()
    await session.run(model="other", file_access="full", mcp_servers={"notes": {"command": "notes"}})
    (options,) = (r["options"] for r in requests(session, "ResumeAgent"))
    assert options["model"] == {"id": "other"}
    assert options["mcpServers"] == {"notes": {"stdio": {"command": "notes"}}}


@pytest.mark.requirement("L85", "F85")
async def test_an_unknown_agent_is_a_typed_failure_and_not_tried_again(play: Play) -> None:
    session = play("plain")
    with pytest.raises(ResumeFailed):
        await session.run(resume="agent-unknown")
    assert len(requests(session, "ResumeAgent")) == 1


@pytest.mark.requirement("L61", "L85")
@pytest.mark.parametrize("way", ["busy", "busy-plainly"])
async def test_a_busy_agent_is_cancelled_and_tried_once_more(play: Play, way: str) -> None:
    session = play(way)
    assert (await session.run()).status == "completed"
    assert [r["runId"] for r in requests(session, "CancelRun")] == ["run-0"]
    assert [r["options"].get("local") for r in requests(session, "Send")] == [None, {"force": True}]
    assert session.notices == ["Cursor was still busy with an earlier run, which was cancelled"]


@pytest.mark.requirement("L61")
async def test_an_agent_that_stays_busy_fails_after_one_retry(play: Play) -> None:
    session = play("always-busy")
    with pytest.raises(EngineFailed, match="agent is busy"):
        await session.run()
    assert len(requests(session, "Send")) == 2


# -- the end -----------------------------------------------------------------------------------------


@pytest.mark.requirement("F12")
async def test_the_result_ends_the_turn_although_a_worker_stays(play: Play) -> None:
    session = play("worker-stays")
    started = time.monotonic()
    outcome = await session.run()
    assert (outcome.status, session.text) == ("completed", "done")
    assert time.monotonic() - started < 20
    await session.ended()


@pytest.mark.requirement("L61")
async def test_an_interrupt_cancels_the_run_and_the_outcome_waits_for_it(play: Play) -> None:
    session = play("cancel")
    running = asyncio.ensure_future(session.run())
    await session.until(Text)
    await session.engine.interrupt()
    outcome = await asyncio.wait_for(running, 10)
    assert (outcome.status, outcome.code, outcome.native_session) == ("cancelled", "cancelled", "agent-1")
    assert [r["runId"] for r in requests(session, "CancelRun")] == ["run-1"]
    await session.ended()


@pytest.mark.requirement("F4", "F7")
async def test_a_run_that_does_not_heed_the_cancel_ends_with_its_bridge(play: Play) -> None:
    session = play("deaf")
    running = asyncio.ensure_future(session.run())
    await session.until(Text)
    await session.engine.interrupt()
    assert (await asyncio.wait_for(running, 10)).status == "cancelled"
    await session.ended()


async def test_an_interrupt_before_the_bridge_is_ready_ends_the_turn(play: Play) -> None:
    session = play("never-ready")
    running = asyncio.ensure_future(session.run())
    assert await until(session.processes, 10)
    await session.engine.interrupt()
    assert (await asyncio.wait_for(running, 10)).status == "cancelled"
    await session.ended()


@pytest.mark.requirement("F4")
async def test_closing_ends_the_launcher_and_the_program_behind_it(play: Play) -> None:
    session = play("plain")
    await session.run()
    assert len(session.processes()) == 2
    await session.engine.aclose()
    assert session.processes() == []
    await session.engine.aclose()


# -- failures ----------------------------------------------------------------------------------------


@pytest.mark.requirement("F40", "L82")
async def test_a_bridge_that_dies_is_a_failure_with_its_last_words(play: Play) -> None:
    session = play("dies")
    with pytest.raises(EngineFailed, match=r"ended without a result \(exit status 3\)") as caught:
        await session.run()
    assert "out of luck" in caught.value.hint
    assert session.text == "half"


@pytest.mark.requirement("F40", "L35")
@pytest.mark.parametrize(
    ("way", "message"),
    [
        ("no-result", "without a result"),
        ("broken-off", "could not be used"),
        ("garbage", "could not be used"),
        ("no-json", "no JSON"),
        ("no-object", "no JSON object"),
        ("other-schema", "schema"),
        ("no-models", "offers no model"),
    ],
)
async def test_garbage_and_broken_streams_are_engine_failures(play: Play, way: str, message: str) -> None:
    session = play(way)
    with pytest.raises(EngineFailed, match=message):
        await session.run()
    await session.ended()


@pytest.mark.requirement("F8")
async def test_a_bridge_that_cannot_start_says_why_at_once(play: Play) -> None:
    started = time.monotonic()
    with pytest.raises(EngineFailed, match=r"ended \(exit status 1\)") as caught:
        await play("dead-at-once").run()
    assert "no space left" in caught.value.hint
    assert time.monotonic() - started < bridge_module.READY / 2


async def test_a_bridge_that_is_never_ready_is_given_up_and_ended(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge_module, "READY", 0.5)
    session = play("never-ready")
    with pytest.raises(EngineFailed, match="was not ready within"):
        await session.run()
    await session.ended()


async def test_a_bridge_that_is_not_there_is_named(open_session: Callable[..., Session], tmp_path: Path) -> None:
    with pytest.raises(EngineFailed, match="nowhere"):
        await open_session(bridge=tmp_path / "nowhere").run()


@pytest.mark.requirement("L85")
async def test_refused_options_say_what_file_access_needs(play: Play) -> None:
    with pytest.raises(EngineFailed, match="sandboxing is not supported") as caught:
        await play("refused").run()
    assert "user namespaces" in caught.value.hint


@pytest.mark.requirement("F94", "L85")
async def test_a_used_up_limit_is_a_budget_failure(play: Play) -> None:
    with pytest.raises(BudgetExceeded, match="the limit is reached"):
        await play("rate").run()


@pytest.mark.requirement("L35", "L85")
@pytest.mark.parametrize(
    ("way", "code", "message"),
    [
        ("run-fails", "auth", "the reason"),
        ("run-fails-in-text", "auth", "HTTP 401"),
        ("run-expires", "engine_failed", "expired"),
    ],
)
async def test_a_failed_run_is_a_typed_failure(play: Play, way: str, code: str, message: str) -> None:
    outcome = await play(way).run()
    assert (outcome.status, outcome.code) == ("failed", code)
    assert message in outcome.message


# -- the key and the environment ---------------------------------------------------------------------


@pytest.mark.requirement("L44")
async def test_without_a_key_inside_nothing_is_started(play: Play) -> None:
    session = play("plain", key="")
    with pytest.raises(AuthFailed) as caught:
        await session.run()
    assert "--env-pass CURSOR_API_KEY" in caught.value.hint
    assert not session.context.home.exists()


@pytest.mark.requirement("L63", "L20", "L25", "F34")
async def test_the_bridge_gets_the_sessions_environment_without_the_key(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_HOST", "secret")
    session = play("environment", url="http://127.0.0.1:9")
    await session.run()
    told = json.loads(session.text)
    given = {n: v for n, v in session.context.environment.items() if not n.startswith("CURSOR_") and n != "HOME"}
    own = {"HOME", "CURSOR_BACKEND_URL", "CURSOR_SDK_CLIENT_LANGUAGE", "CURSOR_SDK_PYTHON_VERSION"}
    shell = {"PWD", "OLDPWD", "SHLVL", "_", "LC_CTYPE"}
    assert {n: v for n, v in told["environment"].items() if n not in own | shell} == given
    assert told["environment"]["HOME"] == str(session.home)
    assert told["environment"]["CURSOR_BACKEND_URL"] == f"http://127.0.0.1:9/{PLACEHOLDER}"
    assert told["cwd"] == str(session.context.workspace)
    assert KEY not in json.dumps(told)
    assert requests(session, "CreateAgent")[0]["options"]["apiKey"] == KEY
