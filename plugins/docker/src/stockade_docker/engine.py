"""The Docker engine: how it is reached, and what its refusals mean. Foreign errors end here."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiodocker import Docker
from aiodocker.exceptions import DockerError

from stockade_docker.errors import EngineUnreachable

CONNECT = 5.0
"""Seconds to connect."""
ANSWER = 60.0
"""Seconds for an answer that the engine has to work for."""
HINT = "Start it, or say where it is: `host` under [plugin.docker], or the variable DOCKER_HOST."

_NO_CONNECTION = 900

BROKEN = (OSError, aiohttp.ClientError, TimeoutError)
"""What a connection raises; `DockerError` is an answer."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What an engine says of itself. ``id`` is its own for ever; ``cpus`` are its machine's processors."""

    id: str
    version: str
    api: str
    cpus: int
    rootless: bool
    remapped: bool


class _Client(Docker):
    """The library gives a connection that cannot be made the shape of an engine's answer; here it is none."""

    async def _do_query(self, *args: Any, **kwargs: Any) -> aiohttp.ClientResponse:
        try:
            return await super()._do_query(*args, **kwargs)
        except DockerError as error:
            if error.status == _NO_CONNECTION:
                raise ConnectionError(error.message) from error
            raise


def connect(host: str, api: str = "auto") -> Docker:
    """A client with connections of its own. Raises `EngineUnreachable` when no address is known.

    Every sandbox has one: its two long requests must not keep others from the client's pool.
    """
    try:
        return _Client(url=host or None, api_version=api, timeout=aiohttp.ClientTimeout(total=ANSWER, connect=CONNECT))
    except (AssertionError, ValueError, OSError) as error:
        said = f": {error}" if str(error) else ""
        raise EngineUnreachable(f"no Docker engine at {host or 'its usual places'}{said}", hint=HINT) from error


@contextlib.asynccontextmanager
async def client(host: str, api: str = "auto") -> AsyncIterator[Docker]:
    """`connect`, closed afterwards; a broken connection is `EngineUnreachable`."""
    docker = connect(host, api)
    try:
        yield docker
    except BROKEN as error:
        raise unreachable(docker, error) from error
    finally:
        await docker.close()


async def facts(docker: Docker) -> Facts:
    """Ask the engine. Raises `EngineUnreachable`."""
    try:
        info = await docker.system.info()
        version = await docker.version()
    except BROKEN as error:
        raise unreachable(docker, error) from error
    except DockerError as error:
        raise EngineUnreachable(f"the Docker engine refuses to answer: {error.message}", hint=HINT) from error
    options = [str(option) for option in info.get("SecurityOptions") or ()]
    return Facts(
        id=str(info["ID"]),
        version=str(version["Version"]),
        api=docker.api_version,
        cpus=int(info["NCPU"]),
        rootless=any("name=rootless" in option for option in options),
        remapped=any("name=userns" in option for option in options),
    )


def unreachable(docker: Docker, error: BaseException) -> EngineUnreachable:
    """The error for a connection that broke."""
    reason = str(error) or type(error).__name__
    return EngineUnreachable(f"the Docker engine does not answer: {reason}", hint=HINT)


async def inspect(docker: Docker, container: str) -> Mapping[str, Any] | None:
    """What the engine says of a container; ``None`` when there is none. Raises `BROKEN` and `DockerError`."""
    try:
        found: Mapping[str, Any] = await docker.containers.container(container).show()
    except DockerError as error:
        if error.status == 404:
            return None
        raise
    return found


async def find(docker: Docker, label: str) -> list[str]:
    """The ids of the containers with a label (``NAME=VALUE``), in whatever state."""
    found = await docker.containers.list(all=True, filters={"label": [label]})
    return [container.id for container in found]


async def remove(docker: Docker, container: str, *, seconds: float) -> str:
    """End and remove a container and its anonymous volumes; why it is still there, or nothing.

    What the engine answers is not taken for the truth: an inspect decides.
    """
    reason = ""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    pause = 0.02
    while True:
        try:
            await docker.containers.container(container).delete(force=True, v=True)
        except DockerError as error:
            reason = error.message
        except BROKEN as error:
            reason = f"the Docker engine does not answer: {error or type(error).__name__}"
        try:
            if await inspect(docker, container) is None:
                return ""
        except DockerError as error:
            reason = error.message
        except BROKEN as error:
            reason = f"the Docker engine does not answer: {error or type(error).__name__}"
        if loop.time() >= end:
            return reason or "it is still there"
        await asyncio.sleep(pause)
        pause = min(pause * 2, 1.0)
