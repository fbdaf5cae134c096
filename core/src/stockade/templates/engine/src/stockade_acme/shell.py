"""The agent's one tool: a shell command in the workspace. Standard library only."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
from typing import Any

from stockade import EngineContext

TOOL: dict[str, Any] = {
    "name": "Bash",
    "description": "Runs a shell command in the working directory, and returns its output.",
    "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
}

LONGEST = 100_000
"""Bytes of output that the model gets to see."""


async def run(command: str, context: EngineContext) -> tuple[str, bool]:
    """Run it to its end; its output, and whether it failed. What it left in its process group ends with it."""
    # A file: a pipe would stay open as long as anything holds it that the command left behind.
    with tempfile.TemporaryFile(dir=context.home) as output:
        process = await asyncio.create_subprocess_exec(
            *("sh", "-c", command),
            cwd=context.workspace,
            env=dict(context.environment),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            await process.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        output.seek(0)
        return output.read(LONGEST).decode(errors="replace"), process.returncode != 0
