"""From ``Driver.create`` to the greeting, against the bare process in bare namespaces."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.processes import timed
from benchmarks.report import Bound, Series, row
from stockade.model.spec import SandboxSpec
from stockade.runtime.environment import sandbox_environment
from stockade.runtime.paths import Home
from stockade.wire.mux import MuxStream
from stockade.wire.peer import Peer
from stockade_process.driver import ProcessDriver
from stockade_process.namespaces import wrapper

ROUNDS = 20


def main() -> list[Bound]:
    """Interleaved rounds."""
    return asyncio.run(_main())


async def _main() -> list[Bound]:
    driver = ProcessDriver({"namespaces": "require"})
    floor = [*wrapper(), sys.executable, "-I", "-c", "import asyncio, json"]
    bare, ready, gone = [], [], []
    with tempfile.TemporaryDirectory() as scratch:
        home = Home(Path(scratch))
        home.ensure()
        for count in range(ROUNDS + 1):
            seconds = timed(floor)
            made, ended = await _create(driver, home)
            if count:
                bare.append(seconds)
                ready.append(made)
                gone.append(ended)
    row('unshare … python3 -I -c "import asyncio, json"', Series(bare))
    row("create to ready, process driver", Series(ready))
    row("destroy", Series(gone))
    return [Bound("create to ready", Series(ready).median / Series(bare).median, 2.5, "x the bare process")]


async def _create(driver: ProcessDriver, home: Home) -> tuple[float, float]:
    """Seconds to the greeting, and of the destruction."""
    id = f"sb-{secrets.token_hex(8)}"
    state, run = home.state(id), home.run(id)
    home.make(state)
    home.make(run)
    (state / "workspace").mkdir()
    spec = SandboxSpec(
        id=id,
        key=id,
        state_dir=state,
        run_dir=run,
        workspace=state / "workspace",
        environment=sandbox_environment(os.environ, state, id, {}),
        deadline=time.time() + 60,
        lease=30,
    )
    started = time.perf_counter()
    sandbox = await driver.create(spec)
    peer = Peer(sandbox.channel, sandbox=id, lease=30, accept=_refuse)
    await peer.start(30)
    ready = time.perf_counter()
    await sandbox.destroy(2)
    ended = time.perf_counter()
    await peer.aclose()
    return ready - started, ended - ready


async def _refuse(stream: MuxStream) -> None:
    await stream.reset("unsupported")
