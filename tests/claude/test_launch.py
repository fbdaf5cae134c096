"""How Claude Code is found and started."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import stockade
import stockade_claude
from stockade.errors import EngineFailed
from stockade.model.turn import Endpoint, Turn
from stockade_claude import command
from stockade_claude.permissions import permissions
from tests.claude.conftest import Session
from tests.claude.scripted_model import ScriptedModel, text, tool

Open = Callable[..., Session]
SOURCES = [str(Path(module.__file__ or "").parents[1]) for module in (stockade, stockade_claude)]


def python(code: str, *flags: str) -> str:
    """The output of ``code`` in a new interpreter that sees the sources of the kernel and the engine."""
    code = f"import sys\nsys.path[:0] = {SOURCES}\n{code}"
    done = subprocess.run([sys.executable, "-I", *flags, "-c", code], capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_the_engine_needs_only_the_standard_library() -> None:
    assert python("import stockade_claude.engine; print('anyio' in sys.modules, 'mcp' in sys.modules)", "-S")


def test_without_the_sdk_the_error_says_how_to_get_it() -> None:
    code = "\n".join(
        [
            "from stockade_claude.command import find_cli",
            "try: find_cli({})",
            "except Exception as error: print(error.code, error.hint)",
        ]
    )
    assert python(code, "-S") == "engine_failed Install it with: pip install claude-agent-sdk"


@pytest.mark.needs("claude")
@pytest.mark.requirement("L80", "F34")
def test_no_credential_and_no_claim_of_the_host_reaches_claude(open_session: Open) -> None:
    base = open_session().context
    canaries = dict.fromkeys(command.NEVER_INHERITED, "canary")
    context = dataclasses.replace(base, environment={**base.environment, **canaries, "LC_ALL": "C"})
    servers = {"web": {"type": "http", "url": "http://127.0.0.1:2", "headers": {"x": "secret"}}}
    routes = {"model": Endpoint("http://127.0.0.1:1", "key")}
    turn = Turn("t", "s", "secret message", routes=routes, mcp_servers=servers)
    found = command.launch(context, turn, permissions(turn, context.workspace, 0))
    environment = dict(found.environment)
    assert "canary" not in environment.values()
    assert environment["LC_ALL"] == "C"
    assert environment["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:1"
    assert environment["ANTHROPIC_AUTH_TOKEN"] == "key"
    assert not any("secret" in argument or "key" in argument for argument in found.argv)


def test_a_turn_without_a_model_route_says_what_is_missing(open_session: Open) -> None:
    context = open_session().context
    turn = Turn("t", "s", "go")
    with pytest.raises(EngineFailed, match="no model route"):
        command.launch(context, turn, permissions(turn, context.workspace, 0))


@pytest.mark.behaviour("what is sent to whom", says="model calls to the route `model`; no other connection, no DNS")
@pytest.mark.needs("claude", "strace")
async def test_claude_connects_to_nothing_but_the_model_route(
    open_session: Open, model: ScriptedModel, tmp_path: Path
) -> None:
    trace, cli = tmp_path / "trace", tmp_path / "claude-traced"
    cli.write_text(f'#!/bin/sh\nexec strace -f -qq -e trace=connect -o "{trace}" "{command.find_cli({})}" "$@"\n')
    cli.chmod(0o755)
    session = open_session(model.url, cli=cli)
    model.play([tool("Bash", command="true")], [text("done")])
    assert (await session.run(file_access="workspace-write")).status == "completed"
    await session.engine.aclose()
    reached = set(re.findall(r"connect\(\d+, \{sa_family=AF_INET6?, (.*?)\}, \d+\)", trace.read_text()))
    port = model.url.rpartition(":")[2]
    assert reached == {f'sin_port=htons({port}), sin_addr=inet_addr("127.0.0.1")'}


@pytest.mark.needs("claude")
@pytest.mark.requirement("F36")
async def test_the_file_with_the_mcp_servers_is_gone_when_the_agent_works(
    open_session: Open, model: ScriptedModel
) -> None:
    session = open_session(model.url)
    model.play([text("done")])
    servers = {"gone": {"type": "http", "url": "http://127.0.0.1:9/mcp", "headers": {"authorization": "canary"}}}
    assert (await session.run(mcp_servers=servers)).status == "completed"
    assert any("gone could not be reached" in notice for notice in session.notices)
    files = [path for path in session.context.home.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if b"canary" in path.read_bytes()]
