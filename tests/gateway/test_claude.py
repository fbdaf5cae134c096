"""The real Claude Code against a rehearsal, without a kernel."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import KEY

pytestmark = pytest.mark.needs("claude")

Run = Callable[..., Awaitable[tuple[int, list[dict[str, Any]]]]]


@pytest.fixture
def claude(tmp_path: Path) -> Run:
    """Run the bundled binary in ``tmp_path/work space``; gives its exit code and its messages."""
    spec = importlib.util.find_spec("claude_agent_sdk")
    assert spec is not None
    assert spec.origin is not None
    program = Path(spec.origin).parent / "_bundled" / "claude"
    workspace, home = tmp_path / "work space", tmp_path / "home"
    workspace.mkdir()
    home.mkdir()

    async def run(url: str) -> tuple[int, list[dict[str, Any]]]:
        process = await asyncio.create_subprocess_exec(
            *(
                str(program),
                "-p",
                "Work",
                "--output-format",
                "stream-json",
                "--verbose",
                "--allowedTools",
                "Bash,Write",
            ),
            cwd=workspace,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(home),
                "TMPDIR": str(home),
                "CLAUDE_CONFIG_DIR": str(home),
                "ANTHROPIC_BASE_URL": url,
                "ANTHROPIC_AUTH_TOKEN": KEY,
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "CLAUDE_CODE_MAX_RETRIES": "1",
            },
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await process.communicate()
        return process.returncode or 0, [json.loads(line) for line in out.splitlines()]

    return run


@pytest.mark.slow
async def test_hello_makes_claude_write_the_file_in_its_workspace(rehearse: Any, claude: Run, tmp_path: Path) -> None:
    async with rehearse("hello") as url:
        code, messages = await claude(url)
    assert code == 0
    assert (tmp_path / "work space" / "hello.txt").read_text() == "Hello from a rehearsal.\n"
    assert messages[-1]["result"] == "I created hello.txt, and it says hello."
    assert messages[-1]["usage"]["output_tokens"] > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("tools", "Both commands ran."),
        ("thinking", "I thought about it, twice, and changed nothing."),
        ("error", "One call failed, and the next one worked."),
        ("disconnect", "The second attempt was whole."),
    ],
)
async def test_claude_reaches_the_end_of_a_shipped_script(rehearse: Any, claude: Run, script: str, said: str) -> None:
    async with rehearse(script) as url:
        code, messages = await claude(url)
    assert (code, messages[-1]["result"]) == (0, said)
