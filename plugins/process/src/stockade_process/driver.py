"""The process driver: sandboxes as process trees on this host."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from stockade.contracts.driver import Driver, Ownership, Reaped
from stockade.errors import CreateFailed, SettingsError
from stockade.model.finding import Finding
from stockade.model.isolation import Isolation
from stockade.model.spec import SandboxSpec
from stockade.wire.channels import StreamChannel
from stockade_process import reap
from stockade_process.namespaces import Probe, probe, wrapper
from stockade_process.sandbox import ProcessSandbox

log = logging.getLogger("stockade.process")

MODES = ("auto", "require", "off")
Mode = Literal["auto", "require", "off"]


class ProcessDriver(Driver):
    """Tier 0: the sandbox's processes can do what this user can; what they get is a clean environment, and an end.

    Option ``namespaces``: ``auto`` puts each sandbox into a PID namespace of its own where the host allows
    it, ``require`` refuses where it does not, ``off`` never does. A namespace makes the end of the tree
    certain; it does not raise the tier (L40).
    """

    API_VERSION: ClassVar[tuple[int, int]] = (1, 0)

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        unknown = set(options) - {"namespaces"}
        if unknown:
            raise SettingsError(
                f"[plugin.process] has no option {', '.join(sorted(unknown))}", hint="Its only option is namespaces."
            )
        mode = options.get("namespaces", "auto")
        if mode not in MODES:
            raise SettingsError(f"[plugin.process] namespaces = {mode!r}", hint=f"One of {', '.join(MODES)}.")
        self._mode: Mode = mode
        self._warned = False

    @classmethod
    def diagnose(cls) -> Sequence[Finding]:
        """Whether a PID namespace can be made here, and another one within it (L41)."""
        found = probe()
        one = Finding(
            "namespaces",
            "ok" if found.available else "warn",
            "a sandbox gets a PID namespace" if found.available else f"refused: {found.reason}",
            "" if found.available else found.fix,
        )
        two = Finding(
            "nested namespaces",
            "ok" if found.nested else "warn",
            "an agent's own sandbox can start within" if found.nested else f"refused: {found.reason}",
            "" if found.nested else found.fix,
        )
        return one, two

    async def create(self, spec: SandboxSpec) -> ProcessSandbox:
        """See `Driver.create`."""
        wrapped, found = await self._decide(spec)
        if spec.provider_keys:
            log.warning("sandbox %s holds provider keys: %s", spec.id, ", ".join(spec.provider_keys))
        isolation = Isolation(
            tier=0,
            processes="pid-namespace" if wrapped else "subreaper",
            filesystem="host",
            network="host",
            user="same as the kernel's",
            resources="unlimited",
            nested=found.nested if wrapped else found.available,
            provider_key=spec.provider_keys,
        )
        try:
            process, ours, log_file = _start(spec, [*(wrapper() if wrapped else ()), *_command()])
        except OSError as error:
            raise CreateFailed(f"cannot start a process: {error}", sandbox=spec.id) from error
        channel: StreamChannel | None = None
        try:
            channel = await StreamChannel.from_socket(ours)
            return ProcessSandbox(spec.id, process, channel, isolation, log_file, spec.deadline)
        except BaseException:
            ours.close()
            process.kill()
            await asyncio.shield(reap.end(spec.id, grace=0))
            process.wait()
            raise

    async def _decide(self, spec: SandboxSpec) -> tuple[bool, Probe]:
        """Whether to wrap, and what the host allows."""
        found = await asyncio.to_thread(probe)
        if self._mode == "off":
            return False, found
        if self._mode == "require":
            if not found.available:
                raise CreateFailed(
                    f"namespaces are required and this host refuses them: {found.reason}",
                    sandbox=spec.id,
                    hint=f"{found.fix}  Or set namespaces = 'auto' under [plugin.process].",
                )
            wrapped = True
        else:
            wrapped = found.nested
        if not found.nested and not self._warned:
            self._warned = True
            consequence = (
                "an agent that makes a sandbox of its own (Codex with bubblewrap) cannot start in it"
                if wrapped
                else "a sandbox's processes are held together by a subreaper only, and see all of this host's"
            )
            log.warning("namespaces: %s. So %s. Fix: %s", found.reason, consequence, found.fix)
        return wrapped, found

    async def reap(self, owned: Ownership) -> list[Reaped]:
        """See `Driver.reap`."""
        return [await self._reap(orphan.id, owned) for orphan in owned.orphans]

    async def _reap(self, id: str, owned: Ownership) -> Reaped:
        if id in owned.live:
            return Reaped(id, False, "it has a live owner")
        if not reap.ID.fullmatch(id):
            return Reaped(id, False, "its id is malformed")
        found = await asyncio.to_thread(reap.find, id)
        left = await reap.end(id, grace=1.0)
        if left:
            return Reaped(id, False, f"still running: {', '.join(str(process.pid) for process in left)}")
        return Reaped(id, True, f"{len(found)} processes ended" if found else "nothing of it ran")


def _command() -> list[str]:
    # Isolated: neither the workspace nor PYTHON* variables decide what is imported.
    return [sys.executable, "-I", "-m", "stockade.inside"]


def _start(spec: SandboxSpec, command: list[str]) -> tuple[subprocess.Popen[bytes], socket.socket, Any]:
    """Start the process, without a wait in between so that nothing is left over; our end and the log's path."""
    spec.run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    log_file = spec.run_dir / "log"
    ours, theirs = socket.socketpair()
    try:
        with theirs, open(os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as output:
            arguments = spec.inside_args(tier=0)
            process = subprocess.Popen(
                # The id first: `reap` knows the process by it.
                [*command, *arguments, "--fd", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**spec.environment, "STOCKADE_SANDBOX": spec.id, "STOCKADE_TIER": "0"},
                cwd="/",
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
    except BaseException:
        ours.close()
        raise
    return process, ours, log_file
