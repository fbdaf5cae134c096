"""What is cheap must stay cheap: the imports of ``--help`` and ``plugins list``."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = (
    "asyncio", "pydantic", "pydantic_settings", "pluggy", "importlib.metadata", "cryptography", "aiohttp",
    "http.client", "urllib.request", "dataclasses", "yaml", "logging",
)  # fmt: skip

PROBE = """
import sys
before = set(sys.modules)
from stockade.cli.app import main
try:
    code = main(sys.argv[1:])
except SystemExit as ended:
    code = ended.code
print(*sorted(set(sys.modules) - before), file=sys.stderr)
raise SystemExit(code)
"""


@pytest.mark.parametrize("argv", [["--help"], ["--version"], ["plugins", "list"], ["plugins", "list", "--json"]])
def test_listing_imports_nothing_heavy(argv: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", PROBE, *argv], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(set(HEAVY) & set(done.stderr.split())) == []


def test_help_does_not_even_need_argparse() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROBE, "--help"], capture_output=True, text=True, timeout=60, check=True
    )
    assert "argparse" not in done.stderr.split()
