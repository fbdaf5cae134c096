"""A kernel on the in-memory driver, found through real entry points of a toy distribution."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stockade import Kernel
from stockade.settings import Settings
from stockade.testing.fakes import MemoryDriver

TOY = """\
from stockade import AdmissionPolicy, TokenMinter, hookimpl
from stockade.contracts.lifecycle import Observer
from stockade.contracts.route import Route
from stockade.model.authority import ClaimLimits, Constraints, Token, Verdict
from stockade.testing.fakes import NullEngine


class Policy(AdmissionPolicy):
    name = "toy-policy"
    verdict = Verdict.allow()
    seen = []

    async def review(self, request):
        Policy.seen.append(request)
        return Policy.verdict


class Minter(TokenMinter):
    minted, revoked = [], []

    async def mint(self, claims):
        Minter.minted.append(claims)
        return Token(f"token-{len(Minter.minted)}", "secret-value-of-token", claims.expires)

    async def revoke(self, token_ids, reason):
        Minter.revoked += token_ids


class Echo(Route):
    origins, turns = [], []

    async def serve(self, stream, origin):
        Echo.origins.append(origin)
        Echo.turns.append(origin.turn)
        while data := await stream.receive():
            await stream.send(data)
        await stream.send_end()


class EchoingEngine(NullEngine):
    ROUTES = {"echo": "bytes"}


class Watcher(Observer):
    records = []

    async def on_event(self, record):
        Watcher.records.append(record)


constraints = Constraints()


@hookimpl
def admission_policies(settings):
    return [Policy()]


@hookimpl
def routes(settings):
    return {"echo": Echo()}


@hookimpl
def observers(settings):
    return [Watcher()]


@hookimpl
def token_claims(request):
    return ClaimLimits(requests=7)


@hookimpl
def driver_constraints(request):
    return constraints
"""

ENTRY_POINTS = """\
[stockade.drivers]
memory = stockade.testing.fakes:MemoryDriver
[stockade.engines]
null = stockade.testing.fakes:NullEngine
echoing = stockade_toy:EchoingEngine
[stockade.minters]
toy = stockade_toy:Minter
[stockade.plugins]
toy = stockade_toy
"""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The toy plugin's module, installed for one test."""
    site = tmp_path / "site"
    info = site / "stockade_toy-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "stockade_toy.py").write_text(TOY)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stockade-toy\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("STOCKADE_PLUGINS", "stockade-toy")
    import stockade_toy

    yield stockade_toy
    del sys.modules["stockade_toy"]


class Bench:
    """A kernel, its memory driver, and a short way to start turns."""

    def __init__(self, kernel: Kernel, toy: Any) -> None:
        self.kernel = kernel
        self.toy = toy
        driver = kernel._catalog.driver("memory")
        assert isinstance(driver, MemoryDriver)
        self.driver = driver

    async def turn(self, message: str = "hi", **options: Any) -> Any:
        return await self.kernel.turn(message, **{"driver": "memory", "engine": "null", **options})


@pytest.fixture
def open_bench(toy: Any, tmp_path: Path) -> Callable[..., contextlib.AbstractAsyncContextManager[Bench]]:
    """Opens kernels on one state root."""

    @contextlib.asynccontextmanager
    async def opened(**settings: Any) -> AsyncIterator[Bench]:
        async with Kernel.open(Settings.load(home=tmp_path / "home", **settings)) as kernel:
            yield Bench(kernel, toy)

    return opened


@pytest.fixture
async def bench(open_bench: Callable[..., contextlib.AbstractAsyncContextManager[Bench]]) -> AsyncIterator[Bench]:
    """One kernel."""
    async with open_bench() as bench:
        yield bench
