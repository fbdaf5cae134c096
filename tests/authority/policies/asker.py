"""A process that asks for places, says what it got, and holds it until it is told to end.

Arguments: state root, number of asks, options of the quota as JSON. Says that it is ready, waits for a line, asks, and
prints one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

from stockade.model.authority import TurnRequest
from stockade.runtime.owner import Owner
from stockade.runtime.registry import Registry, Row
from stockade.runtime.requests import new_id
from stockade.testing.examples import example_request
from stockade_authority.policies.config import QuotaOptions
from stockade_authority.policies.quota import QuotaPolicy


def register(registry: Registry, owner: str, user: str = "") -> str:
    """A sandbox's row, as the kernel writes it before it asks; gives the id."""
    id = new_id("sb")
    now = time.time()
    registry.intend(
        Row(id=id, key=id, driver="x", owner=owner, state="creating", created=now, deadline=now + 60, ephemeral=True)
    )
    return id


async def ask(root: Path, asks: int, options: QuotaOptions) -> dict[str, int]:
    registry = Registry(root)
    owner = Owner(registry.home.owners)
    policy = QuotaPolicy(root, options)
    print("ready", flush=True)
    sys.stdin.readline()
    wishes = [example_request(sandbox=register(registry, owner.id)) for _ in range(asks)]
    sandboxes = await asyncio.gather(*(policy.review(wish) for wish in wishes))
    turns = await asyncio.gather(*(policy.review_turn(TurnRequest(new_id("turn"), "s", w)) for w in wishes))
    found = {"sandboxes": sum(v.allowed for v in sandboxes), "turns": sum(v.allowed for v in turns)}
    return found | {"uncounted": sum(v.code == "quota_unavailable" for v in (*sandboxes, *turns))}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(ask(Path(sys.argv[1]), int(sys.argv[2]), QuotaOptions(**json.loads(sys.argv[3]))))))
    sys.stdout.flush()
    sys.stdin.read()
