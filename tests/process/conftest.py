"""Real sandboxes of the process driver, with and without namespaces."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stockade.model.spec import SandboxSpec
from stockade_process.driver import ProcessDriver
from stockade_process.sandbox import ProcessSandbox
from tests.core.inside.client import Client

MODES = [pytest.param("require", marks=pytest.mark.needs("namespaces")), "off"]


@dataclass
class Running:
    """A greeted sandbox."""

    sandbox: ProcessSandbox
    client: Client
    spec: SandboxSpec

    @property
    def log(self) -> str:
        return (self.spec.run_dir / "log").read_text()


Make = Callable[..., Awaitable[Running]]


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    """How the sandboxes are held together."""
    return str(request.param)


@pytest.fixture
def spec(tmp_path: Path) -> Callable[..., SandboxSpec]:
    """Makes specs."""
    count = 0

    def make(**changes: Any) -> SandboxSpec:
        nonlocal count
        count += 1
        base = tmp_path / f"s{count}"
        for name in ("state", "work"):
            (base / name).mkdir(parents=True)
        values: dict[str, Any] = {
            # Unique for ever, as the kernel's ids are.
            "id": f"sb-{os.getpid()}-{time.monotonic_ns()}",
            "key": "key",
            "state_dir": base / "state",
            "run_dir": base / "run",
            "workspace": base / "work",
            "environment": {"PATH": os.environ["PATH"]},
            "deadline": time.time() + 600,
            "lease": 30.0,
            **changes,
        }
        return SandboxSpec(**values)

    return make


@pytest.fixture
async def make(mode: str, spec: Callable[..., SandboxSpec]) -> AsyncIterator[Make]:
    """Makes and greets sandboxes; they are destroyed after the test."""
    driver = ProcessDriver({"namespaces": mode})
    made: list[Running] = []

    async def make_one(**changes: Any) -> Running:
        one = spec(**changes)
        sandbox = await driver.create(one)
        running = Running(sandbox, Client(sandbox.channel, one.id), one)
        made.append(running)
        await running.client.start()
        return running

    yield make_one
    for running in made:
        await running.sandbox.destroy(1)
        await running.client.mux.aclose()
    await driver.aclose()


@pytest.fixture
async def running(make: Make) -> Running:
    """One sandbox."""
    return await make()
