"""What a caller may ask for, validated once at the edge."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stockade.errors import NotConfigured, UsageError
from stockade.model.authority import SandboxRequest
from stockade.model.providers import provider_keys
from stockade.model.turn import FILE_ACCESS, FileAccess
from stockade.runtime.environment import RESERVED

if TYPE_CHECKING:
    from stockade.runtime.paths import Home
    from stockade.settings import Settings

MAX_MESSAGE = 16 * 1024 * 1024
"""Bytes of one message."""
MAX_NAME = 256
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def new_id(prefix: str) -> str:
    """A fresh, unguessable id."""
    return f"{prefix}-{secrets.token_hex(8)}"


def message_bytes(message: str) -> bytes:
    """The message as UTF-8. Raises `UsageError` when it is empty, too long or not text."""
    if not message.strip():
        raise UsageError("the message is empty", hint="Say what the agent should do.")
    try:
        data = message.encode()
    except UnicodeEncodeError as error:
        raise UsageError("the message is not valid Unicode text", hint="Send it as UTF-8.") from error
    if len(data) > MAX_MESSAGE:
        raise UsageError(
            f"the message has {len(data)} bytes, the limit is {MAX_MESSAGE}",
            hint="Put long material into a file of the workspace and name the file.",
        )
    return data


def sandbox_request(
    settings: Settings,
    home: Home,
    *,
    file_access: str,
    engine: str = "",
    driver: str | None = None,
    session: str | None = None,
    sandbox: str | None = None,
    user: str | None = None,
    workspace: str | Path | None = None,
    ttl: float | None = None,
    env_pass: Iterable[str] = (),
    add_dirs: Iterable[str | Path] = (),
) -> tuple[SandboxRequest, bool]:
    """The request, and whether its sandbox is ephemeral (nobody can name it again)."""
    if file_access not in FILE_ACCESS:
        raise UsageError(f"file access {file_access!r} is unknown", hint=f"One of: {', '.join(FILE_ACCESS)}.")
    access: FileAccess = next(a for a in FILE_ACCESS if a == file_access)
    key = sandbox or session
    for what, name in (("session", session), ("sandbox", sandbox), ("user", user)):
        if name is not None and not (0 < len(name) <= MAX_NAME and name.isprintable()):
            raise UsageError(f"the {what} name must have 1 to {MAX_NAME} printable characters")
    lifetime = settings.ttl if ttl is None else ttl
    if not 0 < lifetime < 10 * 365 * 86400:
        raise UsageError(f"a time to live of {lifetime!r} seconds is not possible", hint="Give seconds above 0.")
    names = tuple(sorted({*settings.env_pass, *env_pass}))
    for name in names:
        if not _VARIABLE.fullmatch(name) or name in RESERVED or name.startswith(("STOCKADE_", "LD_")):
            raise UsageError(
                f"the variable {name!r} cannot be passed into a sandbox",
                hint="The kernel sets it itself, or it would change how programs are loaded.",
            )
    real_key = key or new_id("anon")
    if workspace is None:
        folder = home.state(real_key) / "workspace"
    else:
        folder = _directory(workspace, "workspace", home)
    request = SandboxRequest(
        sandbox=new_id("sb"),
        key=real_key,
        driver=driver or "",
        engine=engine,
        user=user or "",
        session=session or "",
        file_access=access,
        workspace=folder,
        ttl=lifetime,
        env_pass=names,
        provider_keys=provider_keys(names),
        add_dirs=tuple(_directory(d, "directory", home) for d in add_dirs),
    )
    return request, key is None


def _directory(path: str | Path, what: str, home: Home) -> Path:
    folder = Path(path).expanduser().absolute()
    if not folder.is_dir():
        raise UsageError(f"the {what} {folder} is not a directory", hint=f"Create it: mkdir -p {folder}")
    real, root = folder.resolve(), home.root.resolve()
    own_workspace = real.is_relative_to(root / "state") and real.relative_to(root / "state").parts[1:2] == (
        "workspace",
    )
    if root.is_relative_to(real) or (real.is_relative_to(root) and not own_workspace):
        raise UsageError(
            f"the {what} {folder} contains Stockade's own state",
            hint="Choose another directory: an agent must not reach the registry, keys or other sandboxes.",
        )
    return folder


def check_mcp(servers: Mapping[str, Mapping[str, Any]] | None) -> dict[str, dict[str, Any]]:
    """MCP servers by name: each a ``command`` (with ``args``, ``env``) or a ``url``."""
    checked: dict[str, dict[str, Any]] = {}
    for name, server in (servers or {}).items():
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
            raise UsageError(f"the MCP server name {name!r} is not possible", hint="Use letters, digits, _ and -.")
        if ("command" in server) == ("url" in server):
            raise UsageError(f"MCP server {name!r} needs either a command or a url")
        checked[name] = dict(server)
    return checked


def check_provider_keys(engine: str, needed: Iterable[str], passed: Iterable[str], host: Mapping[str, str]) -> None:
    """An engine that must hold a vendor's key inside starts only where the caller passed it in by name (L44).

    Raises `NotConfigured`.
    """
    for name in needed:
        if name not in passed or not host.get(name):
            raise NotConfigured(
                f"the engine {engine!r} needs {name} inside its sandbox, and it was not passed in"
                if name not in passed
                else f"the engine {engine!r} needs {name}, which is not set on this host",
                hint=f"export {name}=… and pass it in by name: --env-pass {name} (or the setting env_pass). "
                "The sandbox then says that it holds a provider's key.",
            )


def check_argv(argv: Sequence[str]) -> list[str]:
    """A command. Raises `UsageError` for none, or for a NUL in it."""
    if not argv or any("\0" in a for a in argv):
        raise UsageError("there is no command to run", hint="stockade exec -- CMD [ARGS]")
    return list(argv)
