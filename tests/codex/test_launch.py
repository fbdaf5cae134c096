"""How Codex is found and started."""

from __future__ import annotations

import asyncio
import dataclasses
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import stockade
import stockade_codex
from stockade.errors import EngineFailed
from stockade.model.turn import Endpoint, Turn
from stockade_codex import command
from stockade_codex.engine import CodexEngine
from tests.codex.conftest import Session
from tests.codex.scripted_model import ScriptedModel, custom, shell, text

Open = Callable[..., Session]
SOURCES = [str(Path(module.__file__ or "").parents[1]) for module in (stockade, stockade_codex)]
FOREIGN = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "CODEX_API_KEY", "CODEX_HOME", "CODEX_ACCESS_TOKEN")


def python(code: str, *flags: str) -> str:
    """The output of ``code`` in a new interpreter that sees the sources of the kernel and the engine."""
    code = f"import sys\nsys.path[:0] = {SOURCES}\n{code}"
    done = subprocess.run([sys.executable, "-I", *flags, "-c", code], capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_the_engine_needs_only_the_standard_library() -> None:
    assert python("import stockade_codex.engine; print('pydantic' in sys.modules)", "-S") == "False"


def test_without_the_sdk_the_error_and_the_finding_say_how_to_get_it() -> None:
    code = "\n".join(
        [
            "from stockade_codex.command import find_cli",
            "try: find_cli({})",
            "except Exception as error: print(error.code, error.hint)",
        ]
    )
    assert python(code, "-S") == "engine_failed Install it with: pip install openai-codex"
    code = "from stockade_codex.engine import CodexEngine as E; f, = E.diagnose(); print(f.status, f.fix)"
    assert python(code, "-S") == "fail Install it with: pip install openai-codex"


@pytest.mark.needs("codex")
def test_the_engine_says_where_its_program_is() -> None:
    (finding,) = CodexEngine.diagnose()
    assert (finding.name, finding.status) == ("Codex", "ok")
    assert Path(finding.detail).is_file()


def test_a_turn_without_a_model_route_says_what_is_missing(open_session: Open) -> None:
    with pytest.raises(EngineFailed, match="no model route"):
        command.setup(open_session().context, Turn("t", "s", "go"))


@pytest.mark.needs("codex")
@pytest.mark.requirement("L80", "F34")
def test_no_credential_of_the_host_reaches_codex_and_no_secret_its_command_line(open_session: Open) -> None:
    base = open_session().context
    environment = {**base.environment, **dict.fromkeys(FOREIGN, "canary"), "LC_ALL": "C"}
    servers = {"web": {"url": "http://127.0.0.1:2", "headers": {"x": "secret"}}, "here": {"command": "c"}}
    routes = {"model": Endpoint("http://127.0.0.1:1", "key-of-the-route")}
    turn = Turn("t", "s", "secret message", routes=routes, mcp_servers=servers)
    found = command.setup(dataclasses.replace(base, environment=environment), turn)
    inside = dict(found.launch.environment)
    assert "canary" not in inside.values()
    assert inside["CODEX_HOME"] == str(base.home / "config")
    assert (inside["LC_ALL"], inside[command.KEY_VARIABLE]) == ("C", "key-of-the-route")
    assert any("http://127.0.0.1:1/v1" in argument for argument in found.launch.argv)
    assert not any("secret" in argument or "key-of-the-route" in argument for argument in found.launch.argv)
    assert found.servers["web"]["http_headers"] == {"x": "secret"}
    assert "key-of-the-route" not in found.servers["here"]["env"].values()


@pytest.mark.needs("codex")
def test_codex_knows_every_feature_that_is_switched_off(tmp_path: Path) -> None:
    listed = subprocess.run(
        [command.find_cli({}), "features", "list"], env={"CODEX_HOME": str(tmp_path)}, capture_output=True, text=True
    )
    known = {line.split()[0] for line in listed.stdout.splitlines() if "removed" not in line}
    named = {name for override in command._OFF for name in re.findall(r"features\.(\w+)=false", override)}
    assert named - known == set()


@pytest.mark.needs("codex", "namespaces")
@pytest.mark.requirement("L20", "F33")
async def test_nothing_of_the_hosts_or_the_projects_configuration_is_read(
    open_session: Open, model: ScriptedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Canaries where a host and a project keep theirs: instructions, a key, another provider."""
    host = tmp_path / "host"
    session = open_session(model.url)
    config = 'model_provider="canary"\ndeveloper_instructions="canary"\n'
    for place in (host / ".codex", session.context.workspace / ".codex", session.context.home / "config"):
        place.mkdir(parents=True)
        (place / "config.toml").write_text(config)
    (host / ".codex" / "auth.json").write_text('{"OPENAI_API_KEY": "canary"}')
    for place in (host / ".codex", session.context.workspace):
        (place / "AGENTS.md").write_text("canary")
    monkeypatch.setenv("HOME", str(host))
    monkeypatch.setenv("CODEX_HOME", str(host / ".codex"))
    monkeypatch.setenv("OPENAI_API_KEY", "canary")
    model.play([shell("env; sleep 0.3")], [text("done")])
    assert (await session.run()).status == "completed"
    assert "canary" not in str(model.requests) + str(model.headers)
    assert session.end("shell").output


@pytest.mark.needs("codex", "strace")
@pytest.mark.behaviour("what is sent to whom", says="model calls to the route `model`; no other connection, no DNS")
async def test_codex_connects_to_nothing_but_the_model_route(
    open_session: Open, wrapped: Callable[..., Path], model: ScriptedModel, tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    session = open_session(model.url, cli=wrapped(f'exec strace -f -qq -e trace=connect,sendto -o "{trace}"'))
    model.play([custom("exec", "const r = await tools.exec_command({cmd: 'true'}); text(r.output);")], [text("done")])
    assert (await session.run(model=None, file_access="full")).status == "completed"
    await session.engine.aclose()
    port = model.url.rpartition(":")[2]
    reached = set(re.findall(r"(sin6?_port=htons\(\d+\), \w+=inet_addr\(\S+\)|inet_pton\S+)", trace.read_text()))
    assert reached == {f'sin_port=htons({port}), sin_addr=inet_addr("127.0.0.1")'}


@pytest.mark.needs("codex")
@pytest.mark.requirement("F36")
async def test_the_secrets_of_mcp_servers_are_in_no_file(open_session: Open, model: ScriptedModel) -> None:
    session = open_session(model.url)
    model.play([text("done")])
    servers = {"gone": {"type": "http", "url": "http://127.0.0.1:9/mcp", "headers": {"authorization": "canary"}}}
    assert (await session.run(mcp_servers=servers, file_access="full")).status == "completed"
    assert any("The MCP server gone could not be used" in notice for notice in session.notices)
    files = [path for path in session.context.home.rglob("*") if path.is_file()]
    assert files
    found = await asyncio.to_thread(lambda: [path for path in files if b"canary" in path.read_bytes()])
    assert not found
