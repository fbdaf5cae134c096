"""The first and the second turn of a session, against one bare ``claude -p`` with the same scripted model."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import create
from benchmarks.processes import clean_environment, timed
from benchmarks.report import Bound, Series, row
from stockade import Kernel
from stockade.contracts.route import Origin
from stockade.model.events import Started
from stockade.runtime.paths import Home
from stockade_claude.command import find_cli
from stockade_gateway.rehearsal.script import load
from stockade_gateway.route import ModelRoute
from stockade_gateway.testing import serve_tcp
from stockade_process.driver import ProcessDriver

ROUNDS = 5
LATER = 4
"""Turns after the first, in each round."""


def main() -> list[Bound]:
    """Interleaved rounds; each has a new sandbox and a new session."""
    return asyncio.run(_main())


async def _main() -> list[Bound]:
    samples: dict[str, list[float]] = {name: [] for name in ("bare", "import", "first", "started", "later")}
    with tempfile.TemporaryDirectory() as scratch:
        for count in range(ROUNDS + 1):
            one = {name: list[float]() for name in samples}
            one["bare"].append(await _bare(tempfile.mkdtemp(dir=scratch)))
            engine = "import stockade_claude.engine as e; e.ClaudeEngine.preload()"
            one["import"].append(await asyncio.to_thread(timed, [sys.executable, "-c", engine]))
            await _session(Path(scratch) / f"home{count}", one)
            for name, values in one.items():
                samples[name] += values if count else []
        made = await _made(Path(scratch) / "made")
    bare, first, later = (Series(samples[name]) for name in ("bare", "first", "later"))
    row("bare claude -p", bare)
    row("first turn", first)
    row("  process: create to ready (alone)", Series([made]))
    row("  import: the SDK (alone; beside the process)", Series(samples["import"]))
    row("  connect: ready to the agent's start", f"{(Series(samples['started']).median - made) * 1000:9.1f} ms")
    row("  turn: start to outcome", f"{(first.median - Series(samples['started']).median) * 1000:9.1f} ms")
    row("second and later turns", later)
    return [
        Bound("first turn", first.median / bare.median, 3.0, "x claude -p"),
        Bound("second turn", later.median / bare.median, 0.25, "x claude -p"),
    ]


async def _bare(home: str) -> float:
    origin = Origin("bare", "bare", "model", key="placeholder")
    async with serve_tcp(ModelRoute({}, load("talk")), origin) as url:
        environment = clean_environment(
            HOME=home,
            ANTHROPIC_BASE_URL=url,
            ANTHROPIC_API_KEY="placeholder",
            CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
            DISABLE_AUTOUPDATER="1",
        )
        return await asyncio.to_thread(timed, [find_cli(environment), "-p", "Say hello"], environment, home)


async def _session(home: Path, samples: dict[str, list[float]]) -> None:
    async with Kernel.open(home=home, rehearse="talk") as kernel:
        for number in range(1 + LATER):
            begun = time.perf_counter()
            turn = await kernel.turn("Say hello", engine="claude", driver="process", session="bench")
            async for event in turn:
                if number == 0 and isinstance(event, Started):
                    samples["started"].append(time.perf_counter() - begun)
            outcome = await turn.outcome()
            if outcome.status != "completed":
                raise SystemExit(f"a turn failed: {outcome}")
            samples["later" if number else "first"].append(time.perf_counter() - begun)


async def _made(home: Path) -> float:
    place = Home(home)
    place.ensure()
    driver = ProcessDriver({})
    return Series([(await create._create(driver, place))[0] for _ in range(ROUNDS)]).median
