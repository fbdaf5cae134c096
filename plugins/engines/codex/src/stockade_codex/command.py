"""How Codex is started, and with which configuration. Standard library only.

Everything that Codex is told comes from here: its command line, its environment, and for what may hold secrets the
parameters of a thread. There is no configuration file, neither of the host nor of an earlier turn.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from stockade.contracts.engine import EngineContext
from stockade.errors import EngineFailed
from stockade.model.turn import Endpoint, Turn
from stockade_codex.permissions import Permissions, permissions

CLI_VARIABLE = "CODEX_CLI"
"""Names another Codex executable than the one that comes with the SDK."""

INSTALL_HINT = "Install it with: pip install openai-codex"

MCP_STARTUP = 30
"""Seconds that an MCP server may take to start; the turn waits for it."""

KEY_VARIABLE = "STOCKADE_CODEX_ROUTE_KEY"
"""Where Codex finds the route's placeholder. Its commands do not get it."""

RETRIES = 2
"""Model calls are repeated this often, each with a `Notice`. Codex's default takes 25 seconds."""

_OFF = (
    # What asks others than the model: telemetry, updates, catalogues of plugins and apps, the proxy of the system.
    "analytics.enabled=false",
    "check_for_update_on_startup=false",
    "features.apps=false",
    "features.plugins=false",
    "features.remote_plugin=false",
    "features.system_proxy_fallback=false",
    "features.tool_suggest=false",
    "features.skill_mcp_dependency_install=false",
    # Configuration of the project and of the user.
    "project_doc_max_bytes=0",
    "features.hooks=false",
    "features.memories=false",
    # Work after the outcome would belong to no turn, and turns without an end would keep it.
    "features.goals=false",
    "features.multi_agent=false",
    "features.sleep_tool=false",
    "features.unbounded_connection_retries=false",
    "features.daemon_auto_start=false",
    # Runs a login shell outside Codex's sandbox.
    "features.shell_snapshot=false",
)


@dataclass(frozen=True, slots=True)
class Launch:
    """One way to start Codex's app-server."""

    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    cwd: Path


@dataclass(frozen=True, slots=True)
class Setup:
    """All that a conversation depends on, besides its messages. Turns of equal setups share a process."""

    launch: Launch
    permissions: Permissions
    model: str | None
    servers: Mapping[str, Mapping[str, Any]]


def find_cli(environment: Mapping[str, str]) -> str:
    """The executable: `CLI_VARIABLE`, else the one that the SDK depends on. `EngineFailed` without the SDK.

    Imports neither: that takes longer than Codex takes to start.
    """
    if find_spec("openai_codex") is None:
        raise EngineFailed("openai-codex is not installed where the engine runs", hint=INSTALL_HINT)
    if chosen := environment.get(CLI_VARIABLE):
        return chosen
    spec = find_spec("codex_cli_bin")
    bundled = Path(spec.origin).parent / "bin" / "codex" if spec is not None and spec.origin is not None else None
    if bundled is None or not bundled.is_file():
        raise EngineFailed(
            "openai-codex brings no Codex executable for this platform",
            hint=f"Name an executable in {CLI_VARIABLE} (and pass it in with --env-pass).",
        )
    return str(bundled)


def config_dir(context: EngineContext) -> Path:
    """``CODEX_HOME``: conversations, and Codex's own state."""
    return context.home / "config"


def rollout(context: EngineContext, native: str) -> Path | None:
    """The stored conversation ``native``, or None. Codex resumes from this file alone."""
    if not native or not all(char.isalnum() or char == "-" for char in native):
        return None
    return next(config_dir(context).glob(f"sessions/*/*/*/rollout-*-{native}.jsonl"), None)


def setup(context: EngineContext, turn: Turn) -> Setup:
    """The setup for ``turn``. Raises `EngineFailed` where there is no SDK or no route to a model."""
    endpoint = turn.routes.get("model")
    if endpoint is None:
        raise EngineFailed(
            "The turn has no model route", hint="Install stockade-gateway, or another plugin that offers `model`."
        )
    allowed = permissions(turn, context.workspace, context.tier)
    environment = _environment(context)
    launch = Launch(
        (find_cli(context.environment), *_overrides(endpoint, allowed), "app-server", "--listen", "stdio://"),
        tuple(sorted((environment | {KEY_VARIABLE: endpoint.key}).items())),
        context.workspace,
    )
    servers = {name: _server(server, environment) for name, server in turn.mcp_servers.items()}
    return Setup(launch, allowed, turn.model, servers)


def _overrides(endpoint: Endpoint, allowed: Permissions) -> list[str]:
    provider = (
        f'name="Stockade",base_url={json.dumps(endpoint.url + "/v1")},wire_api="responses",env_key="{KEY_VARIABLE}",'
        f"request_max_retries=0,stream_max_retries={RETRIES}"
    )
    confined = allowed.mode != "danger-full-access"
    overrides = [
        'model_provider="stockade"',
        f"model_providers.stockade={{{provider}}}",
        f'web_search="{"disabled" if confined else "live"}"',
        # What the caller passed in is meant for the agent's commands, whatever its name looks like (F37).
        "shell_environment_policy.ignore_default_excludes=true",
        f'shell_environment_policy.exclude=["{KEY_VARIABLE}"]',
        *_OFF,
    ]
    return [argument for override in overrides for argument in ("--config", override)]


def _environment(context: EngineContext) -> dict[str, str]:
    """Credentials, other ways to a model and another ``CODEX_HOME`` are only this module's to say."""
    environment = {
        name: value for name, value in context.environment.items() if not name.startswith(("OPENAI_", "CODEX_"))
    }
    environment.setdefault("HOME", str(context.home / "home"))
    environment.setdefault("TMPDIR", str(context.home / "tmp"))
    home = config_dir(context)
    if home.resolve().is_relative_to(Path(environment["TMPDIR"]).resolve()):
        # Codex puts the helper of its sandbox under CODEX_HOME, and refuses to in a temporary directory.
        environment["TMPDIR"] = str(context.home / "tmp")
    return environment | {"CODEX_HOME": str(home), "NO_COLOR": "1"}


def _server(server: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """An MCP server as Codex's configuration has it. Nobody is there to approve its tools: naming it is the consent.

    Codex would give it a few variables only, and not the mark by which the sandbox ends what is left of it.
    """
    common = {"default_tools_approval_mode": "approve", "startup_timeout_sec": MCP_STARTUP}
    if "url" in server:
        headers = {"http_headers": dict(server["headers"])} if server.get("headers") else {}
        return {"url": server["url"], **headers, **common}
    environment = {**environment, **server.get("env", {})}
    return {"command": server["command"], "args": list(server.get("args", ())), "env": environment, **common}
