"""The command line of the inside program, parsed by hand: argparse costs more than all of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

USAGE = """\
usage: stockade sandbox (--stdio | --socket PATH | --fd N) --id ID --state-dir DIR [options]

The program that runs inside a sandbox. Drivers start it; it serves one kernel and ends with it.

  --stdio             frames on stdin and stdout (stdout of everything else goes to stderr)
  --socket PATH       listen on a Unix socket and serve the first connection
  --fd N              frames on an inherited socket
  --id ID             the sandbox's id
  --state-dir DIR     the one directory besides the workspace that is written to; HOME lies in it
  --workspace DIR     where the agent works (default: the state dir's workspace)
  --deadline EPOCH    end at this time, in seconds since the epoch
  --lease SECONDS     end after this long without a frame from the kernel (default: 30)
  --tier N            what the driver attests: 0 no boundary, 1 weak, 2 contained (default: 0)
  --preload M:A       engine to import as soon as the kernel was greeted
"""


DEFAULT_WORKSPACE = "workspace"
"""Within the state dir."""


class BadOptions(ValueError):
    """A flag is wrong; the message says which."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the flags say. ``deadline`` in seconds since the epoch, ``lease`` in seconds."""

    id: str
    state_dir: Path
    workspace: Path
    deadline: float = float("inf")
    lease: float = 30.0
    tier: int = 0
    preload: str = ""
    stdio: bool = False
    socket: str = ""
    fd: int | None = None


_VALUES: dict[str, tuple[str, Callable[[str], Any]]] = {
    "--id": ("id", str),
    "--state-dir": ("state_dir", Path),
    "--workspace": ("workspace", Path),
    "--deadline": ("deadline", float),
    "--lease": ("lease", float),
    "--tier": ("tier", int),
    "--preload": ("preload", str),
    "--socket": ("socket", str),
    "--fd": ("fd", int),
}


def parse(argv: Sequence[str]) -> Options:
    """Options from ``--flag value`` and ``--flag=value``. Raises `BadOptions`."""
    values: dict[str, Any] = {}
    rest = list(argv)
    while rest:
        flag, equals, value = rest.pop(0).partition("=")
        if flag == "--stdio" and not equals:
            values["stdio"] = True
            continue
        if flag not in _VALUES:
            raise BadOptions(f"unknown argument {flag}")
        if not equals:
            if not rest:
                raise BadOptions(f"{flag} needs a value")
            value = rest.pop(0)
        name, convert = _VALUES[flag]
        try:
            values[name] = convert(value)
        except ValueError as error:
            raise BadOptions(f"{flag}: {value!r} is not a number") from error
    if sum((bool(values.get("stdio")), "socket" in values, "fd" in values)) != 1:
        raise BadOptions("exactly one of --stdio, --socket and --fd is needed")
    for name in ("id", "state_dir"):
        if not values.get(name):
            raise BadOptions(f"--{name.replace('_', '-')} is needed")
    if values.get("tier", 0) not in (0, 1, 2):
        raise BadOptions("--tier is 0, 1 or 2")
    if not values.get("lease", 1) > 0:
        raise BadOptions("--lease must be over 0 seconds")
    values["state_dir"] = values["state_dir"].absolute()
    values["workspace"] = values.get("workspace", values["state_dir"] / DEFAULT_WORKSPACE).absolute()
    return Options(**values)
