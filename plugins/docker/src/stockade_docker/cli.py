"""``stockade image build``: an image for the Docker driver, from any base that has Python 3.11 or newer."""

from __future__ import annotations

import argparse
import asyncio
import re
import tempfile
from collections.abc import Sequence
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

from aiodocker import Docker
from aiodocker.exceptions import DockerError

from stockade.errors import UsageError
from stockade.settings import Settings
from stockade_docker import build, engine, wheels
from stockade_docker.build import BuildFailed
from stockade_docker.container import NOBODY_OF_ROOT
from stockade_docker.errors import ImageMissing
from stockade_docker.image import PYTHON_LABEL
from stockade_docker.options import DEFAULT_IMAGE, Options

DEFAULT_BASE = "python:3.12-slim"
PLACE = "/opt/stockade"
LEAST = (3, 11)


def configure(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``image``."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    make = actions.add_parser("build", help="make an image with the kernel and engines in it")
    make.add_argument("--engine", action="append", default=[], metavar="NAME", help="an engine to put in; repeatable")
    make.add_argument("--base", default=DEFAULT_BASE, metavar="IMAGE", help=f"(default: {DEFAULT_BASE})")
    make.add_argument("--tag", metavar="NAME", help=f"(default: the setting image, else {DEFAULT_IMAGE})")
    make.add_argument("--pull", action="store_true", help="fetch the base when the engine lacks it")


def run(args: argparse.Namespace) -> int:
    """Build, and print the image's digest."""
    options = Options.parse(Settings.load().options("docker"))
    tag = args.tag or options.image
    if "@" in tag or tag.startswith("sha256:"):
        raise UsageError(f"{tag!r} is no tag", hint="Give one: --tag NAME.")
    dists = wheels.wanted(args.engine)
    print(asyncio.run(make(options.host, dists, args.base, tag, pull=args.pull)))
    return 0


async def make(host: str, dists: Sequence[Distribution], base: str, tag: str, *, pull: bool) -> str:
    """Build an image of these distributions; its id."""
    async with engine.client(host) as docker:
        python = await _python(docker, base, pull=pull)
        with tempfile.TemporaryDirectory(prefix="stockade-image-") as work:
            folder = Path(work, "wheels")
            await asyncio.to_thread(wheels.collect, dists, folder, python)
            archive = Path(work, "context.tar")
            await asyncio.to_thread(build.context, archive, dockerfile(base, dists), {"wheels": folder})
            versions = " ".join(f"{dist.name}={dist.version}" for dist in dists)
            labels = {PYTHON_LABEL: f"{PLACE}/bin/python", "stockade.versions": versions, "stockade.base": base}
            return await build.build(docker, archive, tag, labels)


def dockerfile(base: str, dists: Sequence[Distribution]) -> str:
    """Two stages: the wheels themselves stay out of the image."""
    names = " ".join(dist.name for dist in dists)
    return f"""\
FROM {base} AS build
COPY wheels/ /wheels/
RUN python3 -m venv --without-pip {PLACE} \\
 && {PLACE}/bin/python "$(echo /wheels/pip-*.whl)/pip" install --no-index --find-links /wheels --no-cache-dir {names}

FROM {base}
COPY --from=build {PLACE} {PLACE}
USER {NOBODY_OF_ROOT}:{NOBODY_OF_ROOT}
"""


async def _python(docker: Docker, base: str, *, pull: bool) -> str:
    """The version of the base's Python, as ``3.12``, found by running it."""
    script = "import sys; print('%d.%d' % sys.version_info[:2])"
    order: dict[str, Any] = {
        "Image": base,
        "Entrypoint": ["python3", "-I", "-c", script],
        "Cmd": [],
        "HostConfig": {"NetworkMode": "none", "LogConfig": {"Type": "json-file"}},
    }
    try:
        if pull:
            await docker.images.pull(base)
        container = await docker.containers.create(order)
    except DockerError as error:
        raise ImageMissing(
            f"the base {base!r} cannot be used: {error.message}",
            hint=f"Fetch it: `docker pull {base}`, or --pull. Or name another one with --base.",
        ) from error
    try:
        await container.start()
        await container.wait()
        said = "".join(await container.log(stdout=True, stderr=True)).strip()
    except DockerError as error:
        said = error.message
    finally:
        await engine.remove(docker, container.id, seconds=engine.ANSWER)
    if not re.fullmatch(r"\d+\.\d+", said):
        raise BuildFailed(f"the base {base!r} has no Python: {said}", hint="Name one that has, with --base.")
    if tuple(map(int, said.split("."))) < LEAST:
        raise BuildFailed(f"the base {base!r} has Python {said}", hint="Python 3.11 or newer is needed.")
    return said
