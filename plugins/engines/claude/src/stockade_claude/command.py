"""How Claude Code is started: its executable, arguments and environment. Standard library only.

The command line is built here and not by the SDK's own transport, because that transport merges the
environment over ``os.environ``: what a session inherits would then depend on the host program.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from stockade.contracts.engine import EngineContext
from stockade.errors import EngineFailed
from stockade.model.turn import Endpoint, Turn
from stockade_claude.permissions import Permissions

CLI_VARIABLE = "CLAUDE_CLI"
"""Names another Claude Code executable than the one that the SDK bundles."""

INSTALL_HINT = "Install it with: pip install claude-agent-sdk"

RETRIES = 2
"""Model calls are repeated this often by Claude Code. Its default of 10 takes minutes."""

NEVER_INHERITED = frozenset(
    {
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "ANTHROPIC_BASE_URL",
        "ANTHROPIC_CUSTOM_HEADERS",
        "CLAUDECODE",
        "CLAUDE_AGENT_SDK_CLIENT_APP",
        "CLAUDE_CODE_OAUTH_TOKEN",
        "CLAUDE_CODE_USE_BEDROCK",
        "CLAUDE_CODE_USE_FOUNDRY",
        "CLAUDE_CODE_USE_VERTEX",
        "IS_SANDBOX",
    }
)
"""Credentials, other ways to a model and claims about the sandbox: only this module says these."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One way to start Claude Code. Two equal launches can share a process."""

    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    cwd: Path
    servers: str
    servers_file: Path
    """The MCP servers go through a file that is there during the start only: they may hold secrets (F34)."""


def find_cli(environment: Mapping[str, str]) -> str:
    """The executable: `CLI_VARIABLE`, the SDK's bundled one, ``claude`` on PATH. `EngineFailed` without the SDK.

    Does not import the SDK, so that Claude Code can boot while Python still imports it.
    """
    spec = find_spec("claude_agent_sdk")
    if spec is None or spec.origin is None:
        raise EngineFailed("claude-agent-sdk is not installed where the engine runs", hint=INSTALL_HINT)
    if chosen := environment.get(CLI_VARIABLE):
        return chosen
    bundled = Path(spec.origin).parent / "_bundled" / "claude"
    if bundled.is_file():
        return str(bundled)
    if found := shutil.which("claude", path=environment.get("PATH")):
        return found
    raise EngineFailed(
        "This build of claude-agent-sdk has no Claude Code executable, and there is no `claude` on PATH",
        hint=f"Install Claude Code, or name its executable in {CLI_VARIABLE} (and pass it in with --env-pass).",
    )


def config_dir(context: EngineContext) -> Path:
    """Where Claude Code keeps its configuration and its transcripts."""
    return context.home / "config"


def transcript(context: EngineContext, native: str) -> Path | None:
    """The stored conversation ``native``, or None. Claude Code resumes from this file alone."""
    if not native or not all(char.isalnum() or char == "-" for char in native):
        return None
    return next(config_dir(context).glob(f"projects/*/{native}.jsonl"), None)


def launch(context: EngineContext, turn: Turn, permissions: Permissions) -> Launch:
    """The launch for ``turn``, without ``--resume``: that belongs to the process, not to its options."""
    endpoint = turn.routes.get("model")
    if endpoint is None:
        raise EngineFailed(
            "The turn has no model route", hint="Install stockade-gateway, or another plugin that offers `model`."
        )
    servers = json.dumps(
        {"mcpServers": {name: dict(server) for name, server in turn.mcp_servers.items()}}, sort_keys=True
    )
    # The sessions of one user share the home: each has its own file.
    servers_file = context.home / f"mcp-{sha256(context.session.encode()).hexdigest()[:16]}.json"
    return Launch(
        (find_cli(context.environment), *_arguments(turn, permissions), "--mcp-config", str(servers_file)),
        tuple(sorted(_environment(context, endpoint, permissions).items())),
        context.workspace,
        servers,
        servers_file,
    )


def _arguments(turn: Turn, permissions: Permissions) -> list[str]:
    argv = ["--output-format", "stream-json", "--input-format", "stream-json", "--verbose"]
    argv += ["--include-partial-messages"]
    # Nothing of the host's or the project's configuration: no settings, no hooks, no other MCP servers.
    argv += ["--setting-sources=", "--strict-mcp-config"]
    argv += permissions.arguments
    if turn.model:
        argv.append(f"--model={turn.model}")
    for directory in permissions.roots[1:]:
        argv += ["--add-dir", str(directory)]
    return argv


def _environment(context: EngineContext, endpoint: Endpoint, permissions: Permissions) -> dict[str, str]:
    environment = {name: value for name, value in context.environment.items() if name not in NEVER_INHERITED}
    environment.setdefault("HOME", str(context.home / "home"))
    environment.setdefault("TMPDIR", str(context.home / "tmp"))
    environment |= {
        "ANTHROPIC_BASE_URL": endpoint.url,
        "ANTHROPIC_AUTH_TOKEN": endpoint.key,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": str(RETRIES),
        "CLAUDE_CONFIG_DIR": str(config_dir(context)),
        # Its own scratch files are under /tmp/claude-UID otherwise, outside the state dir (L22).
        "CLAUDE_CODE_TMPDIR": environment["TMPDIR"],
        # The tools of a slow MCP server would be missing from the first model call (F41).
        "MCP_CONNECTION_NONBLOCKING": "false",
        # Work after the outcome would belong to no turn.
        "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
        "CLAUDE_CODE_DISABLE_CRON": "1",
        # Deferred tools are announced beside a prompt, and a verbatim prompt comes without announcements.
        "ENABLE_TOOL_SEARCH": "false",
        "CLAUDE_CODE_ENTRYPOINT": "sdk-py",
        "DISABLE_AUTOUPDATER": "1",
    }
    if permissions.inside_sandbox:
        environment["IS_SANDBOX"] = "1"
    return environment
