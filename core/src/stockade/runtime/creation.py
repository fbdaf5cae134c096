"""Makes one sandbox: constraints, intent, admission, environment, workspace, driver, greeting.

Ownership starts with the row in the registry, before the first side effect, and a failure at any step
undoes all of it (L71).
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stockade.contracts.driver import Driver, Ending, Sandbox
from stockade.errors import ENDINGS, Cancelled, CreateFailed, SandboxLost, StockadeError, TtlExpired
from stockade.model.providers import provider_keys
from stockade.model.spec import SandboxSpec
from stockade.runtime import admitting, tunnels
from stockade.runtime.entry import Entry
from stockade.runtime.environment import sandbox_environment
from stockade.runtime.registry import Registry, Row
from stockade.wire.peer import Peer

if TYPE_CHECKING:
    from stockade.plugins.hooks import Boot
    from stockade.runtime.observers import Hub
    from stockade.settings import Settings

log = logging.getLogger("stockade.runner")


@dataclass(frozen=True, slots=True)
class Workshop:
    """What a creation works with."""

    settings: Settings
    boot: Boot
    registry: Registry
    hub: Hub
    owner: str
    host: Mapping[str, str]
    warranted: bool
    """Whether turns have tokens."""


async def create(shop: Workshop, entry: Entry, driver: Driver, preload: str) -> None:
    """Bring ``entry`` to life, or raise with nothing left."""
    asked = entry.request
    request = entry.request = admitting.constrain(shop.boot.hooks, asked)
    home = shop.registry.home
    now = time.time()
    entry.deadline = now + request.ttl
    shop.registry.intend(
        Row(
            id=entry.id,
            key=entry.key,
            driver=request.driver,
            owner=shop.owner,
            state="creating",
            created=now,
            deadline=entry.deadline,
            ephemeral=entry.ephemeral,
            engine=request.engine,
            user=request.user,
        )
    )
    try:
        await admitting.admit(shop, request)
        entry.admitted[asked.engine, asked.user, asked.file_access] = request.file_access
        for preparation in shop.boot.hooks.prepare_workspace(request):
            await preparation.value.apply(request.workspace)
        home.make(home.state(entry.key))
        home.make(home.run(entry.id))
        request.workspace.mkdir(parents=True, exist_ok=True)
        if request.provider_keys:
            log.warning("%s: provider keys are inside the sandbox: %s", entry.id, ", ".join(request.provider_keys))
        spec = _spec(shop, entry, preload)
        sandbox = await driver.create(spec)
        entry.sandbox = sandbox
        shop.registry.update(entry.id, handle=dict(sandbox.handle), tier=sandbox.isolation.tier)
        entry.peer = Peer(
            sandbox.channel,
            sandbox=entry.id,
            lease=spec.lease,
            accept=lambda stream: tunnels.accept(entry, shop.boot.routes, stream, warranted=shop.warranted),
        )
        await _greet(entry, sandbox, entry.peer, shop.settings.boot_timeout)
        await admitting.confirm(shop, request, sandbox.isolation)
        if entry.tombstone is not None:
            ended = ENDINGS.get(entry.tombstone, Cancelled)
            raise ended(f"sandbox {entry.key!r} was ended while it was being created", sandbox=entry.id)
        shop.registry.update(entry.id, state="live")
    except BaseException as error:
        await asyncio.shield(asyncio.ensure_future(_undo(shop, entry)))
        if isinstance(error, (StockadeError, asyncio.CancelledError)) or not isinstance(error, Exception):
            raise
        raise CreateFailed(
            f"driver {request.driver!r} could not create sandbox {entry.key!r}: {type(error).__name__}: {error}",
            sandbox=entry.id,
            hint="`stockade doctor` shows what this host can do.",
        ) from error
    shop.hub.publish("sandbox_created", sandbox=entry.id, data=dataclasses.asdict(sandbox.isolation))


def _spec(shop: Workshop, entry: Entry, preload: str) -> SandboxSpec:
    request, home = entry.request, shop.registry.home
    passed = {name: shop.host[name] for name in request.env_pass if name in shop.host}
    extra = shop.boot.hooks.engine_environment(request)
    entry.secrets = tuple(passed.values())
    environment = sandbox_environment(shop.host, home.state(entry.key), entry.id, extra | passed)
    return SandboxSpec(
        id=entry.id,
        key=entry.key,
        state_dir=home.state(entry.key),
        run_dir=home.run(entry.id),
        workspace=request.workspace,
        environment=environment,
        deadline=entry.deadline,
        lease=shop.settings.lease,
        add_dirs=request.add_dirs,
        preload=preload,
        provider_keys=provider_keys(environment),
    )


async def _greet(entry: Entry, sandbox: Sandbox, peer: Peer, timeout: float) -> None:
    """HELLO, unless the sandbox ends first: then its own words are the reason (F8)."""
    hello = asyncio.ensure_future(peer.start(timeout))
    ended = asyncio.ensure_future(sandbox.wait())
    try:
        await asyncio.wait({hello, ended}, return_when=asyncio.FIRST_COMPLETED)
        if hello.done() and hello.exception() is None:
            return
        if not ended.done():
            await asyncio.wait({ended}, timeout=1.0)
        if ended.done() and ended.exception() is None:
            ending: Ending = ended.result()
            kind = TtlExpired if ending.reason == "ttl" else CreateFailed
            raise kind(
                f"sandbox {entry.key!r} ended while it started: {ending.evidence or ending.reason}",
                sandbox=entry.id,
                hint="`stockade doctor` shows what this host can do.",
            )
        failure = hello.exception() if hello.done() else None
        raise failure or SandboxLost("the sandbox did not greet", sandbox=entry.id)
    finally:
        for task in (hello, ended):
            task.cancel()
        await asyncio.wait({hello, ended})


async def _undo(shop: Workshop, entry: Entry) -> None:
    """Destroy what exists, then forget it. What cannot be destroyed stays registered for the reaper (L75)."""
    if entry.peer is not None:
        await entry.peer.aclose()
    if entry.sandbox is not None:
        try:
            await entry.sandbox.destroy(shop.settings.grace)
        except Exception:
            log.exception("%s: could not be destroyed after a failed creation; the reaper will retry", entry.id)
            shop.registry.update(entry.id, state="ending", owner="")
            return
    forget(shop.registry, entry)


def forget(registry: Registry, entry: Entry) -> None:
    """Remove the directories, and last the row. For a sandbox that is confirmed gone."""
    home = registry.home
    for path in (home.run(entry.id), *([home.state(entry.key)] if entry.ephemeral else [])):
        if not home.discard(path):
            log.warning("%s: %s is left: it lost its marker or could not be emptied", entry.id, path)
    registry.remove(entry.id)


def host_environment() -> Mapping[str, str]:
    """The kernel's own environment, copied once."""
    return dict(os.environ)
