"""One sandbox of the Docker driver: its end, by itself, by the deadline, by destroy, or with its engine."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiodocker import Docker
from aiodocker.containers import DockerContainer
from aiodocker.exceptions import DockerError

from stockade.contracts.driver import Ending, Sandbox
from stockade.errors import DestroyFailed
from stockade.inside.init import EXIT_DEADLINE, EXIT_HANGUP, EXIT_PROTOCOL, EXIT_SILENCE
from stockade.model.isolation import Isolation
from stockade.model.spec import SandboxSpec
from stockade_docker import engine
from stockade_docker.channel import AttachChannel

log = logging.getLogger("stockade.docker")

TAIL = 2000
"""Bytes of the log that errors show."""
PATIENCE = 5.0
"""Seconds in which an engine that does not answer may come back before the sandbox counts as lost."""
LATE = 1.0
"""Seconds after the deadline at which the driver ends what should have ended itself: it may be paused."""
LOOK = 5.0
"""Seconds between two looks at the clock, which may jump."""
REMOVAL = 8.0
KILLED = 137
NO_NETWORK = "channel only"
"""`Isolation.network` of a sandbox that has none."""

_MEANING = {
    EXIT_HANGUP: "the channel to the kernel closed",
    EXIT_SILENCE: "the kernel's pings stopped",
    EXIT_PROTOCOL: "the inside program and the kernel did not understand each other",
}
_ASKED = (0, 143)
"""Exit codes of an inside program that got a SIGTERM."""


@dataclass(frozen=True, slots=True)
class _Exit:
    """What is known of the end. ``code`` is -1 when nobody knows; ``reason`` is why the engine lost it."""

    code: int = -1
    oom: bool = False
    reason: str = ""
    error: str = ""


class DockerSandbox(Sandbox):
    """A running container. Made by `DockerDriver.create`; owns ``docker``, a client of its own."""

    channel: AttachChannel

    def __init__(
        self,
        spec: SandboxSpec,
        docker: Docker,
        container: DockerContainer,
        channel: AttachChannel,
        isolation: Isolation,
        engine_id: str,
    ) -> None:
        self.id = spec.id
        self.channel = channel
        self.isolation = isolation
        self._docker = docker
        self._container = container
        self._engine_id = engine_id
        self._deadline = spec.deadline
        self._log_file: Path = spec.run_dir / "log"
        self._destroyed = False
        self._expired = False
        self._gone = False
        self._destroying = asyncio.Lock()
        self._exit = asyncio.create_task(self._watch(), name=f"stockade-docker-{spec.id}")
        self._timer = asyncio.create_task(self._expire(), name=f"stockade-docker-ttl-{spec.id}")

    @property
    def handle(self) -> Mapping[str, Any]:
        """The container's id, its image, and the engine that has it: another one's silence proves nothing."""
        return {"container": self._container.id, "engine": self._engine_id, "image": self.isolation.image}

    async def wait(self) -> Ending:
        """See `Sandbox.wait`."""
        return self._ending(await asyncio.shield(self._exit))

    async def revoke(self, route: str) -> None:
        """The kernel has cut the streams; without a network there is no other way out."""
        if self.isolation.network != NO_NETWORK:
            await super().revoke(route)

    async def destroy(self, grace: float) -> Ending:
        """See `Sandbox.destroy`."""
        async with self._destroying:
            self._destroyed = True
            if not self._gone:
                await self._destroy(grace)
                self._gone = True
        return self._ending(await asyncio.shield(self._exit))

    async def _destroy(self, grace: float) -> None:
        self._timer.cancel()
        if grace > 0 and not self._exit.done():
            with contextlib.suppress(DockerError, *engine.BROKEN):
                await self._container.kill(signal="SIGTERM")
                await asyncio.wait({self._exit}, timeout=grace)
        reason = await engine.remove(self._docker, self._container.id, seconds=REMOVAL)
        if reason:
            raise DestroyFailed(
                f"sandbox {self.id}: container {self._container.id[:12]} is not removed: {reason}",
                sandbox=self.id,
                hint="The reaper tries again, as soon as the Docker engine answers.",
            )
        await asyncio.wait({self._exit}, timeout=PATIENCE)
        self._exit.cancel()
        await self.channel.aclose()
        await self._docker.close()

    async def _expire(self) -> None:
        """The deadline, for what does not keep it by itself (F69)."""
        while (left := self._deadline + LATE - time.time()) > 0:  # noqa: ASYNC110 - the clock may jump
            await asyncio.sleep(min(left, LOOK))
        self._expired = True
        while not self._exit.done():
            with contextlib.suppress(DockerError, *engine.BROKEN):
                await self._container.kill(signal="SIGKILL")
            await asyncio.wait({self._exit}, timeout=LOOK)

    async def _watch(self) -> _Exit:
        """Wait for the container's end, through restarts of the engine."""
        loop = asyncio.get_running_loop()
        silent_since: float | None = None
        while True:
            try:
                await self._container.wait()
                found = await engine.inspect(self._docker, self._container.id)
            except DockerError as error:
                if error.status == 404:
                    found = None
                else:
                    return _Exit(reason=f"the Docker engine says: {error.message}")
            except engine.BROKEN as error:
                now = loop.time()
                silent_since = silent_since or now
                if now - silent_since > PATIENCE:
                    return _Exit(reason=str(engine.unreachable(self._docker, error).message))
                await asyncio.sleep(0.1)
                continue
            except asyncio.CancelledError:
                return _Exit(reason="nobody waits for it any more")
            if found is None:
                return _Exit(reason="the container was removed by somebody else")
            state = found["State"]
            if state.get("Running") or state.get("Restarting"):
                silent_since = None
                await asyncio.sleep(0.1)
                continue
            await self.channel.drained(1.0)
            self._timer.cancel()
            again = "" if silent_since is None else "the Docker engine was restarted"
            return _Exit(
                int(state.get("ExitCode", -1)), bool(state.get("OOMKilled")), again, str(state.get("Error") or "")
            )

    def _ending(self, exit: _Exit) -> Ending:
        how = f"exit code {exit.code}" if exit.code >= 0 else exit.reason
        if self._destroyed:
            return Ending("destroyed", how)
        if exit.code == EXIT_DEADLINE or (self._expired and exit.code == KILLED):
            return Ending("ttl", f"the deadline was {time.strftime('%H:%M:%S', time.localtime(self._deadline))}")
        words = list(dict.fromkeys([how, *filter(None, (exit.reason, exit.error, _MEANING.get(exit.code, "")))]))
        if exit.code == KILLED and exit.oom:
            return Ending("oom", f"the memory limit of the container was reached ({self.isolation.resources})")
        if exit.code == KILLED and not exit.reason:
            words.append("killed, perhaps for want of memory on the engine's machine")
        tail = self._tail()
        if exit.code in _ASKED:
            words.append("somebody else ended it: the Docker engine was stopped, or `docker stop` was called")
        lost = exit.reason or exit.code in _MEANING or exit.code in _ASKED
        return Ending("lost" if lost else "exited", ", ".join(words) + (f"\n{tail}" if tail else ""))

    def _tail(self) -> str:
        try:
            with self._log_file.open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
                return file.read().decode(errors="replace").strip()
        except OSError:
            return ""
