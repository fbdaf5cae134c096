"""What the real bridge lets an agent do, when the backend has it write files and run commands whatever was offered."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.cursor.backend import Backend, Step, command, mcp, text, write
from tests.cursor.conftest import KEY, Session

Open = Callable[..., Session]

pytestmark = [pytest.mark.needs("cursor", "namespaces"), pytest.mark.slow]

NOTES = {"notes": {"command": sys.executable, "args": [str(Path(__file__).parents[1] / "claude" / "notes_server.py")]}}


@pytest.fixture
def place() -> Iterator[Path]:
    """Not in a folder for temporary files: those the bridge leaves open to writing."""
    path = Path(tempfile.mkdtemp(prefix="sk-cursor-", dir="/dev/shm"))
    (path / "outside").mkdir()
    yield path
    shutil.rmtree(path)


def files(place: Path) -> set[str]:
    """What was written into the workspace and the folder beside it."""
    found = [path for name in ("workspace", "outside") for path in (place / name).rglob("*") if path.is_file()]
    return {str(path.relative_to(place)) for path in found}


def attempts(place: Path, **options: bool) -> list[Step]:
    """A write and a command, in the workspace and beside it."""
    lines = ";".join(f"echo x > {place}/{name}/by-command" for name in ("workspace", "outside"))
    writes = [write(place / name / "by-tool") for name in ("workspace", "outside")]
    return [*writes, command(lines, **options), text("done")]


@pytest.mark.behaviour("read-only", says="reading tools are offered; the bridge's own sandbox refuses writes")
@pytest.mark.behaviour("tier 2", says="workspace-write is not confined by the engine, read-only still is")
@pytest.mark.requirement("L30", "L88")
@pytest.mark.parametrize("tier", [0, 2])
async def test_read_only_writes_nothing(backend: Backend, open_session: Open, place: Path, tier: int) -> None:
    session = open_session(backend.url, tier=tier)
    backend.play(attempts(place), attempts(place, unconfined=True))
    assert (await session.run()).status == "completed"
    assert (await session.run()).status == "completed"
    assert files(place) == set()
    assert "Blocked by permissions configuration" in backend.transcript


@pytest.mark.requirement("L30")
async def test_a_projects_own_sandbox_settings_do_not_widen_read_only(
    backend: Backend, open_session: Open, place: Path
) -> None:
    session = open_session(backend.url)
    (session.context.workspace / ".cursor").mkdir()
    (session.context.workspace / ".cursor" / "sandbox.json").write_text('{"type": "insecure_none"}')
    backend.play(attempts(place))
    await session.run()
    assert files(place) == {"workspace/.cursor/sandbox.json"}


@pytest.mark.behaviour("workspace-write", says="file tools and commands keep to the workspace")
@pytest.mark.behaviour("tier 0", says="read-only and workspace-write are held by the bridge's sandbox, or refused")
@pytest.mark.requirement("L30")
async def test_workspace_write_stays_in_the_workspace(backend: Backend, open_session: Open, place: Path) -> None:
    session = open_session(backend.url)
    backend.play(attempts(place))
    assert (await session.run(file_access="workspace-write")).status == "completed"
    assert files(place) == {"workspace/by-tool", "workspace/by-command"}


async def test_a_command_that_asks_to_leave_the_sandbox_is_refused(
    backend: Backend, open_session: Open, place: Path
) -> None:
    session = open_session(backend.url)
    backend.play([command(f"echo x > {place}/outside/by-command", unconfined=True), text("done")])
    await session.run(file_access="workspace-write")
    assert files(place) == set()
    assert "cannot request interactive approval" in backend.transcript


async def test_workspace_write_opens_added_directories_and_the_temporary_one_to_commands(
    backend: Backend, open_session: Open, place: Path
) -> None:
    session = open_session(backend.url)
    backend.play([*attempts(place)[:-1], command(f"echo x > {place}/tmp/by-command"), text("done")])
    await session.run(file_access="workspace-write", add_dirs=("../outside",))
    assert files(place) == {"workspace/by-tool", "workspace/by-command", "outside/by-command"}
    assert (place / "tmp" / "by-command").is_file()


async def test_a_command_in_the_sandbox_reaches_no_network(backend: Backend, open_session: Open, place: Path) -> None:
    port = urlsplit(backend.url).port
    code = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5); open('reached', 'w')"
    for access, reached in (("workspace-write", set()), ("full", {"workspace/reached"})):
        session = open_session(backend.url)
        backend.play([command(f'{sys.executable} -c "{code}"'), text("done")])
        await session.run(file_access=access)
        assert files(place) == reached


@pytest.mark.behaviour("full", says="everything; nobody is asked")
@pytest.mark.behaviour("root", says="as any user")
@pytest.mark.requirement("L37")
@pytest.mark.parametrize(("access", "tier"), [("full", 0), ("workspace-write", 2)])
async def test_full_and_a_drivers_tier_2_are_not_confined_by_the_engine(
    backend: Backend, open_session: Open, place: Path, access: str, tier: int
) -> None:
    session = open_session(backend.url, tier=tier)
    backend.play(attempts(place))
    await session.run(file_access=access)
    assert files(place) == {f"{name}/{by}" for name in ("workspace", "outside") for by in ("by-tool", "by-command")}


@pytest.mark.requirement("L30")
async def test_a_wider_turn_does_not_widen_the_next_one(backend: Backend, open_session: Open, place: Path) -> None:
    session = open_session(backend.url)
    backend.play([text("wide")], attempts(place))
    await session.run(file_access="full")
    await session.run(file_access="read-only")
    assert files(place) == set()


async def test_the_backend_is_told_which_tools_to_offer(backend: Backend, open_session: Open) -> None:
    session = open_session(backend.url)
    backend.play([text("one")])
    await session.run(file_access="read-only")
    allowed = backend.headers("RunSSE")["x-cursor-agent-allowed-tools"].split(",")
    assert "read_tool_call" in allowed
    assert not {"shell_tool_call", "edit_tool_call", "delete_tool_call", "mcp_tool_call", "task_tool_call"} & set(
        allowed
    )
    await session.run(file_access="full")
    assert backend.headers("RunSSE")["x-cursor-agent-exclude-tools"] == "ask_question_tool_call"
    assert "x-cursor-agent-allowed-tools" not in backend.headers("RunSSE")


@pytest.mark.behaviour("MCP", says="only with full, or workspace-write at tier 2")
async def test_mcp_servers_serve_where_the_engine_does_not_confine(backend: Backend, open_session: Open) -> None:
    session = open_session(backend.url)
    backend.play([mcp("notes", "lookup", word="plum"), text("one")])
    await session.run(file_access="workspace-write", mcp_servers=NOTES)
    assert "User rejected MCP" in backend.transcript
    await session.run(file_access="full", mcp_servers=NOTES)
    assert "meaning of plum" in backend.transcript


@pytest.mark.requirement("F33")
async def test_a_command_does_not_inherit_the_key(backend: Backend, open_session: Open) -> None:
    session = open_session(backend.url)
    backend.play([command("env > variables.txt"), text("done")])
    await session.run(file_access="full")
    variables = (session.context.workspace / "variables.txt").read_text()
    assert f"STOCKADE_SCOPE={session.context.environment['STOCKADE_SCOPE']}" in variables
    assert KEY not in variables
