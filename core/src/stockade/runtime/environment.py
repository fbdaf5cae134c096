"""The environment of a sandbox: an allowlist, then what the kernel sets, then the tier by the driver (L20, L38)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

ALLOWED = ("PATH", "LANG", "LANGUAGE", "TZ", "TERM", "COLORTERM", "SSL_CERT_FILE", "SSL_CERT_DIR")
"""Host variables that go in unasked, besides ``LC_*``. None of them is a secret."""

FALLBACK_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

RESERVED = frozenset({"HOME", "TMPDIR", "PATH", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"})
"""Names that the kernel sets; with ``STOCKADE_*`` they are refused from everybody else."""


def sandbox_environment(host: Mapping[str, str], state: Path, sandbox: str, extra: Mapping[str, str]) -> dict[str, str]:
    """All variables of a sandbox. ``extra`` was validated; what the kernel sets wins over it (L22, L23)."""
    environment = {n: v for n, v in host.items() if n in ALLOWED or n.startswith("LC_")}
    environment.setdefault("PATH", FALLBACK_PATH)
    environment.update(extra)
    home = state / "home"
    environment.update(
        HOME=str(home),
        TMPDIR=str(state / "tmp"),
        XDG_CONFIG_HOME=str(home / ".config"),
        XDG_CACHE_HOME=str(home / ".cache"),
        XDG_DATA_HOME=str(home / ".local/share"),
        XDG_STATE_HOME=str(home / ".local/state"),
        STOCKADE_SANDBOX=sandbox,
    )
    _keep_routes_off_proxies(environment)
    return environment


def _keep_routes_off_proxies(environment: dict[str, str]) -> None:
    """A proxy that was passed in must not get what is meant for a route's listener on loopback (L21)."""
    if any(name.upper().endswith("_PROXY") for name in environment):
        known = environment.get("no_proxy") or environment.get("NO_PROXY")
        hosts = ",".join(filter(None, (known, "127.0.0.1", "localhost")))
        environment.update(NO_PROXY=hosts, no_proxy=hosts)
