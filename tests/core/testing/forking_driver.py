"""A real driver for tests that needs many sandboxes: it forks the tests' own process, which is ten times as fast.

Tier 0, as the process driver; an example of how little a driver is. Its faulty children are in `faulty_drivers`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import socket
import subprocess
import sys
import traceback
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stockade.contracts.channel import Channel
from stockade.contracts.driver import Driver, Ending, Ownership, Reaped, Sandbox
from stockade.inside import proc, program, tree
from stockade.inside.init import EXIT_DEADLINE
from stockade.inside.main import main
from stockade.inside.proc import Process
from stockade.model.isolation import Isolation
from stockade.model.spec import SandboxSpec
from stockade.wire.channels import StreamChannel

PRELOADED = program
"""Imported here, the children need not."""


def find(id: str) -> dict[int, Process]:
    """Everything of a sandbox: what has its id on the command line or in the environment, and descendants."""
    table = proc.snapshot()
    tops = [pid for pid in table if f"\0--id\0{id}\0".encode() in command_line(pid)]
    return proc.marked(f"STOCKADE_SANDBOX={id}".encode(), table, tops)


def inner(id: str) -> dict[int, Process]:
    """The same without the init, which holds the rest together as long as it lives."""
    found = find(id)
    return {pid: process for pid, process in found.items() if process.parent in found}


async def end(id: str, grace: float = 0) -> list[Process]:
    """End it; what could not be ended."""
    await tree.end(lambda: inner(id), grace=grace)
    return await tree.end(lambda: find(id), grace=0)


class ForkingSandbox(Sandbox):
    """A forked process and its descendants."""

    def __init__(self, spec: SandboxSpec, pid: int, channel: Channel, isolation: Isolation) -> None:
        self.id = spec.id
        self.spec = spec
        self.channel = channel
        self.isolation = isolation
        self.pid = pid
        self.destroyed = False
        self.exit = asyncio.create_task(asyncio.to_thread(_wait, pid))

    @property
    def handle(self) -> Mapping[str, Any]:
        return {"pid": self.pid, "log": str(self.spec.run_dir / "log")}

    async def wait(self) -> Ending:
        code = await asyncio.shield(self.exit)
        if self.destroyed:
            return Ending("destroyed")
        file = self.spec.run_dir / "log"
        log = file.read_text() if file.exists() else ""
        return Ending("ttl" if code == EXIT_DEADLINE else "exited", f"exit code {code}\n{log}")

    async def destroy(self, grace: float) -> Ending:
        self.destroyed = True
        if not self.exit.done():
            self.terminate()
            await asyncio.wait({self.exit}, timeout=grace)
        await end(self.id)
        await asyncio.wait({self.exit})
        await self.channel.aclose()
        return Ending("destroyed")

    def terminate(self) -> None:
        """Ask it to end."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)

    async def revoke(self, route: str) -> None:
        return


class ForkingDriver(Driver):
    """See the module."""

    sandbox: type[ForkingSandbox] = ForkingSandbox
    keeps_files = False
    """Whether the files that are open here stay open inside."""

    async def create(self, spec: SandboxSpec) -> ForkingSandbox:
        ours, theirs = socket.socketpair()
        isolation = Isolation(0, "subreaper", "host", "host", "same", "unlimited", _nested(), spec.provider_keys)
        pid = _fork(spec, theirs, self.keeps_files)
        try:
            return self.sandbox(spec, pid, await StreamChannel.from_socket(ours), isolation)
        except BaseException:
            os.kill(pid, signal.SIGKILL)
            await asyncio.shield(end(spec.id))
            raise

    async def reap(self, owned: Ownership) -> list[Reaped]:
        return [await self._reap(orphan.id, owned) for orphan in owned.orphans]

    async def _reap(self, id: str, owned: Ownership) -> Reaped:
        if id in owned.live:
            return Reaped(id, False, "it has an owner")
        return Reaped(id, not await end(id))


def _fork(spec: SandboxSpec, theirs: socket.socket, keeps_files: bool) -> int:
    with warnings.catch_warnings(), theirs:
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads; the child touches none
        pid = os.fork()
        if pid == 0:
            _become(spec, theirs.fileno(), keeps_files)
    return pid


def _become(spec: SandboxSpec, descriptor: int, keeps_files: bool) -> None:
    """Run the inside program as if it were a program of its own; never returns."""
    code = 1
    try:
        os.setsid()
        log = os.open(spec.run_dir / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for number, source in enumerate((os.open(os.devnull, os.O_RDONLY), log, log)):
            os.dup2(source, number)
        os.dup2(descriptor, 3)
        for name in os.listdir("/proc/self/fd"):
            if int(name) > 3 and not (keeps_files and os.path.isfile(f"/proc/self/fd/{name}")):
                with contextlib.suppress(OSError):
                    os.close(int(name))
        logging.getLogger().handlers.clear()
        sys.stdout = sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
        os.environ.clear()
        os.environ.update(spec.environment)
        words = [*spec.inside_args(tier=0), "--fd", "3"]
        _rename(["stockade.inside", *words])
        code = main(words)
    except SystemExit as error:
        code = int(error.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _rename(words: list[str]) -> None:
    """Write another command line over this process's own, where others read it, as far as there is room."""
    fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    start, stop = int(fields[45]), int(fields[46])
    line = b"".join(word.encode() + b"\0" for word in words)[: stop - start - 1]
    ctypes.memset(start, 0, stop - start)
    ctypes.memmove(start, line, len(line))


def command_line(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/cmdline", "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return b""


def _wait(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


_found: list[bool] = []


def _nested() -> bool:
    """Found out once, by trying it in another process."""
    if not _found:
        # Only now: a kit's modules are loaded by the kit, so that pytest rewrites their assertions.
        from stockade.testing.driver.evidence import NESTED

        done = subprocess.run([sys.executable, "-I", "-S", "-c", NESTED], capture_output=True, check=True)
        _found.append(done.stdout.strip() == b"true")
    return _found[0]
