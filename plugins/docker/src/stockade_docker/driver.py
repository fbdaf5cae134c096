"""The Docker driver: sandboxes as hardened containers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from aiodocker import Docker
from aiodocker.containers import DockerContainer
from aiodocker.exceptions import DockerError

from stockade.contracts.driver import Driver, Ownership, Reaped
from stockade.errors import CreateFailed
from stockade.model.finding import Finding
from stockade.model.isolation import Isolation
from stockade.model.spec import SandboxSpec
from stockade_docker import check, engine, idmap, image, reap
from stockade_docker.channel import AttachChannel
from stockade_docker.container import LABEL, Person, accounts, configuration, places
from stockade_docker.engine import Facts
from stockade_docker.errors import EngineUnreachable, IsolationMismatch
from stockade_docker.image import Image
from stockade_docker.options import Options
from stockade_docker.sandbox import NO_NETWORK, TAIL, DockerSandbox

log = logging.getLogger("stockade.docker")

BOOT = 30.0
"""Seconds from the container's start to its report."""
REMOVAL = 20.0


class DockerDriver(Driver):
    """Tier 2: the container has no network, no capability and no more than two places to write.

    Options: see `Options`. Those that weaken it lower the tier to 1 and are logged.
    """

    API_VERSION: ClassVar[tuple[int, int]] = (1, 0)

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        self._options = Options.parse(options)
        self._facts: Facts | None = None

    @classmethod
    def diagnose(cls) -> Sequence[Finding]:
        """Whether an engine answers, and whether it has the default image."""
        return asyncio.run(_diagnose())

    async def create(self, spec: SandboxSpec) -> DockerSandbox:
        """See `Driver.create`."""
        options = self._options
        if options.weakenings:
            log.warning("sandbox %s is weakened to tier %d: %s", spec.id, options.tier, ", ".join(options.weakenings))
        if spec.provider_keys:
            log.warning("sandbox %s holds provider keys: %s", spec.id, ", ".join(spec.provider_keys))
        own = places(spec)
        person = Person.of(options)
        async with engine.client(options.host) as docker:
            facts = self._facts = self._facts or await engine.facts(docker)
            found = await image.resolve(docker, options)
        docker = engine.connect(options.host, facts.api)
        making = _Making(spec, options, docker, facts, found, person, own)
        try:
            return await making.make()
        except BaseException as error:
            # What was made is removed, also when the caller is cancelled while that is done.
            await asyncio.shield(asyncio.ensure_future(making.undo()))
            if isinstance(error, engine.BROKEN):
                raise engine.unreachable(docker, error) from error
            if isinstance(error, DockerError):
                raise CreateFailed(
                    f"the Docker engine refuses: {error.message}", sandbox=spec.id, hint=_hint(error)
                ) from error
            raise

    async def reap(self, owned: Ownership) -> list[Reaped]:
        """See `Driver.reap`."""
        if not owned.orphans:
            return []
        try:
            async with engine.client(self._options.host) as docker:
                facts = await engine.facts(docker)
                return [await reap.orphan(docker, facts, one, owned) for one in owned.orphans]
        except EngineUnreachable as error:
            return [Reaped(one.id, False, error.message) for one in owned.orphans]


class _Making:
    """One creation, and the undoing of as much of it as there was."""

    def __init__(
        self,
        spec: SandboxSpec,
        options: Options,
        docker: Docker,
        facts: Facts,
        image: Image,
        person: Person,
        own: Sequence[Path],
    ) -> None:
        self._spec, self._options, self._docker, self._facts = spec, options, docker, facts
        self._image, self._person, self._own = image, person, own
        self._preparing: asyncio.Future[dict[Path, Path]] | None = None
        self._creating: asyncio.Task[DockerContainer] | None = None
        self._channel: AttachChannel | None = None
        self._mounted = False

    async def make(self) -> DockerSandbox:
        spec, person = self._spec, self._person
        for path in self._own:
            if not path.is_dir():
                raise CreateFailed(f"{path} is no directory", sandbox=spec.id, hint="Make it first.")
        # A thread cannot be cancelled, and an order to the engine is not taken back: `undo` waits for both.
        self._preparing = asyncio.ensure_future(asyncio.to_thread(self._prepare))
        sources = await asyncio.shield(self._preparing)
        wanted = configuration(spec, self._options, self._facts, self._image, person, sources)
        self._creating = asyncio.ensure_future(self._docker.containers.create(wanted))
        container = await asyncio.shield(self._creating)
        stream = container.attach(stdin=True, stdout=True, stderr=True)
        self._channel = await AttachChannel.open(stream, spec.run_dir / "log")
        await container.start()
        await self._unmount()
        found = await engine.inspect(self._docker, container.id)
        if found is None:
            raise CreateFailed("the container was removed while it started", sandbox=spec.id)
        report = await self._boot(self._channel)
        if wrong := check.mismatches(wanted, found, report, self._options, person, self._own):
            raise IsolationMismatch(
                f"the container is not what was asked for: {'; '.join(wrong)}", sandbox=spec.id, hint=self._fix(wrong)
            )
        isolation = _attest(spec, self._options, self._image, person)
        return DockerSandbox(spec, self._docker, container, self._channel, isolation, self._facts.id)

    def _prepare(self) -> dict[Path, Path]:
        """The files that are mounted, and where each of the sandbox's directories is mounted from."""
        spec = self._spec
        spec.run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, text in zip(("passwd", "group"), accounts(self._person), strict=True):
            file = spec.run_dir / name
            file.write_text(text)
            file.chmod(0o644)
        if not self._person.swapped:
            return {path: path for path in self._own}
        self._mounted = True
        try:
            mounts = idmap.place(spec.id, self._own, owner=0, inside=self._person.uid)
        except OSError as error:
            raise CreateFailed(
                f"root's files cannot be another user's inside: {error}",
                sandbox=spec.id,
                hint="Run as an ordinary user who may use Docker; or set user = 'root' under [plugin.docker] (tier 1).",
            ) from error
        return dict(zip(self._own, mounts, strict=True))

    async def _boot(self, channel: AttachChannel) -> dict[str, Any]:
        spec = self._spec
        environment = {
            **spec.environment,
            "PATH": self._image.path,
            "STOCKADE_SANDBOX": spec.id,
            "STOCKADE_TIER": str(self._options.tier),
        }
        try:
            async with asyncio.timeout(BOOT):
                report = await channel.boot(environment, [str(path) for path in self._own])
        except (TimeoutError, ConnectionError) as error:
            await channel.drained(1.0)
            said = f"it said nothing for {BOOT:g} s" if isinstance(error, TimeoutError) else str(error)
            raise CreateFailed(
                f"the container did not start: {said}\n{_tail(spec.run_dir / 'log')}".strip(),
                sandbox=spec.id,
                hint=f"Its image must have Python 3.11 or newer as {self._image.python!r}.",
            ) from error
        if missing := report.get("missing"):
            raise CreateFailed(
                f"the image has no stockade: {missing}",
                sandbox=spec.id,
                hint="`stockade image build` makes an image that has it.",
            )
        return report

    def _fix(self, wrong: Sequence[str]) -> str:
        if self._facts.rootless or self._facts.remapped:
            return "This engine maps users (rootless or userns-remap): use one that does not."
        if any("volume" in one for one in wrong):
            return "Use an image without VOLUME."
        return "Is the Docker engine on this machine, and is the image yours?"

    async def _unmount(self) -> None:
        # The container has mounts of its own by now.
        if self._mounted:
            self._mounted = False
            await asyncio.to_thread(idmap.remove, self._spec.id)

    async def undo(self) -> None:
        """Remove the container, also one that comes into being after the cancellation (F53)."""
        if self._preparing is not None:
            await asyncio.wait({self._preparing})
        await self._unmount()
        if self._channel is not None:
            await self._channel.aclose()
        if self._creating is not None:
            await self._discard(self._creating)
        await self._docker.close()

    async def _discard(self, creating: asyncio.Task[DockerContainer]) -> None:
        found = []
        try:
            found.append((await creating).id)
        except (DockerError, *engine.BROKEN):
            # The answer was an error, or none: what there is, the labels tell.
            with contextlib.suppress(DockerError, *engine.BROKEN):
                found += await engine.find(self._docker, f"{LABEL}sandbox={self._spec.id}")
        for container in found:
            if reason := await engine.remove(self._docker, container, seconds=REMOVAL):
                log.error("container %s of sandbox %s is left: %s", container[:12], self._spec.id, reason)


def _attest(spec: SandboxSpec, options: Options, image: Image, person: Person) -> Isolation:
    user = "root, without capabilities" if person.uid == 0 else f"uid {person.uid}"
    return Isolation(
        tier=options.tier,
        processes="container" if options.seccomp == "default" else "container, without seccomp",
        filesystem="read-only, besides state and workspace",
        # Whatever network it is: the driver cannot know what is reached through it.
        network=NO_NETWORK if options.network == "none" else "host",
        user=f"{user} (the caller's files)" if person.swapped else user,
        resources=f"{options.memory // 1024**2} MiB, {options.cpus:g} cpus, {options.pids} pids",
        # The engine masks parts of /proc, so no further one can be mounted, with or without seccomp.
        nested=False,
        provider_key=spec.provider_keys,
        image=image.id,
    )


def _tail(log_file: Path) -> str:
    try:
        return log_file.read_bytes()[-TAIL:].decode(errors="replace").strip()
    except OSError:
        return ""


def _hint(error: DockerError) -> str:
    if "seccomp" in error.message or "cgroup" in error.message:
        return "The engine's machine lacks what the container needs; `docker info` shows its warnings."
    return "`stockade doctor` shows what this host can do."


async def _diagnose() -> list[Finding]:
    try:
        async with engine.client("") as docker:
            facts = await engine.facts(docker)
            found = Finding("docker engine", "ok", f"{facts.version} answers")
            try:
                picture = await image.resolve(docker, Options())
            except CreateFailed as error:
                return [found, Finding("docker image", "warn", error.message, error.hint)]
            return [found, Finding("docker image", "ok", f"{Options().image} is {picture.id[:19]}")]
    except EngineUnreachable as error:
        access = "" if os.geteuid() == 0 else " A user must be in the group docker."
        return [Finding("docker engine", "warn", error.message, error.hint + access)]
