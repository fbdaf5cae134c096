"""Turns of the real Claude Code against a scripted model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from stockade.errors import ResumeFailed
from stockade.model.events import Started, Text, Thinking, ToolStart
from stockade.model.turn import Usage
from tests.claude.conftest import Session
from tests.claude.scripted_model import ScriptedModel, text, thinking, tool

Open = Callable[..., Session]

pytestmark = pytest.mark.needs("claude")


@pytest.mark.requirement("L60", "L67")
async def test_text_and_thinking_come_once_and_as_deltas(session: Session, model: ScriptedModel) -> None:
    model.play([thinking("hm", "m"), text("Hel", "lo")])
    outcome = await session.run()
    assert outcome.status == "completed"
    assert outcome.usage == Usage(7, 5, 3, 2)
    assert isinstance(session.events[0], Started)
    assert session.events[1:] == [Thinking("hm"), Thinking("m"), Text("Hel"), Text("lo")]


@pytest.mark.requirement("L67")
async def test_a_broken_stream_is_asked_again_and_its_text_not_repeated(session: Session, model: ScriptedModel) -> None:
    model.play({"broken": text("Hel", "lo")}, [text("Hello")])
    assert (await session.run()).status == "completed"
    assert [request.get("stream") for request in model.requests] == [True, False]
    assert session.of(Text) == [Text("Hel"), Text("lo")]


@pytest.mark.requirement("L66", "L78", "L79")
async def test_a_second_turn_uses_the_same_process_and_sends_only_its_message(
    session: Session, model: ScriptedModel
) -> None:
    model.play([text("one")])
    first = await session.run("first message")
    process = session.engine._process
    second = await session.run("second message")
    assert session.engine._process is process
    assert second.native_session == first.native_session != ""
    assert [prompt for prompt in model.prompts if "message" in prompt][-2:] == ["first message", "second message"]
    assert second.usage == Usage(7, 5, 3, 2)


@pytest.mark.requirement("L34")
async def test_other_options_reconnect_and_resume_the_conversation(session: Session, model: ScriptedModel) -> None:
    model.play([text("one")])
    first = await session.run("remember me")
    second = await session.run("again", model="claude-sonnet-4-5", file_access="workspace-write")
    assert second.native_session == first.native_session
    assert model.requests[-1]["model"] == "claude-sonnet-4-5"
    assert "remember me" in model.prompts


@pytest.mark.requirement("L34")
async def test_a_new_engine_resumes_by_the_native_session(session: Session, model: ScriptedModel) -> None:
    model.play([text("one")])
    first = await session.run("remember me")
    await session.renew()
    second = await session.run("again", resume=first.native_session)
    assert second.native_session == first.native_session
    assert "remember me" in model.prompts


@pytest.mark.requirement("L85")
async def test_an_unknown_native_session_fails_typed_and_is_not_tried(session: Session, model: ScriptedModel) -> None:
    model.play([text("never")])
    with pytest.raises(ResumeFailed):
        await session.run(resume="6d9b444a-a698-435c-934f-6d0bb13a389e")
    with pytest.raises(ResumeFailed):
        await session.run(resume="../../etc")
    assert model.requests == []


@pytest.mark.requirement("L85")
async def test_a_transcript_that_cannot_be_read_fails_the_resume(session: Session, model: ScriptedModel) -> None:
    model.play([text("one")])
    await session.run()
    stored = next((session.context.home / "config" / "projects").iterdir())
    stored.joinpath("6d9b444a-a698-435c-934f-6d0bb13a389e.jsonl").write_text("garbage\n")
    await session.renew()
    with pytest.raises(ResumeFailed):
        await session.run(resume="6d9b444a-a698-435c-934f-6d0bb13a389e")


async def test_a_message_of_two_mebibytes_arrives_byte_by_byte(session: Session, model: ScriptedModel) -> None:
    message = " \n/clear @/etc/passwd " + 'é😀"\\\t' * 233_017 + "\n\n"
    assert len(message.encode()) > 2 * 1024 * 1024
    model.play([text("read")])
    assert (await session.run(message)).status == "completed"
    assert message in model.prompts


@pytest.mark.parametrize("message", ["/clear", "/help", "@/etc/hostname", "!ls", "--version"])
async def test_a_message_is_never_a_command(session: Session, model: ScriptedModel, message: str) -> None:
    model.play([text("read")])
    assert (await session.run(message)).status == "completed"
    assert message in model.prompts


async def test_a_text_of_three_mebibytes_comes_whole(session: Session, model: ScriptedModel) -> None:
    model.play([text("x" * 3 * 1024 * 1024)])
    assert (await session.run()).status == "completed"
    assert len(session.text) == 3 * 1024 * 1024


@pytest.mark.requirement("L35", "L85")
@pytest.mark.parametrize(
    ("reply", "code"),
    [
        ({"error": 401, "type": "authentication_error", "message": "bad key"}, "auth"),
        ({"error": 403, "type": "permission_error", "message": "not you"}, "auth"),
        ({"error": 402, "type": "billing_error", "message": "no money"}, "budget"),
        ({"error": 400, "type": "invalid_request_error", "message": "wrong"}, "engine_failed"),
    ],
)
async def test_a_refusal_of_the_model_is_a_typed_failure(
    session: Session, model: ScriptedModel, reply: dict[str, object], code: str
) -> None:
    model.play(reply)
    outcome = await session.run()
    assert (outcome.status, outcome.code) == ("failed", code)
    assert str(reply["message"]) in outcome.message
    assert session.text == ""


async def test_a_passing_overload_is_tried_again_and_said(session: Session, model: ScriptedModel) -> None:
    model.play({"error": 529, "type": "overloaded_error", "message": "busy"}, [text("fine")])
    assert (await session.run()).status == "completed"
    assert session.text == "fine"
    assert any("529" in notice for notice in session.notices)


async def test_an_interrupted_turn_is_cancelled_and_the_next_one_knows_it(
    session: Session, model: ScriptedModel
) -> None:
    model.play({"hang": True})
    running = asyncio.ensure_future(session.run("the first"))
    await session.until(Text)
    await session.engine.interrupt()
    outcome = await asyncio.wait_for(running, 5)
    assert (outcome.status, outcome.code) == ("cancelled", "cancelled")
    assert session.engine._process is None
    model.play([text("fine")])
    assert (await session.run(resume=outcome.native_session)).status == "completed"
    assert "the first" in model.prompts


async def test_an_interrupt_during_a_tool_ends_the_turn(session: Session, model: ScriptedModel) -> None:
    model.play([tool("Bash", command="tail -f /dev/null")], [text("never")])
    running = asyncio.ensure_future(session.run(file_access="workspace-write"))
    await session.until(ToolStart)
    await session.engine.interrupt()
    assert (await asyncio.wait_for(running, 5)).code == "cancelled"


@pytest.mark.behaviour(
    "what is written where",
    says="conversations and settings in `config/` of its home, scratch files in HOME and TMPDIR of the sandbox",
)
@pytest.mark.requirement("L22", "L33")
async def test_everything_written_is_under_the_state_of_the_session(session: Session, model: ScriptedModel) -> None:
    model.play([tool("Bash", command="pwd; echo $TMPDIR")], [text("ok")])
    await session.run(file_access="workspace-write")
    workspace, tmp = session.end("Bash").output.split()
    assert workspace == str(session.context.workspace)
    assert tmp.startswith(session.context.environment["TMPDIR"])
    assert (session.context.home / "config" / "projects").is_dir()
    assert (session.context.home / "config").stat().st_mode & 0o077 == 0
    assert model.headers[0]["Authorization"] == "Bearer placeholder"
