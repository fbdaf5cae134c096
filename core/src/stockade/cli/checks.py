"""What ``stockade doctor`` looks at: the host itself here, and what each driver and engine says it needs."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from stockade.errors import StockadeError
from stockade.model.finding import Finding

if TYPE_CHECKING:
    from stockade.settings import Settings

LOW_DISK = 1024**3
"""Bytes of free space under which `doctor` warns."""


def examine() -> list[Finding]:
    """All findings, in the order in which a person would look at them."""
    from stockade.settings import Settings

    findings = [_python()]
    try:
        settings = Settings.load()
    except StockadeError as error:
        return [*findings, Finding("settings", "fail", error.message, error.hint)]
    findings += [Finding("settings", "ok", "read without an error"), *_home(settings.home)]
    for kind in ("driver", "engine"):
        findings += _plugins(kind, settings)
    return [*findings, _docker(os.environ.get("DOCKER_HOST", "")), _keys()]


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding("python", "ok", f"{version} at {sys.executable}")


def _home(home: Path) -> Iterator[Finding]:
    """The state root: writable, private, with space. It is not created."""
    home = home.expanduser().absolute()
    there = next(path for path in (home, *home.parents) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        yield Finding("state", "fail", f"{there} is not a writable directory", "Set STOCKADE_HOME to one that is.")
        return
    mode = stat.S_IMODE(home.stat().st_mode) if there == home else 0o700
    if mode & 0o077:
        yield Finding("state", "warn", f"{home} can be opened by others (mode {mode:04o})", f"chmod 700 {home}")
    else:
        yield Finding("state", "ok", f"{home} (mode {mode:04o}{'' if there == home else ', will be created'})")
    free = shutil.disk_usage(there).free
    detail = f"{free / 1024**3:.1f} GiB free under {there}"
    if free < LOW_DISK:
        yield Finding("disk", "warn", detail, "Free some space; sandboxes keep their state there.")
    else:
        yield Finding("disk", "ok", detail)


def _plugins(kind: str, settings: Settings) -> Iterator[Finding]:
    """Each installed driver or engine: whether it loads, and what it says about this host."""
    from stockade.plugins.discovery import load
    from stockade.plugins.scan import of_kind

    names = sorted({entry.name for entry in of_kind(kind) if settings.selection.enabled(entry)})
    if not names:
        yield Finding(f"{kind}s", "fail", "none is installed", "pip install 'stockade[all]'")
    for name in names:
        try:
            plugin = load(kind, name, settings.selection)
            yield Finding(f"{kind} {name}", "ok", f"{plugin.entry.dist} {plugin.entry.version}")
            for finding in plugin.obj.diagnose():
                yield Finding(f"{name}: {finding.name}", finding.status, finding.detail, finding.fix)
        except StockadeError as error:
            yield Finding(f"{kind} {name}", "fail", error.message, error.hint)
        except Exception as error:
            yield Finding(
                f"{kind} {name}", "fail", f"cannot be examined: {type(error).__name__}: {error}",
                f"stockade plugins check {name}",
            )  # fmt: skip


def _docker(host: str) -> Finding:
    """Whether a Docker daemon answers a ping. Only a Docker driver needs one."""
    import http.client
    import socket
    from urllib.parse import urlsplit

    url = urlsplit(host or "unix:///var/run/docker.sock")
    where = host or url.path
    fix = "Only a Docker driver needs it: start the daemon, join its group, or set DOCKER_HOST."
    if url.scheme == "unix":
        connection = http.client.HTTPConnection("docker", timeout=2)
        unix = socket.socket(socket.AF_UNIX)
        unix.settimeout(2)
        connection.sock = unix
    elif url.scheme in ("tcp", "http"):
        connection = http.client.HTTPConnection(url.hostname or "", url.port or 2375, timeout=2)
        unix = None
    else:
        return Finding("docker", "warn", f"cannot ask {where}: only unix:// and tcp:// are tried here", fix)
    try:
        if unix is not None:
            unix.connect(url.path)
        connection.request("GET", "/_ping")
        answer = connection.getresponse()
        version = answer.headers.get("Api-Version", "unknown")
        if answer.status == 200:
            return Finding("docker", "ok", f"{where} answers, API {version}")
        return Finding("docker", "warn", f"{where} answers with status {answer.status}", fix)
    except (OSError, http.client.HTTPException) as error:
        return Finding("docker", "warn", f"no daemon at {where}: {error}", fix)
    finally:
        connection.close()


def _keys() -> Finding:
    from stockade.model.providers import provider_keys

    names = provider_keys(os.environ)
    if names:
        return Finding("model keys", "ok", f"set: {', '.join(names)} (they stay outside the sandboxes)")
    return Finding(
        "model keys",
        "warn",
        "none is set",
        "export ANTHROPIC_API_KEY, or run without one: stockade run --rehearse hello …",
    )
