"""A process that owns a sandbox until it is killed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from stockade.testing.driver.box import Box, World


def main(order: Mapping[str, Any]) -> None:
    """Make the sandbox of the order, greet it, plant something, print its handle, and stay."""
    asyncio.run(_own(order))


async def _own(order: Mapping[str, Any]) -> None:
    module, name = order["driver"]
    driver: Any = import_module(module)
    for part in name.split("."):
        driver = getattr(driver, part)
    world = World(Path(order["root"]))
    spec = world.spec(id=order["id"])
    box = Box(spec, await driver(order["options"]).create(spec))
    await box.greet(30)
    await box.plant("own-session")
    print(json.dumps(dict(box.sandbox.handle)), flush=True)
    await box.sandbox.wait()
