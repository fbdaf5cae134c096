"""Building images on an engine: a Dockerfile and files, without network."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
from aiodocker import Docker
from aiodocker.exceptions import DockerError

from stockade.errors import StockadeError
from stockade_docker.engine import BROKEN, unreachable

LIMIT = 1800.0
"""Seconds for one build."""


class BuildFailed(StockadeError):
    """The engine could not build the image."""

    code = "image_build_failed"


def context(archive: Path, dockerfile: str, files: Mapping[str, Path]) -> None:
    """Write a build's input: the same input gives the same bytes, so that the engine's cache holds.

    ``files`` says under which name each file or folder goes in.
    """
    with tarfile.open(archive, "w") as tar:
        info = tarfile.TarInfo("Dockerfile")
        info.size = len(dockerfile.encode())
        tar.addfile(info, io.BytesIO(dockerfile.encode()))
        for name, path in sorted(files.items()):
            for inner in (path, *sorted(path.rglob("*"))) if path.is_dir() else (path,):
                if "__pycache__" not in inner.parts:
                    tar.add(inner, str(Path(name, inner.relative_to(path))), recursive=False, filter=_anonymous)


async def build(docker: Docker, archive: Path, tag: str, labels: Mapping[str, str]) -> str:
    """Build and tag; the image's id. Raises `BuildFailed` with the engine's own words, `EngineUnreachable`."""
    params = {"t": tag, "networkmode": "none", "rm": "1", "forcerm": "1", "labels": json.dumps(dict(labels))}
    said: list[str] = []
    try:
        with archive.open("rb") as file:
            async with docker._query(
                "build",
                "POST",
                params=params,
                data=file,
                headers={"content-type": "application/x-tar"},
                timeout=aiohttp.ClientTimeout(total=LIMIT),
            ) as response:
                async for line in response.content:
                    for told in _messages(line):
                        if "error" in told:
                            raise BuildFailed(
                                f"image {tag!r} cannot be built: {told['error']}\n{''.join(said)[-2000:]}".strip(),
                                hint="The base needs Python 3.11 or newer, with venv.",
                            )
                        said.append(str(told.get("stream", "")))
        found = await docker.images.inspect(tag)
    except BROKEN as error:
        raise unreachable(docker, error) from error
    except DockerError as error:
        raise BuildFailed(f"image {tag!r} cannot be built: {error.message}", hint="Is the base there?") from error
    return str(found["Id"])


def _messages(line: bytes) -> Iterator[dict[str, Any]]:
    try:
        told = json.loads(line)
    except ValueError:
        return
    if isinstance(told, dict):
        yield told


def _anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mtime = 0
    info.mode |= 0o444 | (0o111 if info.isdir() else 0)
    return info
