"""How Cursor's bridge is started: its executable, environment and home. Standard library only.

The bridge is started here and not by the SDK, because the SDK gives it the whole of ``os.environ`` (L63), no
working directory, and ends only the launcher and not the program behind it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from stockade.contracts.engine import EngineContext
from stockade.errors import AuthFailed, EngineFailed
from stockade.model.turn import Turn
from stockade_cursor.permissions import Permissions, permissions

KEY = "CURSOR_API_KEY"
BRIDGE_VARIABLE = "CURSOR_SDK_BRIDGE_BIN"
"""The SDK's own variable for another bridge than the one that it bundles."""

INSTALL_HINT = "Install it with: pip install cursor-sdk"
KEY_HINT = f"Set {KEY} on the host and pass it in: --env-pass {KEY}. The sandbox then attests that it holds the key."


@dataclass(frozen=True, slots=True)
class Launch:
    """One way to start the bridge and to make an agent on it. Two equal launches can share a bridge."""

    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    cwd: Path
    home: Path
    model: str | None
    dirs: tuple[str, ...]
    servers: Mapping[str, Mapping[str, Any]]
    permissions: Permissions

    def prepare(self) -> None:
        """Make the home, private to the sandbox's user (L33), with the sandbox policy that the bridge reads there."""
        settings = self.home / ".cursor"
        for folder in (self.home, settings):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        policy = settings / "sandbox.json"
        if self.permissions.policy is None:
            policy.unlink(missing_ok=True)
        else:
            beside = settings / "sandbox.json.new"
            beside.write_text(json.dumps(self.permissions.policy))
            os.replace(beside, policy)


def find_bridge(environment: Mapping[str, str]) -> str:
    """The executable: `BRIDGE_VARIABLE`, else the SDK's. Raises `EngineFailed`. Does not import the SDK."""
    spec = find_spec("cursor_sdk")
    if spec is None or spec.origin is None:
        raise EngineFailed("cursor-sdk is not installed where the engine runs", hint=INSTALL_HINT)
    if chosen := environment.get(BRIDGE_VARIABLE):
        return chosen
    bundled = Path(spec.origin).parent / "_vendor" / "bridge" / "bin" / "cursor-sdk-bridge"
    if bundled.is_file():
        return str(bundled)
    raise EngineFailed(
        "This build of cursor-sdk has no bridge",
        hint=f"Install a wheel for this platform, or name a bridge in {BRIDGE_VARIABLE} (and pass it in).",
    )


def api_key(context: EngineContext) -> str:
    """The account's key. Raises `AuthFailed` in a sandbox that was made without it."""
    if key := context.environment.get(KEY):
        return key
    raise AuthFailed(f"There is no {KEY} in this sandbox", hint=KEY_HINT)


def launch(context: EngineContext, turn: Turn) -> Launch:
    """The launch for ``turn``. Raises `EngineFailed`."""
    endpoint = turn.routes.get("cursor")
    if endpoint is None:
        raise EngineFailed("The turn has no cursor route", hint="Install stockade-cursor where the kernel runs.")
    # Sessions of one user share the engine's home. Each has its own there, because the bridge reads its policy from it.
    home = context.home / sha256(context.session.encode()).hexdigest()[:16]
    # The key goes to the bridge with each request, not in its environment, which the agent's commands inherit; nor do
    # other variables of Cursor's: they change where the bridge goes, what it reads and how it is built up.
    environment = {name: value for name, value in context.environment.items() if not name.startswith("CURSOR_")}
    environment |= {
        "HOME": str(home),
        "CURSOR_BACKEND_URL": f"{endpoint.url}/{endpoint.key}",
        "CURSOR_SDK_CLIENT_LANGUAGE": "python",
        "CURSOR_SDK_PYTHON_VERSION": version("cursor-sdk"),
    }
    dirs = tuple(str((context.workspace / path).resolve()) for path in turn.add_dirs)
    writable = (*dirs, *([environment["TMPDIR"]] if "TMPDIR" in environment else []))
    return Launch(
        (find_bridge(context.environment), "--workspace", str(context.workspace)),
        tuple(sorted(environment.items())),
        context.workspace,
        home,
        turn.model,
        dirs,
        turn.mcp_servers,
        permissions(turn.file_access, context.tier, writable),
    )
