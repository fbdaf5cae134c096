"""The inside program, started as a plain process with a socket."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from stockade.wire.channels import StreamChannel
from stockade.wire.mux import Accept
from tests.core.inside.client import Client

ENGINES = Path(__file__).parent / "engines"


@dataclass
class Inside:
    """A running inside program."""

    process: subprocess.Popen[bytes]
    client: Client
    state: Path
    workspace: Path
    log: Path


Start = Callable[..., Awaitable[Inside]]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Starts inside programs; they are ended after the test."""
    started: list[Inside] = []

    async def start_one(
        *flags: str, accept: Accept | None = None, greet: bool = True, lease: float = 30, **environment: str
    ) -> Inside:
        base = tmp_path / f"sandbox-{len(started)}"
        state, workspace, log = base / "state", base / "workspace", base / "log"
        state.mkdir(parents=True)
        workspace.mkdir()
        ours, theirs = socket.socketpair()
        with theirs, log.open("wb") as output:
            process = subprocess.Popen(
                command(state, workspace, lease, "--fd", str(theirs.fileno()), *flags),
                env=environ(**environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[theirs.fileno()],
            )
        client = Client(await StreamChannel.from_socket(ours), "test", accept)
        inside = Inside(process, client, state, workspace, log)
        started.append(inside)
        if greet:
            await client.start()
        return inside

    yield start_one
    for inside in started:
        await inside.client.mux.aclose()
        inside.process.wait(10)


def command(state: Path, workspace: Path, lease: float, *flags: str) -> list[str]:
    """The command line of the inside program."""
    return [
        sys.executable, "-m", "stockade.inside", "--id", "test", "--state-dir", str(state),
        "--workspace", str(workspace), "--deadline", str(time.time() + 600), "--lease", str(lease), *flags,
    ]  # fmt: skip


def environ(**more: str) -> dict[str, str]:
    """A small environment in which the scripted engine can be imported."""
    return {"PATH": os.environ["PATH"], "PYTHONPATH": str(ENGINES), "HOME": "/nowhere", **more}


@pytest.fixture
async def inside(start: Start) -> Inside:
    """One inside program, greeted."""
    return await start()


@pytest.fixture
async def client(inside: Inside) -> Client:
    """Its client."""
    return inside.client
