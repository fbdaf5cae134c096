"""The composition root: settings, plugins, registry and runner behind one async context manager."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from stockade.archive.rules import Limits
from stockade.contracts.driver import Reaped
from stockade.errors import SandboxNotFound, UsageError
from stockade.model.authority import SandboxRequest
from stockade.plugins import hooks
from stockade.runtime import reaper, requests, wishes, withdrawal
from stockade.runtime.catalog import Catalog
from stockade.runtime.creation import Workshop, host_environment
from stockade.runtime.entry import Entry
from stockade.runtime.execs import ExecHandle
from stockade.runtime.files import SandboxFiles
from stockade.runtime.observers import Hub
from stockade.runtime.owner import Owner
from stockade.runtime.paths import Home
from stockade.runtime.registry import Registry, Row
from stockade.runtime.runner import Runner
from stockade.runtime.running import Job, TurnRunner
from stockade.runtime.turns import TurnHandle
from stockade.settings import Settings

log = logging.getLogger("stockade.kernel")

SWEEP = 30.0
"""Seconds between the reaper's passes."""
SIGHTINGS = 1.0
"""Seconds between the two sweeps of a pass."""


class Kernel:
    """Runs turns and commands in sandboxes. Make one with `Kernel.open`; one a process is enough."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._home = Home(settings.home)
        self._boot = hooks.boot(settings)
        self._catalog = Catalog(settings, self._boot)
        self._turns: set[asyncio.Task[None]] = set()

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, settings: Settings | None = None, **overrides: Any) -> AsyncIterator[Kernel]:
        """Boot; on leaving, cancel all turns and destroy all sandboxes.

        ``overrides`` are settings by name. Raises `BootError` with all plugins that failed, or `SettingsError`.
        """
        kernel = cls(settings if settings is not None else Settings.load(**overrides))
        kernel._start()
        try:
            yield kernel
        finally:
            await asyncio.shield(asyncio.ensure_future(kernel._aclose()))

    def _start(self) -> None:
        self._registry = Registry(self._home)
        self._owner = Owner(self._home.owners)
        self._hub = Hub([o.value for o in self._boot.observers])
        minter = self._catalog.minter
        shop = Workshop(
            self.settings,
            self._boot,
            self._registry,
            self._hub,
            self._owner.id,
            host_environment(),
            warranted=minter is not None,
        )
        self._runner = Runner(shop, self._catalog.driver, minter)
        self._turn_runner = TurnRunner(self._runner)
        housekeeping = asyncio.create_task(self._keep_house(), name="stockade-housekeeping")
        self._chores = [housekeeping, *withdrawal.watch(self._boot.policies, self._runner)]

    async def _aclose(self) -> None:
        for task in (*self._chores, *self._turns):
            task.cancel()
        await asyncio.wait({*self._chores, *self._turns})
        await self._runner.aclose()
        await self._catalog.aclose()
        await self._hub.aclose(timeout=2.0)
        self._registry.close()
        self._owner.release()

    # -- turns and commands ------------------------------------------------------------------------

    async def turn(
        self,
        message: str,
        *,
        engine: str | None = None,
        driver: str | None = None,
        model: str | None = None,
        workspace: str | Path | None = None,
        file_access: str = "read-only",
        session: str | None = None,
        sandbox: str | None = None,
        user: str | None = None,
        ttl: float | None = None,
        add_dirs: Iterable[str | Path] = (),
        env_pass: Iterable[str] = (),
        mcp_servers: Mapping[str, Mapping[str, Any]] | None = None,
        timeout: float | None = None,
    ) -> TurnHandle:
        """Start one message to an agent and return at once.

        ``session`` names a conversation that is continued, also later and in another process.
        ``sandbox`` names a sandbox that turns share; without either, the turn has one of its own, which
        ends with it. ``workspace`` must exist; without one the agent works in the sandbox's own
        ``workspace/`` under the state root. ``ttl`` and ``timeout`` in seconds. ``env_pass`` are names of
        host variables.

        Raises `UsageError`, `NotConfigured` and `PluginError` for what cannot be asked; everything later
        is the turn's outcome.
        """
        data = requests.message_bytes(message)
        servers = requests.check_mcp(mcp_servers)
        name, entry_point, engine_class = self._catalog.engine(engine)
        request, ephemeral = requests.sandbox_request(
            self.settings,
            self._home,
            engine=name,
            driver=driver,
            session=session,
            sandbox=sandbox,
            user=user,
            workspace=workspace,
            file_access=file_access,
            ttl=ttl,
            env_pass=env_pass,
            add_dirs=add_dirs,
        )
        request = self._with_driver(request)
        requests.check_provider_keys(name, engine_class.PROVIDER_KEYS, request.env_pass, self._runner.shop.host)
        self._catalog.preflight(engine_class)
        session_name = session or requests.new_id("session")
        handle = TurnHandle(id=requests.new_id("turn"), session=session_name, sandbox=request.key)
        job = Job(
            request=request,
            ephemeral=ephemeral,
            message=data,
            entry_point=entry_point,
            args={
                "engine": name,
                "home": _home_key(request.user, request.pack),
                "model": model,
                "add_dirs": [str(d) for d in request.add_dirs],
                "mcp_servers": servers,
            },
            routes=tuple(engine_class.ROUTES),
            timeout=timeout or self.settings.turn_timeout or request.ttl,
        )
        handle.task = task = asyncio.create_task(self._turn_runner.run(handle, job), name=f"stockade-{handle.id}")
        self._turns.add(task)
        task.add_done_callback(self._turns.discard)
        return handle

    async def exec(
        self,
        argv: Sequence[str],
        *,
        driver: str | None = None,
        sandbox: str | None = None,
        workspace: str | Path | None = None,
        user: str | None = None,
        ttl: float | None = None,
        env_pass: Iterable[str] = (),
        timeout: float | None = None,
    ) -> ExecHandle:
        """Run one command in a sandbox: a fresh one, or the one named ``sandbox``.

        Use the handle as an async context manager. Raises `UsageError`, and what the creation raises
        (`Denied`, `CreateFailed`, …).
        """
        command = requests.check_argv(argv)
        entry = await self._acquire(driver, sandbox, workspace, user, ttl, env_pass)
        try:
            assert entry.peer is not None
            args: dict[str, Any] = {"argv": command}
            stream = await entry.peer.open("exec", args if timeout is None else {**args, "timeout": timeout})
        except BaseException:
            await self._runner.release(entry)
            raise
        return ExecHandle(self._runner, entry, stream)

    async def files(
        self,
        *,
        driver: str | None = None,
        sandbox: str | None = None,
        workspace: str | Path | None = None,
        user: str | None = None,
        ttl: float | None = None,
    ) -> SandboxFiles:
        """Copy files into and out of a sandbox: a fresh one, or the one named ``sandbox``.

        Use what is returned as an async context manager. Raises as `exec` does.
        """
        entry = await self._acquire(driver, sandbox, workspace, user, ttl, ())
        limits = Limits(self.settings.max_copy_bytes, self.settings.max_copy_members)
        return SandboxFiles(self._runner, entry, limits)

    async def _acquire(
        self,
        driver: str | None,
        sandbox: str | None,
        workspace: str | Path | None,
        user: str | None,
        ttl: float | None,
        env_pass: Iterable[str],
    ) -> Entry:
        """A sandbox for a caller that needs no engine."""
        request, ephemeral = requests.sandbox_request(
            self.settings,
            self._home,
            driver=driver,
            sandbox=sandbox,
            user=user,
            workspace=workspace,
            file_access="workspace-write",
            ttl=ttl,
            env_pass=env_pass,
        )
        return await self._runner.acquire(self._with_driver(request), ephemeral=ephemeral, preload="")

    # -- sandboxes -----------------------------------------------------------------------------------

    def sandboxes(self) -> list[Row]:
        """What is registered, of all processes of this state root."""
        return self._registry.rows()

    async def destroy(self, name: str) -> None:
        """End the sandbox with this key or id, of whatever process, and wait until it is gone.

        Raises `SandboxNotFound`, or `DestroyFailed` when its owner did not end it in time.
        """
        entry = self._runner.find(name)
        if entry is not None:
            await self._runner.end(entry, "cancelled", "destroyed by the caller")
        else:
            await wishes.destroy(self._registry, self._row(name), self.reap)

    async def revoke(self, name: str, route: str) -> int:
        """Close a route (or ``"all"``) of a sandbox, of whatever process, for good.

        New streams are refused, live ones cut, the tokens of its turns revoked; returns how many streams were
        cut. In this process, routes see no token any more when this first awaits, and nothing of a stream
        arrives after it returned. Raises `SandboxNotFound`, `UsageError` for a route that nobody serves,
        `RevocationUnsupported` when the driver has another way out (L39).
        """
        if route not in ("all", *self._boot.routes):
            raise UsageError(f"there is no route {route!r}", hint=f"One of: all, {', '.join(self._boot.routes)}.")
        entry = self._runner.find(name)
        if entry is not None:
            return await self._runner.revoke(entry, route)
        return await wishes.revoke(self._registry, self._row(name), route)

    async def reap(self) -> list[Reaped]:
        """Remove what dead processes left, now."""
        return await reaper.reap_now(self._registry, self._catalog.driver)

    async def _keep_house(self) -> None:
        passes = 0
        while True:
            try:
                if passes % int(SWEEP / wishes.POLL) in (0, int(SIGHTINGS / wishes.POLL)):
                    await reaper.sweep(self._registry, self._catalog.driver)
                await wishes.grant(self._registry, self._owner.id, self._runner)
            except Exception:
                log.exception("housekeeping failed; it goes on")
            passes += 1
            await asyncio.sleep(wishes.POLL)

    def _row(self, name: str) -> Row:
        row = self._registry.find(name)
        if row is None:
            raise SandboxNotFound(f"no sandbox {name!r}", hint="`stockade sandboxes list` shows what there is.")
        return row

    def _with_driver(self, request: SandboxRequest) -> SandboxRequest:
        """The request with its driver chosen, and loaded: a driver that is broken fails the caller."""
        if not request.driver:
            request = dataclasses.replace(request, driver=self._catalog.choose_driver(request))
        self._catalog.driver(request.driver)
        return request


def _home_key(user: str, pack: str) -> str:
    """The folder of engine homes of a user and a pack: neither name ever becomes a path (L33, L58)."""
    return hashlib.sha256(f"{user}\0{pack}".encode()).hexdigest()[:16]
