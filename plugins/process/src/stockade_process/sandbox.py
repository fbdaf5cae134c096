"""One sandbox of the process driver."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stockade.contracts.channel import Channel
from stockade.contracts.driver import Ending, Sandbox
from stockade.errors import DestroyFailed
from stockade.inside import proc, tree
from stockade.inside.init import EXIT_DEADLINE, EXIT_HANGUP, EXIT_PROTOCOL, EXIT_SILENCE
from stockade.model.isolation import Isolation
from stockade_process import reap

log = logging.getLogger("stockade.process")

TAIL = 2000
"""Bytes of the log that errors show."""

_MEANING = {
    EXIT_HANGUP: "the channel to the kernel closed",
    EXIT_SILENCE: "the kernel's pings stopped",
    EXIT_PROTOCOL: "the inside program and the kernel did not understand each other",
}


class ProcessSandbox(Sandbox):
    """A process tree. Made by `ProcessDriver.create`."""

    def __init__(
        self,
        id: str,
        process: subprocess.Popen[bytes],
        channel: Channel,
        isolation: Isolation,
        log_file: Path,
        deadline: float,
    ) -> None:
        self.id = id
        self.channel = channel
        self.isolation = isolation
        self._process = process
        self._identity = proc.read(process.pid)
        self._log_file = log_file
        self._deadline = deadline
        self._destroyed = False
        self._gone = False
        self._destroying = asyncio.Lock()
        self._exit = asyncio.create_task(tree.exit_code(process), name=f"stockade-process-{id}")

    @property
    def handle(self) -> Mapping[str, Any]:
        """Pid and start time of the outermost process."""
        return {"pid": self._process.pid, "start": self._identity.start if self._identity else 0}

    async def wait(self) -> Ending:
        """See `Sandbox.wait`."""
        code = await asyncio.shield(self._exit)
        return self._ending(code)

    async def revoke(self, route: str) -> None:
        """The kernel has cut the streams, and this driver opened nothing else.

        The agent of a tier 0 sandbox has the host's network all the same: `Isolation.network` says so.
        """

    async def destroy(self, grace: float) -> Ending:
        """See `Sandbox.destroy`."""
        async with self._destroying:
            self._destroyed = True
            if not self._gone:
                await self._destroy(grace)
                self._gone = True
        return self._ending(await asyncio.shield(self._exit))

    async def _destroy(self, grace: float) -> None:
        if not self._exit.done():
            await asyncio.to_thread(self._ask)
            await asyncio.wait({self._exit}, timeout=grace)
        # Without a namespace a tree can outlive its init, and init is what holds it together: so the whole
        # tree at once, and again, until a look finds nothing.
        left = await reap.end(self.id, grace=0)
        if not left:
            done, _ = await asyncio.wait({self._exit}, timeout=1)
            if not done:
                self._process.kill()
                done, _ = await asyncio.wait({self._exit}, timeout=5)
            if done:
                await self.channel.aclose()
                return
        pids = ", ".join(str(process.pid) for process in left) or str(self._process.pid)
        raise DestroyFailed(
            f"sandbox {self.id}: still running after SIGKILL: pid {pids}",
            sandbox=self.id,
            hint="A process is stuck in the operating system (often a dead network file system); the reaper retries.",
        )

    def _ask(self) -> None:
        """SIGTERM to the init: ``unshare`` itself ignores it while it waits for its child (L42)."""
        table = proc.snapshot()
        children = [process for process in table.values() if process.parent == self._process.pid]
        wrapped = self.isolation.processes == "pid-namespace"
        if wrapped and children:
            for child in children:
                proc.send(child, signal.SIGTERM)
        elif self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()

    def _ending(self, code: int) -> Ending:
        tail = self._tail()
        if self._destroyed:
            return Ending("destroyed", f"exit code {code}")
        if code == EXIT_DEADLINE:
            return Ending("ttl", f"the deadline was {time.strftime('%H:%M:%S', time.localtime(self._deadline))}")
        if code == 0:
            return Ending("exited", "exit code 0")
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        if code in _MEANING:
            how += f", {_MEANING[code]}"
        elif code in (-signal.SIGKILL, 128 + signal.SIGKILL):
            how += ", perhaps out of memory: see the host's kernel log"
        return Ending("lost" if code < 0 or code in _MEANING else "exited", how + (f"\n{tail}" if tail else ""))

    def _tail(self) -> str:
        try:
            with self._log_file.open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
                return file.read().decode(errors="replace").strip()
        except OSError:
            return ""
