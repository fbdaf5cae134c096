"""What happens when Claude Code misbehaves: shown with an executable that does so on purpose."""

from __future__ import annotations

import asyncio
import json
import os
import select
from collections.abc import Callable
from pathlib import Path

import pytest

from stockade.errors import EngineFailed
from stockade.model.events import Text, ToolEnd, Truncated, Unparsed
from tests.claude.conftest import Session

Open = Callable[..., Session]
Fake = Callable[[str], Path]

pytestmark = pytest.mark.needs("claude")


@pytest.mark.requirement("F22", "L68")
async def test_noise_on_stdout_is_passed_on_and_the_turn_goes_on(open_session: Open, fake_cli: Fake) -> None:
    session = open_session(cli=fake_cli("noise"))
    outcome = await session.run()
    assert outcome.status == "completed"
    assert session.text == "one two"
    noise = [event.text for event in session.of(Unparsed)]
    assert noise[:2] == ["\x1b[?2004hWillkommen", '{"type": "assistant", "message"']
    assert noise[2:4] == ['{"no": "type"}', "[1, 2]"]
    assert json.loads(noise[4]) == {"type": "assistant", "message": {}}


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


async def test_a_child_that_holds_the_output_does_not_hold_the_turn(
    open_session: Open, fake_cli: Fake, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    with pytest.raises(EngineFailed, match="exit status 3"):
        await open_session(cli=fake_cli("leaves-a-child")).run(str(gate))
    await asyncio.to_thread(gate.write_text, "the child may end")


async def test_death_at_once_says_why(open_session: Open, fake_cli: Fake) -> None:
    with pytest.raises(EngineFailed) as caught:
        await open_session(cli=fake_cli("dead-at-once")).run()
    assert "no space left" in caught.value.hint


async def test_an_executable_that_is_not_there_is_named(open_session: Open, tmp_path: Path) -> None:
    with pytest.raises(EngineFailed, match="no-such-claude"):
        await open_session(cli=tmp_path / "no-such-claude").run()


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
async def test_the_final_text_is_sent_when_nothing_streamed(open_session: Open, fake_cli: Fake) -> None:
    session = open_session(cli=fake_cli("silent-text"))
    await session.run()
    assert session.text == "only in the result"


async def test_a_result_of_another_prompt_does_not_end_the_turn(open_session: Open, fake_cli: Fake) -> None:
    session = open_session(cli=fake_cli("foreign-result"))
    assert (await session.run()).status == "completed"
    assert session.text == "yours"


@pytest.mark.requirement("F25")
async def test_an_unread_stderr_does_not_block_the_turn(open_session: Open, fake_cli: Fake) -> None:
    assert (await open_session(cli=fake_cli("stderr")).run()).status == "completed"


@pytest.mark.requirement("L20", "L63", "F37")
async def test_the_process_gets_exactly_the_given_environment(
    open_session: Open, fake_cli: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY_OF_THE_HOST", "secret")
    before = dict(os.environ)
    session = open_session(cli=fake_cli("environment"))
    await session.run()
    inside = json.loads(session.text)
    assert "CANARY_OF_THE_HOST" not in inside
    assert inside["ANTHROPIC_AUTH_TOKEN"] == "placeholder"
    assert inside["HOME"] == session.context.environment["HOME"]
    needed = {"PATH", "TMPDIR", "ANTHROPIC_BASE_URL", "CLAUDE_CONFIG_DIR", "CLAUDE_CODE_TMPDIR"}
    assert all(inside.get(name) for name in needed), "what Claude Code cannot start without"
    assert dict(os.environ) == before


@pytest.mark.requirement("L18", "L82")
async def test_a_process_that_died_between_turns_is_replaced(open_session: Open, fake_cli: Fake) -> None:
    session = open_session(cli=fake_cli("dies-later"))
    assert (await session.run()).status == "completed"
    process = session.engine._process
    assert process is not None
    await process._exited.wait()
    assert (await session.run()).status == "completed"
    assert session.engine._process is not process


async def test_an_interrupt_while_connecting_cancels_the_turn(open_session: Open, fake_cli: Fake) -> None:
    session = open_session(cli=fake_cli("never-ready"))
    running = asyncio.ensure_future(session.run())
    await asyncio.sleep(0)
    await session.engine.interrupt()
    assert (await asyncio.wait_for(running, 5)).code == "cancelled"
    assert session.engine._process is None


async def test_an_interrupt_of_a_process_that_does_not_listen_kills_it(open_session: Open, fake_cli: Fake) -> None:
    session = open_session(cli=fake_cli("stubborn"))
    running = asyncio.ensure_future(session.run())
    await session.until(Text)
    await session.engine.interrupt()
    await session.engine.interrupt()
    assert (await asyncio.wait_for(running, 5)).code == "cancelled"


@pytest.mark.requirement("F4")
async def test_a_launcher_that_forwards_no_signal_does_not_leave_the_program_behind(
    open_session: Open, fake_cli: Fake, tmp_path: Path
) -> None:
    shim = tmp_path / "shim"
    shim.write_text(f'#!/bin/sh\nexec 3<&0\n"{fake_cli("stubborn")}" "$@" <&3 &\necho $! >"{tmp_path}/pid"\nwait\n')
    shim.chmod(0o755)
    session = open_session(cli=shim)
    running = asyncio.ensure_future(session.run())
    await session.until(Text)
    program = os.pidfd_open(int((tmp_path / "pid").read_text()))
    await session.engine.interrupt()
    assert (await asyncio.wait_for(running, 5)).code == "cancelled"
    ended, _, _ = select.select([program], [], [], 5)
    os.close(program)
    assert ended


async def test_an_interrupt_without_a_turn_does_nothing(open_session: Open, fake_cli: Fake) -> None:
    session = open_session(cli=fake_cli("plain"))
    await session.engine.interrupt()
    assert (await session.run()).status == "completed"
    await session.engine.interrupt()
    assert (await session.run()).status == "completed"
