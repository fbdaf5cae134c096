"""``stockade --help`` and ``plugins list``, against ``python3 -c pass``."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.processes import clean_environment, timed
from benchmarks.report import Bound, Series, row

ROUNDS = 25
FORBIDDEN = ("asyncio", "pydantic", "cryptography", "aiohttp", "httpx", "http.client")
COMMANDS = {"stockade --help": ["--help"], "stockade plugins list": ["plugins", "list"]}


def main() -> list[Bound]:
    """Interleaved rounds, so that a busy moment hits all alike."""
    python = sys.executable
    argv = {"python3 -c pass": [python, "-c", "pass"]}
    argv |= {name: [python, "-m", "stockade", *words] for name, words in COMMANDS.items()}
    samples: dict[str, list[float]] = {name: [] for name in argv}
    for count in range(ROUNDS + 1):
        for name, command in argv.items():
            seconds = timed(command)
            if count:  # the first round fills the caches
                samples[name].append(seconds)
    floor = Series(samples["python3 -c pass"])
    bounds = []
    for name, values in samples.items():
        row(name, Series(values))
        if name in COMMANDS:
            bounds.append(Bound(name, Series(values).median / floor.median, 3.0, "x python3 -c pass"))
            bounds.append(Bound(f"{name}: forbidden modules", len(_imported(COMMANDS[name])), 0, "modules"))
    return bounds


def _imported(words: list[str]) -> list[str]:
    code = (
        "import sys\nfrom stockade.cli.app import main\n"
        f"main({words!r})\nprint(*[m for m in {FORBIDDEN!r} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=clean_environment(), capture_output=True, text=True, check=True
    )
    return done.stderr.split()
