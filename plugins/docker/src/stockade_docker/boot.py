"""The first code in a container. It is sent through the channel, so it needs nothing of the image but Python.

Standard library only. It has what must not be in the container's configuration, the environment, reports
what it sees of its surroundings, and becomes the inside program.
"""

from __future__ import annotations

import json
import os
import struct
import sys
from collections.abc import Iterator
from typing import Any


def write(data: bytes) -> None:
    """All of it to the channel."""
    while data:
        data = data[os.write(1, data) :]


def status() -> dict[str, Any]:
    """User, groups, capabilities, seccomp: ``/proc/self/status``."""
    with open("/proc/self/status") as file:
        fields = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    capabilities = {name: fields[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}
    return {
        "uids": fields["Uid"].split(),
        "gids": fields["Gid"].split(),
        "groups": fields["Groups"].split(),
        "capabilities": capabilities,
        "no_new_privs": fields["NoNewPrivs"],
        "seccomp": fields["Seccomp"],
    }


def mounts() -> Iterator[tuple[str, str, bool]]:
    """Every mount: where, its file system, and whether it can be written."""
    with open("/proc/self/mountinfo") as file:
        for line in file:
            before, _, after = line.rstrip("\n").partition(" - ")
            fields = before.split(" ")
            place = fields[4].encode().decode("unicode_escape").encode("latin-1").decode("utf-8", "surrogateescape")
            kind, _, rest = after.split(" ", 2)
            yield place, kind, "rw" in fields[5].split(",") and "rw" in rest.split(",")


def interfaces() -> Iterator[str]:
    """The network interfaces that are up."""
    for name in os.listdir("/sys/class/net"):
        path = f"/sys/class/net/{name}/flags"
        if os.path.exists(path):
            with open(path) as file:
                if int(file.read(), 16) & 1:
                    yield name


def usable(path: str) -> str:
    """Whether this process can work in a directory and owns what it makes there."""
    probe = os.path.join(path, f".stockade-{os.getpid()}-{os.urandom(4).hex()}")
    try:
        os.close(os.open(probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        try:
            return "" if os.lstat(probe).st_uid == os.geteuid() else "files made there are another user's"
        finally:
            os.unlink(probe)
    except OSError as error:
        return error.strerror or str(error)


def main(order: dict[str, Any], argv: list[str]) -> int:
    """Report, and become the inside program."""
    report = {
        **status(),
        "pid": os.getpid(),
        "mounts": list(mounts()),
        "interfaces": list(interfaces()),
        "places": {path: usable(path) for path in order["places"]},
        "python": sys.version.split()[0],
    }
    try:
        from stockade.inside.main import main as run
    except ImportError as error:
        report["missing"] = str(error)
    data = json.dumps(report).encode()
    write(struct.pack(">I", len(data)) + data)
    if "missing" in report:
        return 3
    os.environ.clear()
    os.environ.update(order["environment"])
    return run(argv)


sys.exit(main(globals()["ORDER"], sys.argv[1:]))
