"""What happens when Codex misbehaves: shown with an executable that does so on purpose."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from stockade.errors import EngineFailed
from stockade.model.events import Event, Text, Thinking, ToolEnd, Truncated, Unparsed
from stockade.model.turn import Usage
from tests.codex.conftest import Session

Open = Callable[..., Session]
Fake = Callable[[str], Path]

pytestmark = pytest.mark.needs("codex")


@pytest.mark.requirement("F22", "F20", "L68")
async def test_noise_on_stdout_is_passed_on_and_the_turn_goes_on(open_session: Open, fake_cli: Fake) -> None:
    session = open_session(cli=fake_cli("noise"))
    outcome = await session.run()
    assert outcome.status == "completed"
    assert session.text == "one two"
    noise = [event.text for event in session.of(Unparsed)]
    assert noise[:4] == ["\x1b[?2004hWillkommen", '{"method": "item/agentMessage/delta"', '{"no": "type"}', "[1, 2]"]
    assert json.loads(noise[4])["params"]["itemId"] == 7
    assert noise[5] == "caf�"


@pytest.mark.requirement("F22")
async def test_much_noise_before_the_first_answer_does_not_block_the_start(open_session: Open, fake_cli: Fake) -> None:
    session = open_session(cli=fake_cli("early-noise"))
    assert (await session.run()).status == "completed"
    assert session.of(Unparsed)[0] == Unparsed("[debug] 0")


@pytest.mark.requirement("F40", "L35")
async def test_exit_0_without_a_result_is_a_failure_with_the_last_stderr(open_session: Open, fake_cli: Fake) -> None:
    session = open_session(cli=fake_cli("exit-0"))
    with pytest.raises(EngineFailed) as caught:
        await session.run()
    assert "exit status 0" in caught.value.message
    assert "out of luck" in caught.value.hint
    assert session.text == "half"


@pytest.mark.parametrize(("way", "status", "stderr"), [("exit-3", "3", "broken pipe of dreams"), ("killed", "-9", "")])
async def test_a_crash_is_a_failure_with_its_status(
    open_session: Open, fake_cli: Fake, way: str, status: str, stderr: str
) -> None:
    session = open_session(cli=fake_cli(way))
    with pytest.raises(EngineFailed, match=f"exit status {status}") as caught:
        await session.run()
    assert stderr in caught.value.hint


@pytest.mark.requirement("F6")
async def test_a_child_that_holds_the_output_does_not_hold_the_turn(
    open_session: Open, fake_cli: Fake, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    session = open_session(cli=fake_cli("leaves-a-child"))
    with pytest.raises(EngineFailed, match="exit status 3"):
        await session.run(str(gate))
    await asyncio.to_thread(gate.write_text, "the child may end")


@pytest.mark.requirement("F8")
async def test_death_at_once_says_why(open_session: Open, fake_cli: Fake) -> None:
    with pytest.raises(EngineFailed, match="exit status 1") as caught:
        await open_session(cli=fake_cli("dead-at-once")).run()
    assert "no space left" in caught.value.hint


async def test_an_executable_that_is_not_there_is_named(open_session: Open, tmp_path: Path) -> None:
    with pytest.raises(EngineFailed, match="no-such-codex"):
        await open_session(cli=tmp_path / "no-such-codex").run()


@pytest.mark.requirement("F18")
@pytest.mark.blocks_loop
async def test_long_lines_pass_and_over_the_cap_the_stream_goes_on(open_session: Open, fake_cli: Fake) -> None:
    session = open_session(cli=fake_cli("long"))
    assert (await session.run()).status == "completed"
    assert session.text == "é" * 3_000_000
    assert max(len(event.text) for event in session.of(Text)) <= 64 * 1024
    (end,) = session.of(ToolEnd)
    assert end.id == "t1"
    assert "more characters" in end.output
    sizes = [event.size for event in session.of(Truncated)]
    assert sizes[1] == 10_485_760
    assert sizes[2] > 64 * 1024 * 1024


@pytest.mark.requirement("L76")
async def test_results_of_parallel_calls_of_one_tool_keep_their_ids(open_session: Open, fake_cli: Fake) -> None:
    session = open_session(cli=fake_cli("parallel"))
    await session.run()
    assert {name: end.output for name, (_, end) in session.calls.items()} == {"a": "result of a", "b": "result of b"}


@pytest.mark.requirement("L67")
async def test_whole_texts_are_sent_when_nothing_streamed(open_session: Open, fake_cli: Fake) -> None:
    session = open_session(cli=fake_cli("silent-text"))
    await session.run()
    assert session.text == "only in the item"
    assert "".join(event.text for event in session.of(Thinking)) == "only thought"


async def test_another_thread_says_nothing_and_another_turn_ends_nothing(open_session: Open, fake_cli: Fake) -> None:
    session = open_session(cli=fake_cli("foreign"))
    assert (await session.run()).status == "completed"
    assert session.text == "yours"


async def test_usage_is_that_of_the_turn_not_of_the_conversation(open_session: Open, fake_cli: Fake) -> None:
    assert (await open_session(cli=fake_cli("cumulative")).run()).usage == Usage(4, 2, 0, 0)


@pytest.mark.requirement("L65", "F92")
async def test_every_question_is_answered_with_no_and_said(open_session: Open, fake_cli: Fake) -> None:
    session = open_session(cli=fake_cli("asks"))
    assert (await session.run()).status == "completed"
    declined = {"decision": "decline"}
    assert json.loads(session.text) == [
        declined,
        declined,
        {"answers": {}},
        {"action": "decline"},
        {"permissions": {}},
        {},
    ]
    assert len(session.notices) == 6


async def test_a_turn_that_codex_refuses_to_start_fails(open_session: Open, fake_cli: Fake) -> None:
    with pytest.raises(EngineFailed, match="not today"):
        await open_session(cli=fake_cli("refuses")).run()


@pytest.mark.requirement("L35")
async def test_a_turn_that_codex_interrupts_by_itself_is_a_failure(open_session: Open, fake_cli: Fake) -> None:
    outcome = await open_session(cli=fake_cli("stops-itself")).run()
    assert (outcome.status, outcome.code) == ("failed", "engine_failed")
    assert "interrupted" in outcome.message


@pytest.mark.requirement("F25")
async def test_an_unread_stderr_does_not_block_the_turn(open_session: Open, fake_cli: Fake) -> None:
    assert (await open_session(cli=fake_cli("stderr")).run()).status == "completed"


@pytest.mark.requirement("F26", "L82")
async def test_a_flood_waits_for_a_slow_reader_and_comes_whole(open_session: Open, fake_cli: Fake) -> None:
    session = open_session(cli=fake_cli("flood"))
    waiting: list[int] = []

    async def slow(event: Event) -> None:
        assert session.engine._server is not None
        waiting.append(session.engine._server.inbox._messages.qsize())
        session.events.append(event)
        await asyncio.sleep(0)

    session._emit = slow  # type: ignore[method-assign]
    assert (await session.run()).status == "completed"
    assert session.text == "".join(f"{number}\n" for number in range(20_000))
    assert max(waiting) <= 1002


@pytest.mark.requirement("L20", "L63")
async def test_the_process_gets_exactly_the_given_environment(
    open_session: Open, fake_cli: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY_OF_THE_HOST", "secret")
    before = dict(os.environ)
    session = open_session(cli=fake_cli("environment"))
    await session.run()
    inside = json.loads(session.text)
    assert "CANARY_OF_THE_HOST" not in inside
    assert inside["STOCKADE_CODEX_ROUTE_KEY"] == "placeholder"
    assert inside["HOME"] == session.context.environment["HOME"]
    assert dict(os.environ) == before


@pytest.mark.requirement("L18", "L82")
async def test_a_process_that_died_between_turns_is_replaced(open_session: Open, fake_cli: Fake) -> None:
    session = open_session(cli=fake_cli("dies-later"))
    assert (await session.run()).status == "completed"
    server = session.engine._server
    assert server is not None
    await asyncio.to_thread(server._exited.wait)
    assert (await session.run()).status == "completed"
    assert session.engine._server is not server


async def test_an_interrupt_while_starting_cancels_the_turn(open_session: Open, fake_cli: Fake) -> None:
    session = open_session(cli=fake_cli("never-ready"))
    running = asyncio.ensure_future(session.run())
    await asyncio.sleep(0)
    await session.engine.interrupt()
    assert (await asyncio.wait_for(running, 10)).code == "cancelled"
    assert session.engine._server is None


@pytest.mark.requirement("F7")
async def test_an_interrupt_of_a_process_that_does_not_listen_kills_it(open_session: Open, fake_cli: Fake) -> None:
    session = open_session(cli=fake_cli("stubborn"))
    running = asyncio.ensure_future(session.run())
    await session.until(Text)
    await session.engine.interrupt()
    await session.engine.interrupt()
    assert (await asyncio.wait_for(running, 10)).code == "cancelled"


async def test_an_interrupt_without_a_turn_does_nothing(open_session: Open, fake_cli: Fake) -> None:
    session = open_session(cli=fake_cli("plain"))
    await session.engine.interrupt()
    assert (await session.run()).status == "completed"
    await session.engine.interrupt()
    assert (await session.run()).status == "completed"
