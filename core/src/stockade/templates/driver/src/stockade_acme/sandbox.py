"""One sandbox: waits for its end, or makes it end."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stockade import Channel, Sandbox
from stockade.contracts.driver import Ending
from stockade.errors import DestroyFailed
from stockade.inside import proc, tree
from stockade.inside.init import EXIT_DEADLINE, EXIT_HANGUP, EXIT_PROTOCOL, EXIT_SILENCE
from stockade.inside.proc import Process
from stockade.model.isolation import Isolation
from stockade.model.spec import SandboxSpec


class AcmeSandbox(Sandbox):
    """A process tree. Made by `AcmeDriver.create`."""

    def __init__(
        self, spec: SandboxSpec, process: subprocess.Popen[bytes], channel: Channel, isolation: Isolation
    ) -> None:
        self.id = spec.id
        self.channel = channel
        self.isolation = isolation
        self._process = process
        self._log = spec.run_dir / "log"
        self._destroyed = False
        self._destroying = asyncio.Lock()
        self._exit = asyncio.create_task(tree.exit_code(process))

    @property
    def handle(self) -> Mapping[str, Any]:
        """The outermost process, for a person who reads the registry."""
        return {"pid": self._process.pid}

    async def wait(self) -> Ending:
        """See `Sandbox.wait`."""
        code = await asyncio.shield(self._exit)
        if self._destroyed:
            return Ending("destroyed", f"exit code {code}")
        if code == EXIT_DEADLINE:
            return Ending("ttl", "the deadline passed")
        lost = code < 0 or code in (EXIT_HANGUP, EXIT_SILENCE, EXIT_PROTOCOL)
        return Ending("lost" if lost else "exited", f"exit code {code}\n{self._last_words()}".strip())

    async def destroy(self, grace: float) -> Ending:
        """See `Sandbox.destroy`."""
        async with self._destroying:
            self._destroyed = True
            if not self._exit.done():
                self._ask()
                await asyncio.wait({self._exit}, timeout=grace)
            if left := await end(self.id):
                raise DestroyFailed(
                    f"sandbox {self.id}: still running after SIGKILL: {left}",
                    sandbox=self.id,
                    hint="A process is stuck in the operating system; the reaper tries again.",
                )
            await self.channel.aclose()
        return await self.wait()

    async def revoke(self, route: str) -> None:
        """Nothing to do: the kernel has cut the streams, and this driver opened no other way out."""

    def _ask(self) -> None:
        """SIGTERM to the first process within too: unshare itself ignores it while it waits for its child."""
        for process in proc.snapshot().values():
            if self._process.pid in (process.pid, process.parent):
                proc.send(process, signal.SIGTERM)

    def _last_words(self) -> str:
        try:
            return self._log.read_text(errors="replace")[-2000:]
        except OSError:
            return ""


async def end(sandbox: str) -> list[Process]:
    """Kill what was started for this sandbox, and look until it is gone; what could not be killed.

    It is unshare and the first processes within: the rest of the namespace ends with them.
    """

    def find() -> dict[int, Process]:
        return {pid: process for pid, process in proc.snapshot().items() if _is_of(pid, sandbox)}

    return await tree.end(find, grace=0)


def _is_of(pid: int, sandbox: str) -> bool:
    try:
        words = Path("/proc", str(pid), "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False  # it has ended
    # The very words that the driver starts it with; the id alone may be in anybody's arguments.
    wanted = [b"-m", b"stockade.inside", b"--id", sandbox.encode()]
    return any(words[at : at + 4] == wanted for at in range(len(words)))
