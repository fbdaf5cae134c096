"""Collecting on the host what goes into an image: the kernel's and the engines' wheels, and all that they need."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import Distribution, EntryPoint, distribution, distributions, entry_points
from pathlib import Path
from urllib.parse import unquote, urlsplit

from stockade.errors import UsageError
from stockade_docker.build import BuildFailed

PIP_LIMIT = 900.0
"""Seconds for one call of pip."""


def wanted(engines: Iterable[str]) -> list[Distribution]:
    """The distributions that bring the kernel and these engines. Raises `UsageError`."""
    known: dict[str, EntryPoint] = {entry.name: entry for entry in entry_points(group="stockade.engines")}
    found = [distribution("stockade")]
    for name in engines:
        entry = known.get(name)
        if entry is None or entry.dist is None:
            raise UsageError(
                f"no engine {name!r} is installed here",
                hint=f"Installed are: {', '.join(sorted(known)) or 'none'}. Install it first: stockade[{name}].",
            )
        found.append(entry.dist)
    return found


def collect(dists: Sequence[Distribution], folder: Path, python: str) -> None:
    """Put wheels for Python ``python`` (as ``3.12``) into a new ``folder``, in the versions that are installed here.

    A distribution that is installed from a folder (editable) is built from that folder.
    """
    folder.mkdir()
    local = [source for dist in dists if (source := _source(dist))]
    if local:
        _pip("wheel", "--no-deps", "--wheel-dir", str(folder), *map(str, local))
    names = {dist.name for dist in dists if _source(dist)}
    pins = folder.parent / "pins.txt"
    pins.write_text("".join(f"{d.name}=={d.version}\n" for d in distributions() if not _source(d)))
    built = [str(path) for path in sorted(folder.glob("*.whl"))]
    named = [f"{dist.name}=={dist.version}" for dist in dists if dist.name not in names]
    _pip(
        "download", "--dest", str(folder), "--find-links", str(folder), "--constraint", str(pins),
        "--only-binary=:all:", "--python-version", python, *built, *named, "pip",
    )  # fmt: skip


def _source(dist: Distribution) -> Path | None:
    """The folder that a distribution is installed from, if it is one."""
    told = dist.read_text("direct_url.json")
    url = json.loads(told) if told else {}
    return Path(unquote(urlsplit(url["url"]).path)) if "dir_info" in url else None


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PIP_LIMIT)
        said, failed = done.stderr.strip()[-1000:], bool(done.returncode)
    except (OSError, subprocess.TimeoutExpired) as error:
        said, failed = str(error), True
    if failed:
        raise BuildFailed(f"wheels cannot be collected: {said}", hint="pip and its package index are needed for this.")
