"""Turns of the real Codex against a scripted model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from stockade.errors import ResumeFailed
from stockade.model.events import Started, Text, Thinking, ToolEnd, ToolStart
from stockade.model.turn import Usage
from tests.codex.conftest import Session
from tests.codex.scripted_model import ScriptedModel, custom, reasoning, shell, text

Open = Callable[..., Session]

pytestmark = pytest.mark.needs("codex")

USAGE = Usage(7, 5, 3, 0)
"""Of one call of the scripted model."""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that a process does; the test's time limit bounds it."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.02)


@pytest.mark.requirement("L60", "L67")
async def test_text_and_reasoning_come_once_and_as_deltas(session: Session, model: ScriptedModel) -> None:
    model.play([reasoning("hm", "m"), text("Hel", "lo")])
    outcome = await session.run()
    assert outcome.status == "completed"
    assert outcome.usage == USAGE
    said = [event for event in session.events if isinstance(event, Started | Thinking | Text)]
    assert said == [Started("codex", "gpt-5"), Thinking("hm"), Thinking("m"), Text("Hel"), Text("lo")]


async def test_a_broken_stream_is_asked_again_and_its_text_not_repeated(session: Session, model: ScriptedModel) -> None:
    model.play({"broken": True}, [text("part", "ial", " and the rest")])
    assert (await session.run()).status == "completed"
    assert len(model.requests) == 2
    assert session.of(Text) == [Text("partial"), Text(" and the rest")]
    assert any("tried again" in notice for notice in session.notices)


async def test_another_answer_after_a_broken_stream_comes_whole(session: Session, model: ScriptedModel) -> None:
    model.play({"broken": True}, [text("part", "ly new")])
    assert (await session.run()).status == "completed"
    assert session.of(Text) == [Text("partial"), Text("partly new")]


@pytest.mark.requirement("L66", "L78", "L79")
async def test_a_second_turn_uses_the_same_process_and_sends_only_its_message(
    session: Session, model: ScriptedModel
) -> None:
    model.play([text("one")])
    first = await session.run("first message")
    server = session.engine._server
    second = await session.run("second message")
    assert session.engine._server is server
    assert second.native_session == first.native_session != ""
    assert [prompt for prompt in model.prompts if "message" in prompt] == ["first message", "second message"]
    assert second.usage == USAGE


@pytest.mark.requirement("L76")
async def test_calls_have_their_ends_by_id(session: Session, model: ScriptedModel) -> None:
    model.play([shell("echo one; sleep 0.3"), shell("echo two; sleep 0.3; exit 3")], [text("done")])
    outcome = await session.run()
    assert outcome.usage == Usage(14, 10, 6, 0)
    ends = {start.input["command"].split(";")[0]: end for start, end in session.calls.values()}
    assert (ends["echo one"].output, ends["echo one"].is_error) == ("one\n", False)
    assert (ends["echo two"].output, ends["echo two"].is_error) == ("two\n", True)


async def test_the_default_model_writes_files_and_runs_commands(session: Session, model: ScriptedModel) -> None:
    patch = "*** Begin Patch\\n*** Add File: made.txt\\n+by a patch\\n*** End Patch"
    program = f"await tools.apply_patch('{patch}'); const r = await tools.exec_command({{cmd: 'cat made.txt'}});"
    model.play([custom("exec", f"{program} text(r.output);")], [text("done")])
    assert (await session.run(model=None, file_access="workspace-write")).status == "completed"
    assert (session.context.workspace / "made.txt").read_text() == "by a patch\n"
    change = next(start for start, _ in session.calls.values() if start.name == "apply_patch")
    assert [change["path"] for change in change.input["changes"]] == [str(session.context.workspace / "made.txt")]
    assert "by a patch" in model.outputs[0]


@pytest.mark.requirement("L34", "F85")
async def test_a_new_engine_object_resumes_the_conversation(session: Session, model: ScriptedModel) -> None:
    model.play([text("remembered")])
    first = await session.run("before the pause")
    await session.renew()
    second = await session.run("after the pause", resume=first.native_session)
    assert second.native_session == first.native_session
    assert second.usage == USAGE
    assert [prompt for prompt in model.prompts if "pause" in prompt] == ["before the pause", "after the pause"]


@pytest.mark.requirement("F85")
@pytest.mark.parametrize("native", ["01a228cb-64b6-7482-a3e0-416714ae0000", "../../etc"])
async def test_an_unknown_conversation_is_resume_failed_before_any_model_call(
    session: Session, model: ScriptedModel, native: str
) -> None:
    model.play([text("never")])
    with pytest.raises(ResumeFailed):
        await session.run(resume=native)
    assert model.requests == []


async def test_another_model_or_access_replaces_the_process_and_keeps_the_conversation(
    session: Session, model: ScriptedModel
) -> None:
    model.play([text("ok")])
    first = await session.run("the first")
    server = session.engine._server
    second = await session.run("the second", file_access="full")
    third = await session.run("the third", model="gpt-5-codex", file_access="full")
    assert session.engine._server is not server
    assert first.native_session == second.native_session == third.native_session
    assert [prompt for prompt in model.prompts if "the " in prompt][-3:] == ["the first", "the second", "the third"]
    assert model.requests[-1]["model"] == "gpt-5-codex"


async def test_a_message_of_two_mebibytes_reaches_the_model(session: Session, model: ScriptedModel) -> None:
    model.play([text("read")])
    message = "é" * 1024 * 1024
    assert (await session.run(message)).status == "completed"
    assert message in model.prompts


async def test_a_text_of_three_mebibytes_comes_whole(session: Session, model: ScriptedModel) -> None:
    model.play([text("x" * 3 * 1024 * 1024)])
    assert (await session.run()).status == "completed"
    assert len(session.text) == 3 * 1024 * 1024


@pytest.mark.requirement("L35", "L85", "F94")
@pytest.mark.parametrize(
    ("reply", "code", "hint"),
    [
        ({"error": 401, "message": "bad key"}, "auth", "key"),
        ({"error": 403, "message": "not you"}, "auth", "key"),
        ({"error": 402, "message": "no money"}, "budget", "budget"),
        ({"error": 429, "code": "insufficient_quota", "message": "no quota"}, "budget", "budget"),
        ({"error": 429, "code": "rate_limit_exceeded", "message": "slow"}, "engine_failed", "later"),
        ({"error": 503, "message": "busy"}, "engine_failed", "503"),
        ({"error": 400, "message": "wrong"}, "engine_failed", ""),
    ],
)
async def test_a_refusal_of_the_model_is_a_typed_failure(
    session: Session, model: ScriptedModel, reply: dict[str, object], code: str, hint: str
) -> None:
    model.play(reply)
    outcome = await session.run()
    assert (outcome.status, outcome.code) == ("failed", code)
    assert outcome.message
    assert hint in outcome.hint
    assert session.text == ""
    assert len(model.requests) <= 3


async def test_a_passing_overload_is_tried_again_and_said(session: Session, model: ScriptedModel) -> None:
    model.play({"error": 503, "message": "busy"}, [text("fine")])
    assert (await session.run()).status == "completed"
    assert session.text == "fine"
    assert any("503" in notice for notice in session.notices)


async def test_a_model_that_cannot_be_reached_fails_the_turn(open_session: Open) -> None:
    outcome = await open_session("http://127.0.0.1:9").run()
    assert (outcome.status, outcome.code) == ("failed", "engine_failed")


async def test_an_interrupted_turn_is_cancelled_and_the_next_one_knows_it(
    session: Session, model: ScriptedModel
) -> None:
    model.play({"hang": True})
    running = asyncio.ensure_future(session.run("the first"))
    await session.until(Text)
    await session.engine.interrupt()
    outcome = await asyncio.wait_for(running, 10)
    assert (outcome.status, outcome.code) == ("cancelled", "cancelled")
    assert session.engine._server is None
    model.play([text("fine")])
    assert (await session.run(resume=outcome.native_session)).status == "completed"
    assert "the first" in model.prompts


@pytest.mark.requirement("F2")
@pytest.mark.parametrize("access", ["workspace-write", "full"])
async def test_an_interrupt_during_a_command_ends_the_command(
    session: Session, model: ScriptedModel, workspace: Path, access: str
) -> None:
    model.play([shell("echo $$ > pid; exec tail -f /dev/null")], [text("never")])
    running = asyncio.ensure_future(session.run(file_access=access))
    await session.until(ToolStart)
    server = session.engine._server
    assert server is not None
    assert server._process is not None
    pid = server._process.pid
    await until(lambda: "tail" in descendants(pid).values())
    tree = [pid, *descendants(pid)]
    await session.engine.interrupt()
    assert (await asyncio.wait_for(running, 10)).code == "cancelled"
    await until(lambda: not any(map(alive, tree)))


@pytest.mark.parametrize("command", ["exec tail -f /dev/null", "seq 300000; exec tail -f /dev/null"])
async def test_a_command_that_outlasts_the_turn_is_ended_with_it(
    session: Session, model: ScriptedModel, command: str
) -> None:
    lasting = shell(command)
    lasting["arguments"] = lasting["arguments"].replace("}", ', "yield_time_ms": 300}')
    model.play([lasting], [text("not waiting")])
    outcome = await session.run(file_access="full")
    assert outcome.status == "completed"
    server = session.engine._server
    assert server is not None
    assert server._process is not None
    assert [end.is_error for end in session.of(ToolEnd)] == [True]
    pid = server._process.pid
    await until(lambda: not descendants(pid))
    assert (await session.run(file_access="full")).status == "completed"
    assert session.engine._server is server


@pytest.mark.requirement("L22", "L33", "L25")
@pytest.mark.behaviour(
    "what is written where",
    says="conversations and Codex's state in `config/` of its home, HOME and TMPDIR in the state",
)
async def test_everything_written_is_under_the_state_of_the_session(session: Session, model: ScriptedModel) -> None:
    model.play([shell("pwd; echo $TMPDIR; echo $HOME; touch $TMPDIR/x; echo [$STOCKADE_CODEX_ROUTE_KEY]; sleep 0.3")])
    model.script.append([text("ok")])
    await session.run(file_access="workspace-write")
    workspace, tmp, home, key = session.end("shell").output.split()
    assert workspace == str(session.context.workspace)
    assert (tmp, home) == (session.context.environment["TMPDIR"], session.context.environment["HOME"])
    assert key == "[]"
    assert (Path(tmp) / "x").exists()
    assert (session.context.home / "config" / "sessions").is_dir()
    assert (session.context.home / "config").stat().st_mode & 0o077 == 0
    assert model.headers[0]["Authorization"] == "Bearer placeholder"


def descendants(pid: int) -> dict[int, str]:
    """Names of all processes below ``pid``."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = path.read_text().rpartition(")")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if rest.split()[0] != "Z":
            parents[int(path.parent.name)] = (int(rest.split()[1]), name.partition("(")[2])
    found: dict[int, str] = {}
    level = {pid}
    while level:
        level = {child for child, (parent, _) in parents.items() if parent in level}
        found |= {child: parents[child][1] for child in level}
    return found
