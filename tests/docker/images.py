"""Images for the tests: a Debian of debootstrap, made once and kept, and Stockade on top."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from aiodocker import Docker

import stockade
from stockade_docker import build

BASE = "stockade-tests:base"
PLAIN = "stockade-tests:plain"
PACKAGES = "/usr/lib/python3/dist-packages"
UNNEEDED = ("./usr/share/doc", "./usr/share/locale", "./usr/share/man", "./var/cache", "./var/lib/apt", "./dev")


def base_tar() -> Path:
    """A minimal Debian with Python 3.11, as a tar file. The first time it takes about a minute, and network."""
    folder = Path(tempfile.gettempdir(), f"stockade-tests-{os.geteuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.geteuid():
        raise RuntimeError(f"{folder} is somebody else's")
    tar = folder / "bookworm.tar"
    if not tar.exists():
        with tempfile.TemporaryDirectory(dir=folder) as root:
            command = ["debootstrap", "--variant=minbase", "--include=python3", "bookworm", f"{root}/debian"]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"debootstrap failed: {done.stdout[-1000:]}{done.stderr[-1000:]}")
            exclude = [f"--exclude={name}/*" for name in UNNEEDED]
            subprocess.run(["tar", "-C", f"{root}/debian", *exclude, "-cf", f"{root}/tar", "."], check=True)
            shutil.move(f"{root}/tar", tar)
    return tar


async def ensure(docker: Docker, tag: str, packages: Iterable[Path] = (), lines: Iterable[str] = ()) -> str:
    """An image with the kernel and some Python packages (folders) on top of the base; its id."""
    names = {name for image in await docker.images.list() for name in image["RepoTags"] or ()}
    if BASE not in names:
        repo, _, version = BASE.partition(":")
        with base_tar().open("rb") as file:
            async with docker._query(
                "images/create", "POST", params={"fromSrc": "-", "repo": repo, "tag": version}, data=file
            ) as answer:
                await answer.read()
    text = "\n".join(
        [
            f"FROM {BASE}",
            f"COPY site/ {PACKAGES}/",
            # As an installed package is: the root is read-only, so nothing would be kept of a compilation.
            f"RUN python3 -m compileall -q {PACKAGES} || true",
            *lines,
            "",
        ]
    )
    with tempfile.NamedTemporaryFile() as archive:
        folders = (Path(stockade.__file__).parent, *packages)
        build.context(Path(archive.name), text, {f"site/{folder.name}": folder for folder in folders})
        return await build.build(docker, Path(archive.name), tag, {})
