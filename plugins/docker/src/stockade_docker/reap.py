"""Ending what a dead kernel left in the engine: by the labels that the engine has now, not by a record's word."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any

from aiodocker import Docker
from aiodocker.exceptions import DockerError

from stockade.contracts.driver import Orphan, Ownership, Reaped
from stockade_docker import engine, idmap
from stockade_docker.container import LABEL
from stockade_docker.engine import Facts

ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
REMOVAL = 10.0


async def orphan(docker: Docker, facts: Facts, one: Orphan, owned: Ownership) -> Reaped:
    """End one orphan, in whatever state it is (F51)."""
    if one.id in owned.live:
        return Reaped(one.id, False, "it has a live owner")
    if not ID.fullmatch(one.id):
        return Reaped(one.id, False, "its id is malformed")
    made_by = one.handle.get("engine")
    if isinstance(made_by, str) and made_by != facts.id:
        return Reaped(one.id, False, "it was made on another Docker engine; set `host` to that one and reap again")
    ended = []
    try:
        for container in await engine.find(docker, f"{LABEL}sandbox={one.id}"):
            found = await engine.inspect(docker, container)
            if found is None or not _is(found, one):
                continue
            if reason := await engine.remove(docker, container, seconds=REMOVAL):
                return Reaped(one.id, False, f"container {container[:12]} is still there: {reason}")
            ended.append(container[:12])
    except DockerError as error:
        return Reaped(one.id, False, f"the Docker engine says: {error.message}")
    except engine.BROKEN as error:
        return Reaped(one.id, False, engine.unreachable(docker, error).message)
    await asyncio.to_thread(idmap.remove, one.id)
    return Reaped(one.id, True, f"container {', '.join(ended)} removed" if ended else "nothing of it was there")


def _is(found: Mapping[str, Any], one: Orphan) -> bool:
    """Whether a container is this orphan's, of this home: another home's may have any id."""
    labels = found["Config"].get("Labels") or {}
    return labels.get(f"{LABEL}sandbox") == one.id and labels.get(f"{LABEL}run-dir") == str(one.run_dir)
