"""Makes sandboxes: starts the inside program, and ends what earlier kernels left."""

from __future__ import annotations

import asyncio
import functools
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, ClassVar

from stockade import Driver
from stockade.contracts.driver import Ownership, Reaped
from stockade.errors import CreateFailed, SettingsError
from stockade.model.isolation import Isolation
from stockade.model.spec import SandboxSpec
from stockade.wire.channels import StreamChannel
from stockade_acme.sandbox import AcmeSandbox, end

# The first process within is PID 1 of a namespace: it ends with unshare, and everything in there ends with it.
UNSHARE = ["unshare", "--user", "--map-current-user", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]


class AcmeDriver(Driver):
    """A sandbox is a process tree of this host, in a PID namespace. Tier 0: it has the host's files and network."""

    API_VERSION: ClassVar[tuple[int, int]] = (1, 0)

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        if options:
            raise SettingsError(f"[plugin.acme] has no option {', '.join(options)}", hint="Remove the table.")

    async def create(self, spec: SandboxSpec) -> AcmeSandbox:
        """See `Driver.create`. The kernel greets the program itself, and gives up when nothing answers."""
        try:
            nested = await asyncio.to_thread(_can_nest)
            process, ours = _start(spec)
        except (OSError, subprocess.TimeoutExpired) as error:
            hint = "The driver needs unshare (package util-linux)."
            raise CreateFailed(f"cannot start a process: {error}", sandbox=spec.id, hint=hint) from error
        # What is said here is what is so: each word is shown to people, and engines act on the tier.
        isolation = Isolation(
            tier=0,
            processes="pid-namespace",
            filesystem="host",
            network="host",
            user="same as the kernel's",
            resources="unlimited",
            nested=nested,
            provider_key=spec.provider_keys,
        )
        try:
            return AcmeSandbox(spec, process, await StreamChannel.from_socket(ours), isolation)
        except BaseException:
            # Also when the creation is cancelled: nothing of it may be left.
            ours.close()
            await asyncio.shield(end(spec.id))
            process.poll()
            raise

    async def reap(self, owned: Ownership) -> list[Reaped]:
        """See `Driver.reap`. What runs is found by what it is, never by the pid that a record names."""
        answers = []
        for orphan in owned.orphans:
            if orphan.id in owned.live:
                answers.append(Reaped(orphan.id, False, "it has a live owner"))
            elif left := await end(orphan.id):
                answers.append(Reaped(orphan.id, False, f"still running: {left}"))
            else:
                answers.append(Reaped(orphan.id, True, "nothing of it runs"))
        return answers


def _start(spec: SandboxSpec) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """The outermost process, and our end of the pipe. Without an await, so that no cancellation comes between."""
    # Isolated: neither the workspace nor a variable decides what Python imports.
    command = [*UNSHARE, sys.executable, "-I", "-m", "stockade.inside", *spec.inside_args(tier=0)]
    spec.run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    ours, theirs = socket.socketpair()
    try:
        log = os.open(spec.run_dir / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with theirs, open(log, "ab") as output:
            process = subprocess.Popen(
                [*command, "--fd", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=dict(spec.environment),
                cwd="/",
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
    except BaseException:
        ours.close()
        raise
    return process, ours


@functools.cache
def _can_nest() -> bool:
    """Whether an agent can make a namespace of its own in a sandbox: found out by doing it, once."""
    return subprocess.run([*UNSHARE, *UNSHARE, "true"], capture_output=True, timeout=10, check=False).returncode == 0
