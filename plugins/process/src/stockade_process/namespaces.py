"""The PID namespace around a sandbox, and whether this host allows it."""

from __future__ import annotations

import functools
import logging
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

log = logging.getLogger("stockade.process")

FLAGS = ("--user", "--map-current-user", "--pid", "--fork", "--kill-child", "--mount-proc")
"""The user keeps its uid inside, or lookups of it fail; the death of ``unshare`` is that of its child (L42)."""

PROBE_TIMEOUT = 10.0


@dataclass(frozen=True, slots=True)
class Probe:
    """What this host allows.

    ``available``: the wrapper works. ``nested``: it works inside itself too, so an agent's own sandbox
    can start in it (L41). ``reason`` and ``fix`` are empty when both do.
    """

    available: bool
    nested: bool
    reason: str = ""
    fix: str = ""


def wrapper() -> list[str]:
    """The command that is put before a sandbox's command line. Raises `FileNotFoundError` without ``unshare``."""
    unshare = shutil.which("unshare")
    if unshare is None:
        raise FileNotFoundError("unshare is not installed")
    return [unshare, *FLAGS, "--"]


@functools.cache
def probe() -> Probe:
    """Run the real wrapper within itself, once a process (L41, F44). Blocks up to some seconds."""
    try:
        wrap = wrapper()
    except FileNotFoundError as error:
        return Probe(False, False, str(error), "Install util-linux (Debian: apt-get install util-linux).")
    nested_error = _error([*wrap, *wrap, "true"])
    if not nested_error:
        return Probe(True, True)
    error_ = _error([*wrap, "true"])
    if not error_:
        return Probe(True, False, f"a second level of namespaces is refused: {nested_error}", _fix())
    return Probe(False, False, error_, _fix())


def _error(command: list[str]) -> str:
    """The reason why ``command`` fails, or nothing."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=PROBE_TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return ""
    return done.stderr.decode(errors="replace").strip() or f"exit code {done.returncode}"


def _fix() -> str:
    """What to change on this host, as far as its settings say."""
    if _setting("user/max_user_namespaces") == "0":
        return "sysctl -w user.max_user_namespaces=15000"
    if _setting("kernel/unprivileged_userns_clone") == "0":
        return "sysctl -w kernel.unprivileged_userns_clone=1"
    if _setting("kernel/apparmor_restrict_unprivileged_userns") == "1":
        return "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile that allows userns"
    return (
        "In a container, start it with --security-opt seccomp=unconfined --security-opt apparmor=unconfined "
        "--security-opt systempaths=unconfined."
    )


def _setting(name: str) -> str:
    try:
        return Path("/proc/sys", name).read_text().strip()
    except OSError:
        return ""
