"""What this host can do, asked once a run."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

_UNSHARE = ("unshare", "--user", "--map-current-user", "--pid", "--fork", "--kill-child", "--mount-proc", "true")


@functools.cache
def lack(name: str) -> str:
    """Why the host has no ``name``; empty when it has it."""
    if name == "namespaces":
        return _namespaces()
    if name == "claude":
        return _program("claude-agent-sdk", "claude_agent_sdk", "_bundled/claude")
    if name == "codex":
        return _program("openai-codex", "codex_cli_bin", "bin/codex")
    if name == "cursor":
        return _program("cursor-sdk", "cursor_sdk", "_vendor/bridge/bin/node")
    if name == "packages":
        return _packages()
    if name == "docker":
        from tests.docker import engine

        return engine.lack()
    return "" if shutil.which(name) else f"no program {name!r} on PATH"


def _namespaces() -> str:
    if shutil.which("unshare") is None:
        return "no program 'unshare' on PATH (package util-linux)"
    done = subprocess.run(_UNSHARE, capture_output=True, text=True, timeout=30)
    return f"unshare failed: {done.stderr.strip()}" if done.returncode else ""


def _program(dist: str, module: str, path: str) -> str:
    """Whether an agent's own program is there: ``dist`` brings it, in the package ``module``."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return f"{dist} is not installed"
    program = Path(spec.origin).parent / path
    return "" if os.access(program, os.X_OK) else f"{dist} bundles no program for this platform"


def _packages() -> str:
    """Whether pip finds packages to install."""
    with tempfile.TemporaryDirectory() as folder:
        pip = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--disable-pip-version-check",
            "--retries",
            "1",
            "--timeout",
            "10",
        ]
        done = subprocess.run([*pip, "-q", "--no-deps", "-d", folder, "hatchling"], capture_output=True, text=True)
    return f"pip finds no packages: {done.stderr.strip()[-300:]}" if done.returncode else ""
