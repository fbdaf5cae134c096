"""Running programs as a person would."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence


def clean_environment(**more: str) -> dict[str, str]:
    """The environment without what would make every start compile its modules, and without settings."""
    hidden = ("STOCKADE_", "PYTHON", "ANTHROPIC_", "CLAUDE")
    return {n: v for n, v in os.environ.items() if not n.startswith(hidden)} | more


def timed(argv: Sequence[str], environment: Mapping[str, str] | None = None, cwd: str | None = None) -> float:
    """Seconds of one run. Raises `subprocess.CalledProcessError` with its output when it fails."""
    started = time.perf_counter()
    subprocess.run(
        argv, env=environment or clean_environment(), cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, check=True
    )
    return time.perf_counter() - started
