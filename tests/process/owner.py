"""A process that owns a sandbox and is killed by a test: ``python owner.py MODE BASE ID``."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

from stockade.model.spec import SandboxSpec
from stockade_process.driver import ProcessDriver
from tests.core.inside.client import Client


async def main(mode: str, base: Path, id: str) -> None:
    spec = SandboxSpec(
        id, "key", base / "state", base / "run", base / "work", {"PATH": os.environ["PATH"]}, time.time() + 600, 30.0
    )
    print("creating", flush=True)
    sandbox = await ProcessDriver({"namespaces": mode}).create(spec)
    print("created", flush=True)
    client = Client(sandbox.channel, id)
    await client.start()
    print("greeted", flush=True)
    stream = await client.open_exec("sh", "-c", sys.argv[4])
    await stream.receive()
    print("busy", flush=True)
    await stream.receive()


asyncio.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
