"""File access: what the real Codex may do, where its sandbox cannot start, and the rules by themselves."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stockade.errors import EngineFailed
from stockade.model.turn import FileAccess, Turn
from stockade_codex.permissions import permissions
from tests.codex.conftest import Session
from tests.codex.scripted_model import ScriptedModel, custom, function, shell, text

Open = Callable[..., Session]
Wrapped = Callable[..., Path]

SERVER = Path(__file__).parents[1] / "claude" / "notes_server.py"
NOTES: dict[str, Any] = {"command": sys.executable, "args": ["-I", str(SERVER)]}
LOOKUP = function("lookup", word="stockade") | {"namespace": "mcp__notes"}
NO_NAMESPACES = (
    "exec unshare --user --map-root-user sh -c 'echo 0 > /proc/sys/user/max_user_namespaces; exec \"$@\"' sh"
)
"""Runs a command where no further namespace can be made, as in many containers."""

real = pytest.mark.needs("codex", "namespaces")


def outside(tmp_path: Path) -> str:
    return str(tmp_path / "outside.txt")


@real
@pytest.mark.requirement("L64", "L88", "L30")
async def test_read_only_reads_and_uses_mcp_tools_and_writes_nothing(
    session: Session, workspace: Path, model: ScriptedModel, tmp_path: Path
) -> None:
    workspace.joinpath("seen.txt").write_text("content of the file")
    writes = f"touch new.txt {outside(tmp_path)}; echo > seen.txt; sleep 0.3"
    model.play([shell("cat seen.txt; sleep 0.3"), LOOKUP, shell(writes)], [text("done")])
    assert (await session.run(mcp_servers={"notes": NOTES})).status == "completed"
    ends = [(start.name, end.is_error) for start, end in session.calls.values()]
    assert sorted(ends) == [("mcp__notes__lookup", False), ("shell", False), ("shell", False)]
    assert session.end("mcp__notes__lookup").output == "meaning of stockade"
    assert any("content of the file" in output for output in model.outputs)
    assert any("Read-only file system" in output for output in model.outputs)
    assert (workspace / "seen.txt").read_text() == "content of the file"
    assert [path.name for path in workspace.iterdir()] == ["seen.txt"]
    assert not (tmp_path / "outside.txt").exists()


@real
async def test_read_only_refuses_a_patch_and_says_so(session: Session, workspace: Path, model: ScriptedModel) -> None:
    program = "await tools.apply_patch('*** Begin Patch\\n*** Add File: new.txt\\n+x\\n*** End Patch');"
    model.play([custom("exec", program)], [text("done")])
    assert (await session.run(model=None)).status == "completed"
    assert list(workspace.iterdir()) == []
    assert any("rejected" in output for output in model.outputs)


@real
async def test_the_default_model_uses_mcp_tools_too(session: Session, model: ScriptedModel) -> None:
    program = "const r = await tools.mcp__notes__lookup({word: 'stockade'}); text(r);"
    model.play([custom("exec", program)], [text("done")])
    assert (await session.run(model=None, mcp_servers={"notes": NOTES})).status == "completed"
    assert session.end("mcp__notes__lookup").output == "meaning of stockade"


@real
@pytest.mark.requirement("F41")
async def test_the_tools_of_a_late_server_are_in_the_first_model_call(
    session: Session, model: ScriptedModel, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    model.play([text("done")])
    late = NOTES | {"args": [*NOTES["args"], str(gate)]}
    running = asyncio.ensure_future(session.run(mcp_servers={"late": late}))
    opened = await asyncio.to_thread(os.open, gate, os.O_WRONLY)  # it runs, and waits at the gate
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(model.asked.wait(), 3)
    os.close(opened)
    assert (await running).status == "completed"
    assert "mcp__late" in {offered["name"] for offered in model.requests[0]["tools"] if "name" in offered}


@real
@pytest.mark.requirement("L30", "L25", "F47")
@pytest.mark.behaviour("tier 0", says="its own sandbox holds commands and patches to the workspace, without network")
async def test_workspace_write_writes_inside_and_is_refused_outside(
    session: Session, workspace: Path, model: ScriptedModel, tmp_path: Path
) -> None:
    (tmp_path / "added").mkdir()
    workspace.joinpath("link").symlink_to(tmp_path)
    shared = Path("/tmp", f"codex-{secrets.token_hex(8)}")
    commands = (
        "printf in > in.txt",
        f"printf in > {tmp_path}/added/added.txt",
        f"printf out > {outside(tmp_path)}",
        "printf out > link/outside.txt",
        f"printf out > {shared}",
        f"printf out > {session.context.home}/config/config.toml",
    )
    model.play([shell("; ".join(commands)), LOOKUP], [text("done")])
    added = (str(tmp_path / "added"),)
    outcome = await session.run(file_access="workspace-write", add_dirs=added, mcp_servers={"notes": NOTES})
    assert outcome.status == "completed"
    assert (workspace / "in.txt").read_text() == "in"
    assert (tmp_path / "added" / "added.txt").exists()
    assert not (tmp_path / "outside.txt").exists()
    assert not shared.exists()
    assert not (session.context.home / "config" / "config.toml").exists()
    assert not session.end("mcp__notes__lookup").is_error


@real
@pytest.mark.requirement("F50")
@pytest.mark.parametrize(("access", "reaches"), [("read-only", False), ("workspace-write", False), ("full", True)])
async def test_only_full_lets_commands_reach_the_network(
    session: Session, model: ScriptedModel, access: FileAccess, reaches: bool
) -> None:
    port = model.url.rpartition(":")[2]
    code = f"import socket; socket.create_connection(('127.0.0.1', {port})); print('rea' + 'ched')"
    model.play([shell(f'{sys.executable} -I -c "{code}"')], [text("done")])
    assert (await session.run(file_access=access)).status == "completed"
    assert ("reached" in model.outputs[0]) is reaches


@pytest.mark.needs("codex")
@pytest.mark.requirement("L37", "F39")
@pytest.mark.behaviour("full", says="everything; nobody is asked")
@pytest.mark.behaviour("root", says="as any user")
@pytest.mark.behaviour("tier 2", says="its sandbox is off, but for read-only where it can start")
@pytest.mark.parametrize(("access", "tier"), [("full", 0), ("full", 2), ("workspace-write", 2)])
async def test_full_and_tier_2_refuse_nothing_and_need_no_namespaces(
    open_session: Open, wrapped: Wrapped, model: ScriptedModel, tmp_path: Path, access: FileAccess, tier: int
) -> None:
    session = open_session(model.url, tier=tier, cli=wrapped(NO_NAMESPACES))
    model.play([shell(f"printf out > {outside(tmp_path)}")], [text("done")])
    assert (await session.run(file_access=access)).status == "completed"
    assert (tmp_path / "outside.txt").read_text() == "out"


@real
@pytest.mark.requirement("F42", "F44", "L30")
@pytest.mark.behaviour("tier 0", says="where its sandbox cannot start, the turn fails before a model call")
@pytest.mark.parametrize("access", ["read-only", "workspace-write"])
async def test_without_nested_namespaces_the_turn_fails_before_any_model_call(
    open_session: Open, wrapped: Wrapped, model: ScriptedModel, access: FileAccess
) -> None:
    session = open_session(model.url, cli=wrapped(NO_NAMESPACES))
    model.play([shell("touch in.txt")], [text("never")])
    with pytest.raises(EngineFailed, match="namespace") as caught:
        await session.run(file_access=access)
    assert "tier 2" in caught.value.hint
    assert model.paths == []
    assert list(session.context.workspace.iterdir()) == []
    assert session.engine._server is None


@real
@pytest.mark.requirement("F42", "L37")
async def test_at_tier_2_read_only_holds_where_it_can_and_else_says_that_it_does_not(
    open_session: Open, wrapped: Wrapped, model: ScriptedModel
) -> None:
    command = shell("touch in.txt; sleep 0.3")
    model.play([command], [text("done")])
    confined = open_session(model.url, tier=2)
    assert (await confined.run()).status == "completed"
    assert list(confined.context.workspace.iterdir()) == []
    assert not any("confines" in notice for notice in confined.notices)

    model.play([command], [text("done")])
    unconfined = open_session(model.url, tier=2, cli=wrapped(NO_NAMESPACES))
    assert (await unconfined.run()).status == "completed"
    assert [path.name for path in unconfined.context.workspace.iterdir()] == ["in.txt"]
    assert any("Only the sandbox around Codex confines" in notice for notice in unconfined.notices)


@real
async def test_a_workspace_that_cannot_be_written_fails_workspace_write(
    open_session: Open, wrapped: Wrapped, model: ScriptedModel
) -> None:
    model.play([text("never")])
    remount = "mount --bind . . && mount -o remount,bind,ro . && cd $PWD"
    inside = f"exec unshare --user --map-root-user --mount sh -c '{remount} && exec \"$@\"' sh"
    session = open_session(model.url, cli=wrapped(inside))
    with pytest.raises(EngineFailed, match="workspace-write does not work here"):
        await session.run(file_access="workspace-write")
    assert model.paths == []


@real
async def test_a_home_in_the_temporary_directory_does_not_keep_the_sandbox_from_starting(
    open_session: Open, model: ScriptedModel, tmp_path: Path
) -> None:
    session = open_session(model.url, TMPDIR=str(tmp_path))
    model.play([shell("printf in > in.txt")], [text("done")])
    assert (await session.run(file_access="workspace-write")).status == "completed"
    assert (session.context.workspace / "in.txt").read_text() == "in"


@pytest.mark.requirement("L37")
@pytest.mark.parametrize("access", ["read-only", "workspace-write", "full"])
def test_only_tier_2_relaxes_what_full_does_not_open_anyway(tmp_path: Path, access: FileAccess) -> None:
    turn = Turn("t", "s", "", file_access=access, add_dirs=("added",))
    for tier in (0, 1, 2):
        found = permissions(turn, tmp_path, tier)
        if access == "full" or (access == "workspace-write" and tier == 2):
            assert (found.mode, found.policy, found.probe) == ("danger-full-access", {"type": "dangerFullAccess"}, ())
        else:
            assert found.mode == access
            assert found.relaxed is (tier == 2)
            assert found.policy["networkAccess"] is False
            assert found.probe


def test_added_directories_may_be_written_by_their_real_path(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    turn = Turn("t", "s", "", file_access="workspace-write", add_dirs=("link",))
    assert permissions(turn, tmp_path, 0).policy["writableRoots"] == [str(tmp_path / "real")]
