"""Which image a sandbox is made from: by its content, never by what a tag says later."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aiodocker import Docker
from aiodocker.exceptions import DockerError

from stockade_docker.engine import BROKEN, unreachable
from stockade_docker.errors import ImageMissing, ImageRefused
from stockade_docker.options import DEFAULT_IMAGE, Options

PYTHON_LABEL = "stockade.python"
"""An image's own word on where its Python is, the one that has ``stockade``."""
FALLBACK_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_DIGEST = re.compile(r"(.+@)?sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Image:
    """``id`` is the digest of the image's configuration, which names its layers: what containers are made from."""

    id: str
    python: str
    path: str
    volumes: tuple[str, ...]


async def resolve(docker: Docker, options: Options) -> Image:
    """The image of the settings. Raises `ImageMissing`, `ImageRefused`, `EngineUnreachable`."""
    name = options.image
    if options.require_digest and not _DIGEST.fullmatch(name):
        raise ImageRefused(
            f"image {name!r} is named by a tag, and require_digest is set",
            hint="Name it by digest, as `docker image inspect -f '{{.Id}}' IMAGE` prints it: sha256:…",
        )
    try:
        found = await _inspect(docker, name)
        if found is None and options.pull == "missing":
            await docker.images.pull(name)
            found = await _inspect(docker, name)
    except BROKEN as error:
        raise unreachable(docker, error) from error
    except DockerError as error:
        raise ImageMissing(f"image {name!r} cannot be used: {error.message}", hint=_ways(name)) from error
    if found is None:
        raise ImageMissing(f"the Docker engine has no image {name!r}", hint=_ways(name))
    config = found.get("Config") or {}
    labels = config.get("Labels") or {}
    variables = dict(v.partition("=")[::2] for v in config.get("Env") or ())
    return Image(
        id=str(found["Id"]),
        python=str(labels.get(PYTHON_LABEL) or "python3"),
        path=variables.get("PATH") or FALLBACK_PATH,
        volumes=tuple(sorted(config.get("Volumes") or ())),
    )


async def _inspect(docker: Docker, name: str) -> Mapping[str, Any] | None:
    try:
        found: Mapping[str, Any] = await docker.images.inspect(name)
    except DockerError as error:
        if error.status == 404:
            return None
        raise
    return found


def _ways(name: str) -> str:
    build = "stockade image build --engine NAME" + ("" if name == DEFAULT_IMAGE else f" --tag {name}")
    return f"Make it: `{build}`. Or fetch it: `docker pull {name}` (pull = 'missing' under [plugin.docker] does so)."
