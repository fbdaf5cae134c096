"""A process that makes, uses and destroys a sandbox, and is killed at some moment: ``python killed.py ORDER``."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from stockade.testing.driver.box import Box, World
from stockade_docker.driver import DockerDriver


async def main(host: str, image: str, root: Path, id: str) -> None:
    spec = World(root).spec(id=id)
    print("creating", flush=True)
    box = Box(spec, await DockerDriver({"host": host, "image": image}).create(spec))
    await box.greet(60)
    await box.sh("echo used")
    await box.destroy(1)
    print("done", flush=True)


order = json.loads(sys.argv[1])
asyncio.run(main(order["host"], order["image"], Path(order["root"]), order["id"]))
