"""The real bridge against a small fake backend, without a kernel: what a turn of text is, and how it ends."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

import pytest

from stockade.errors import AuthFailed, EngineFailed, ResumeFailed
from stockade.model.events import Started, Text, Thinking
from stockade.model.turn import Usage
from tests.cursor.backend import BREAK, HANG, Backend, context, text, thinking
from tests.cursor.conftest import KEY, Session

Open = Callable[..., Session]

pytestmark = [pytest.mark.needs("cursor", "namespaces"), pytest.mark.slow]


@pytest.mark.requirement("L60", "L66", "L67", "L78", "L79")
async def test_two_turns_with_usage_on_one_bridge(session: Session, backend: Backend) -> None:
    backend.play([thinking("h"), thinking("m"), text("Hel"), text("lo")], [text("Again")])
    first = await session.run("first message")
    assert (first.status, first.usage) == ("completed", Usage(11, 7))
    assert session.events == [
        Started("cursor", "first-model"), Thinking("h"), Thinking("m"), Text("Hel"), Text("lo"),
    ]  # fmt: skip
    bridge = session.engine._bridge
    second = await session.run("second message")
    assert session.engine._bridge is bridge
    assert (second.status, second.usage, session.text) == ("completed", Usage(11, 7), "Again")
    assert second.native_session == first.native_session != ""
    assert b"second message" in backend.said[-1]
    assert b"first message" not in backend.said[-1]


@pytest.mark.requirement("L34")
async def test_a_new_engine_resumes_the_agent_from_its_home(session: Session, backend: Backend) -> None:
    backend.play([text("one")])
    first = await session.run()
    await session.renew()
    second = await session.run(resume=first.native_session, model="other-model")
    assert (second.status, second.native_session) == ("completed", first.native_session)
    assert session.of(Started) == [Started("cursor", "other-model")]


@pytest.mark.requirement("L85", "F85")
async def test_an_unknown_agent_is_a_typed_failure(session: Session, backend: Backend) -> None:
    with pytest.raises(ResumeFailed):
        await session.run(resume="agent-6d9b444a-a698-435c-934f-6d0bb13a389e")
    assert backend.said == []


@pytest.mark.requirement("L35", "L85")
async def test_a_key_that_the_vendor_refuses_is_an_auth_failure(session: Session, backend: Backend) -> None:
    backend.refusals = {"models": 401, "exchange_user_api_key": 401}
    with pytest.raises(AuthFailed, match="no such key") as caught:
        await session.run()
    assert KEY not in f"{caught.value} {caught.value.hint}"


@pytest.mark.requirement("L35", "L85")
async def test_a_key_that_is_refused_during_a_run_is_an_auth_failure(session: Session, backend: Backend) -> None:
    backend.refusals = {"RunSSE": 401}
    outcome = await session.run()
    assert (outcome.status, outcome.code) == ("failed", "auth")


async def test_a_model_that_is_not_offered_is_a_failure_that_names_those_that_are(
    session: Session, backend: Backend
) -> None:
    with pytest.raises(EngineFailed, match="first-model, other-model"):
        await session.run(model="no-such-model")


async def test_a_stream_that_breaks_is_taken_up_again(session: Session, backend: Backend) -> None:
    backend.play([text("Hel"), BREAK], [text("lo")])
    assert (await session.run()).status == "completed"
    assert session.text == "Hello"


@pytest.mark.requirement("L61")
async def test_an_interrupted_turn_is_cancelled_and_the_next_one_runs(session: Session, backend: Backend) -> None:
    backend.play([text("working"), HANG])
    running = asyncio.ensure_future(session.run())
    await session.until(Text)
    await session.engine.interrupt()
    outcome = await asyncio.wait_for(running, 5)
    assert (outcome.status, outcome.code) == ("cancelled", "cancelled")
    await session.ended()
    backend.play([text("fine")])
    assert (await session.run(resume=outcome.native_session)).status == "completed"
    assert session.notices == []


@pytest.mark.requirement("F40", "L61")
async def test_a_killed_bridge_is_a_failure_and_its_unfinished_run_is_ended_by_the_next_turn(
    session: Session, backend: Backend
) -> None:
    backend.play([text("working"), HANG])
    running = asyncio.ensure_future(session.run())
    await session.until(Text)
    for pid in session.processes():
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(EngineFailed, match="ended without a result"):
        await asyncio.wait_for(running, 10)
    backend.play([text("fine")])
    assert (await session.run()).status == "completed"
    assert session.notices == ["Cursor was still busy with an earlier run, which was cancelled"]


@pytest.mark.requirement("F4")
async def test_closing_ends_the_launcher_and_node(session: Session, backend: Backend) -> None:
    backend.play([text("one")])
    await session.run()
    assert len(session.processes()) >= 2
    await session.engine.aclose()
    assert session.processes() == []


async def test_a_message_of_two_mebibytes_arrives_as_it_is(session: Session, backend: Backend) -> None:
    message = " \n/clear @/etc/passwd " + 'é😀"\\\t' * 233_017 + "\n\n"
    backend.play([text("read")])
    assert (await session.run(message)).status == "completed"
    assert message.encode() in b"".join(backend.said)


@pytest.mark.behaviour(
    "what is written where",
    says="under the engine's home, a folder a session; nothing of the project is read as settings",
)
@pytest.mark.requirement("L22", "L23", "L33")
async def test_everything_written_is_under_the_engines_home(session: Session, backend: Backend) -> None:
    backend.play([text("one")])
    await session.run()
    place = session.context.workspace.parent
    assert (session.home / ".cursor" / "projects").is_dir()
    assert session.home.stat().st_mode & 0o077 == 0
    assert list((place / "tmp").iterdir()) == []
    assert {path.name for path in place.iterdir()} == {"engine", "tmp", "workspace"}
    assert list(session.context.workspace.iterdir()) == []


async def test_nothing_of_the_projects_configuration_is_read(session: Session, backend: Backend) -> None:
    workspace = session.context.workspace
    (workspace / ".cursor" / "rules").mkdir(parents=True)
    (workspace / ".cursor" / "rules" / "all.mdc").write_text("---\nalwaysApply: true\n---\nrule of the project\n")
    (workspace / "AGENTS.md").write_text("rule of the agents\n")
    backend.play([context(), text("one")])
    assert (await session.run()).status == "completed"
    assert str(workspace) in backend.transcript
    assert "rule of" not in backend.transcript


@pytest.mark.behaviour(
    "what is sent to whom", says="everything to the route `cursor`, analytics included; the key goes inside"
)
@pytest.mark.requirement("L70")
async def test_every_request_takes_the_route_and_shows_its_placeholder(session: Session, backend: Backend) -> None:
    backend.play([text("one")])
    await session.run()
    assert backend.paths
    assert all(path.startswith("/placeholder/") for path in backend.paths)
    shown = {path for _, path, headers in backend.seen if KEY in headers.get("authorization", "")}
    assert shown == {"/placeholder/auth/exchange_user_api_key", "/placeholder/v1/models"}
