"""File access: what the real Claude Code may do, and the rules by themselves."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stockade.model.turn import FileAccess, Turn
from stockade_claude.permissions import permissions
from tests.claude.conftest import Session
from tests.claude.scripted_model import ScriptedModel, text, tool

Open = Callable[..., Session]
NOTES: dict[str, Any] = {"command": sys.executable, "args": ["-I", str(Path(__file__).with_name("notes_server.py"))]}
SERVERS = {"my notes": NOTES}
LOOKUP = "mcp__my_notes__lookup"
real = pytest.mark.needs("claude")


def rules(workspace: Path, access: FileAccess, tier: int = 0, *add_dirs: str) -> Callable[..., str]:
    turn = Turn("t", "s", "", file_access=access, add_dirs=add_dirs)
    return permissions(turn, workspace, tier).refusal


@real
@pytest.mark.requirement("L64", "L88", "L30")
async def test_read_only_reads_and_uses_mcp_tools_and_neither_writes_nor_runs(
    session: Session, workspace: Path, model: ScriptedModel
) -> None:
    workspace.joinpath("seen.txt").write_text("content of the file")
    model.play(
        [
            tool("Read", file_path=str(workspace / "seen.txt")),
            tool("Read", file_path=__file__),
            tool(LOOKUP, word="stockade"),
            tool("Write", file_path=str(workspace / "new.txt"), content="x"),
            tool("Bash", command="touch new.txt"),
        ],
        [text("done")],
    )
    assert (await session.run(mcp_servers=SERVERS)).status == "completed"
    outputs = [(name, end.is_error) for name, end in session.calls.values()]
    assert outputs == [("Read", False), ("Read", True), (LOOKUP, False), ("Write", True), ("Bash", True)]
    assert "content of the file" in next(iter(session.calls.values()))[1].output
    assert "meaning of stockade" in session.end(LOOKUP).output
    assert [path.name for path in workspace.iterdir()] == ["seen.txt"]
    assert not model.tools & {"Write", "Edit", "Bash", "WebFetch"}
    assert {notice.split()[0] for notice in session.notices} == {"Read", "Write", "Bash"}


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
    await asyncio.to_thread(gate.write_text, "open")
    assert (await running).status == "completed"
    assert "mcp__late__lookup" in {offered["name"] for offered in model.requests[0]["tools"]}


@pytest.mark.behaviour("tier 0", says="file tools keep to the workspace, a shell command does not")
@real
@pytest.mark.requirement("L30", "L64", "L25")
async def test_workspace_write_writes_inside_and_is_refused_outside(
    session: Session, workspace: Path, model: ScriptedModel, tmp_path: Path
) -> None:
    (tmp_path / "added").mkdir()
    workspace.joinpath("link").symlink_to(tmp_path)
    model.play(
        [
            tool("Write", file_path=str(workspace / "in.txt"), content="in"),
            tool("Write", file_path=str(tmp_path / "added" / "added.txt"), content="in"),
            tool("Write", file_path=str(tmp_path / "out.txt"), content="out"),
            tool("Write", file_path=str(workspace / "link" / "out.txt"), content="out"),
            tool("Bash", command="printf shell > shell.txt"),
            tool(LOOKUP, word="stockade"),
        ],
        [text("done")],
    )
    added = (str(tmp_path / "added"),)
    outcome = await session.run(file_access="workspace-write", add_dirs=added, mcp_servers=SERVERS)
    assert outcome.status == "completed"
    assert [end.is_error for _, end in session.calls.values()] == [False, False, True, True, False, False]
    assert (workspace / "in.txt").read_text() == "in"
    assert (workspace / "shell.txt").read_text() == "shell"
    assert (tmp_path / "added" / "added.txt").exists()
    assert not (tmp_path / "out.txt").exists()
    assert len([notice for notice in session.notices if "outside the workspace" in notice]) == 2


@real
@pytest.mark.requirement("L37", "L65", "F39")
@pytest.mark.parametrize(("access", "tier"), [("full", 0), ("full", 2), ("workspace-write", 2)])
@pytest.mark.behaviour("full", says="everything; nobody is asked")
@pytest.mark.behaviour("root", says="as any user: nothing is bypassed below tier 2")
@pytest.mark.behaviour("tier 2", says="its permissions are bypassed, but for read-only")
async def test_full_and_tier_2_refuse_nothing_and_ask_nobody(
    open_session: Open, model: ScriptedModel, tmp_path: Path, access: FileAccess, tier: int
) -> None:
    session = open_session(model.url, tier=tier)
    model.play(
        [
            tool("Write", file_path=str(tmp_path / "out.txt"), content="out"),
            tool("Bash", command="echo [$IS_SANDBOX]"),
            tool("AskUserQuestion", questions=[]),
        ],
        [text("done")],
    )
    assert (await session.run(file_access=access)).status == "completed"
    assert (tmp_path / "out.txt").read_text() == "out"
    assert session.end("Bash").output == ("[1]" if tier == 2 else "[]")
    assert session.end("AskUserQuestion").is_error
    assert "AskUserQuestion" not in model.tools


@pytest.mark.requirement("L37")
@pytest.mark.parametrize("access", ["read-only", "workspace-write", "full"])
def test_only_tier_2_bypasses_and_says_that_there_is_a_sandbox(tmp_path: Path, access: FileAccess) -> None:
    turn = Turn("t", "s", "", file_access=access)
    for tier in (0, 1, 2):
        found = permissions(turn, tmp_path, tier)
        relaxed = tier == 2 and access != "read-only"
        assert ("bypassPermissions" in found.arguments) is relaxed
        assert found.inside_sandbox is relaxed


@pytest.mark.requirement("L65", "F92")
@pytest.mark.parametrize("access", ["read-only", "workspace-write", "full"])
def test_a_question_is_answered_without_a_person(tmp_path: Path, access: FileAccess) -> None:
    for tier in (0, 2):
        assert "Nobody" in rules(tmp_path, access, tier)("AskUserQuestion", {})


def test_workspace_write_looks_at_the_real_path(tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    workspace.mkdir()
    workspace.joinpath("link").symlink_to("/")
    refusal = rules(workspace, "workspace-write", 0, "added")
    assert not refusal("Write", {"file_path": "a/b.txt"})
    assert not refusal("Edit", {"file_path": str(workspace / "added" / "x")})
    assert not refusal("NotebookEdit", {"notebook_path": "n.ipynb"})
    assert refusal("Write", {"file_path": "../b.txt"})
    assert refusal("Write", {"file_path": "link/etc/passwd"})
    assert refusal("Write", {"file_path": f"{workspace}-other/b.txt"})
    assert refusal("NotebookEdit", {"notebook_path": "/n.ipynb"})
    assert refusal("Grep", {"pattern": "x", "path": "/etc"})
    assert not refusal("Grep", {"pattern": "x"})
    assert refusal("WebFetch", {"url": "http://a"})
    assert not refusal("Bash", {"command": "true"})
    assert not refusal("mcp__a__b", {})


def test_read_only_refuses_whatever_is_asked(tmp_path: Path) -> None:
    assert rules(tmp_path, "read-only", 2)("Write", {"file_path": "a"})
    assert rules(tmp_path, "read-only")("Bash", {"command": "true"})
