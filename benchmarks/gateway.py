"""The gateway against nginx and LiteLLM's proxy, on the same upstream, with a warrant checked on every call.

All calls are Chat Completions. ``stockade gateway serve`` runs as anybody would run it: warrants with the keys and the
denylist of a state root, budgets, prices and the meter on.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from benchmarks.load import Target, delays, latencies, throughput
from benchmarks.proxies import direct, gateway, litellm, nginx, upstream
from benchmarks.report import Bound, Series, row
from stockade.model.authority import Claims
from stockade_authority.minter import WarrantMinter

ROUNDS = 5
CALLS = 400
"""Calls one after the other, in each round."""
SECONDS = 2.0
"""Of full load, in each round."""
CONNECTIONS = 32
STREAMS = 50


def main(*, install: bool = False, with_litellm: bool = False) -> list[Bound]:
    """Interleaved rounds. ``install`` fetches what is missing: nginx with apt, LiteLLM into a venv that is removed."""
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        port = stack.enter_context(upstream())
        warrant = asyncio.run(_warrant(scratch / "home"))
        targets = {
            "direct": direct(port),
            "gateway": stack.enter_context(gateway(port, scratch, warrant)),
            "nginx": stack.enter_context(nginx(port, scratch, install=install)),
        }
        if with_litellm:
            targets["litellm"] = stack.enter_context(litellm(port, scratch, install=install))
        found = {name: target for name, target in targets.items() if target is not None}
        return [*_calls(found), *_streams(found)]


async def _warrant(home: Path) -> str:
    minter = WarrantMinter({"home": home, "lifetime": 3600})
    claims = Claims("sb-1", "s", "t", "ann", "codex", 0, "model", time.time() + 3600, models=("m",), requests=10**9)
    token = await minter.mint(claims)
    await minter.aclose()
    return token.value


def _calls(targets: dict[str, Target]) -> Iterator[Bound]:
    single: dict[str, list[float]] = {name: [] for name in targets}
    rates: dict[str, list[float]] = {name: [] for name in targets}
    for count in range(ROUNDS + 1):
        for name, target in targets.items():
            slow = name == "litellm"
            one = latencies(target, CALLS // 10 if slow else CALLS)
            rate = asyncio.run(throughput(target, CONNECTIONS, SECONDS))
            if count:  # the first round opens connections and fills caches
                single[name] += one
                rates[name].append(rate)
    series = {name: Series(values) for name, values in single.items()}
    rate_of = {name: Series(values).median for name, values in rates.items()}
    for name in targets:
        row(f"{name}: a call", f"{series[name].median * 1000:9.3f} ms median  {series[name].p99 * 1000:9.3f} ms p99")
        row(f"{name}: {CONNECTIONS} connections", f"{rate_of[name]:9,.0f} calls a second")
    if "nginx" in targets:
        yield Bound("a call", series["gateway"].median / series["nginx"].median, 3.0, "x nginx")
        yield Bound("calls a second", rate_of["gateway"] / rate_of["nginx"], 0.25, "x nginx", least=True)
    if "litellm" in targets:
        yield Bound("calls a second", rate_of["gateway"] / rate_of["litellm"], 40, "x LiteLLM", least=True)


def _streams(targets: dict[str, Target]) -> Iterator[Bound]:
    samples: dict[str, list[float]] = {name: [] for name in targets if name != "litellm"}
    for _ in range(ROUNDS):
        for name, values in samples.items():
            values += asyncio.run(delays(targets[name], STREAMS))
    series = {name: Series(values) for name, values in samples.items()}
    for name, one in series.items():
        row(f"{name}: a chunk, {STREAMS} streams", f"{one.median * 1000:9.3f} ms median  {one.p99 * 1000:9.3f} ms p99")
    base = series["direct"]
    added = (series["gateway"].median - base.median) * 1000, (series["gateway"].p99 - base.p99) * 1000
    yield Bound("delay added to a chunk, median", added[0], 0.3, "ms")
    yield Bound("delay added to a chunk, p99", added[1], 3, "ms")
