"""What this host can do, asked once a run."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

_UNSHARE = ("unshare", "--user", "--map-current-user", "--pid", "--fork", "--kill-child", "--mount-proc", "true")


@functools.cache
def lack(name: str) -> str:
    """Why the host has no ``name``; empty when it has it."""
    if name == "namespaces":
        return _namespaces()
    if name == "claude":
        return _claude()
    return "" if shutil.which(name) else f"no program {name!r} on PATH"


def _namespaces() -> str:
    if shutil.which("unshare") is None:
        return "no program 'unshare' on PATH (package util-linux)"
    done = subprocess.run(_UNSHARE, capture_output=True, text=True, timeout=30)
    return f"unshare failed: {done.stderr.strip()}" if done.returncode else ""


def _claude() -> str:
    spec = importlib.util.find_spec("claude_agent_sdk")
    if spec is None or spec.origin is None:
        return "claude-agent-sdk is not installed"
    program = Path(spec.origin).parent / "_bundled" / "claude"
    return "" if os.access(program, os.X_OK) else "claude-agent-sdk bundles no program for this platform"
