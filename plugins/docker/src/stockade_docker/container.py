"""The container's configuration: one pipe, nothing to spare. No secret is in it, it is for all to inspect."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stockade.errors import CreateFailed
from stockade.model.spec import SandboxSpec
from stockade_docker.channel import LOADER
from stockade_docker.engine import Facts
from stockade_docker.image import Image
from stockade_docker.options import Options

LABEL = "stockade."
NOBODY_OF_ROOT = 65532
"""Who root is inside: a user that no system has."""

SYSTEM = tuple(map(Path, ("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/sbin")))
"""Folders that a sandbox's own must not lie in or hide: the image's, and the engine's."""
SYSTEM += tuple(map(Path, ("/sys", "/usr", "/run", "/var/run", "/var/lib/docker")))
CLOSED = Path("/root")
"""A folder of most images that only root can enter: mounts below it need another one in its place."""

SHARED_MEMORY = 64 * 1024 * 1024
OPEN_FILES = 16384


@dataclass(frozen=True, slots=True)
class Person:
    """Who the processes are inside. ``swapped``: the caller is root, whose files are this user's by a mount."""

    uid: int
    gid: int
    swapped: bool = False

    @classmethod
    def of(cls, options: Options) -> Person:
        """As the settings and this process's user demand."""
        if options.user == "root":
            return cls(0, 0)
        if os.geteuid() == 0:
            return cls(NOBODY_OF_ROOT, NOBODY_OF_ROOT, swapped=True)
        return cls(os.geteuid(), os.getegid())


def places(spec: SandboxSpec) -> list[Path]:
    """The directories that the sandbox may write, each at its own path inside too. Raises `CreateFailed`."""
    found = list(dict.fromkeys([spec.state_dir, spec.workspace, *spec.add_dirs]))
    for path in found:
        if path == Path("/") or any(path.is_relative_to(s) or s.is_relative_to(path) for s in SYSTEM):
            raise CreateFailed(
                f"{path} cannot be inside a container: it is or hides a folder of the container's own system",
                sandbox=spec.id,
                hint="Choose another directory, for example one in your home.",
            )
        if path in (Path("/tmp"), CLOSED, Path("/home"), Path("/var")):
            raise CreateFailed(
                f"{path} is too wide for a workspace", sandbox=spec.id, hint="Choose a directory below it."
            )
    return found


def labels(spec: SandboxSpec) -> dict[str, str]:
    """By what a reaper knows the container again. The key may be somebody's name, so only its hash."""
    return {
        f"{LABEL}sandbox": spec.id,
        f"{LABEL}run-dir": str(spec.run_dir),
        f"{LABEL}key": hashlib.sha256(spec.key.encode("utf-8", "surrogatepass")).hexdigest()[:16],
        f"{LABEL}deadline": repr(spec.deadline),
    }


def accounts(person: Person) -> tuple[str, str]:
    """``/etc/passwd`` and ``/etc/group``: programs look up who they are (L42)."""
    own = "" if person.uid == 0 else f"agent:x:{person.uid}:{person.gid}:agent:/tmp:/bin/sh\n"
    group = "" if person.gid == 0 else f"agent:x:{person.gid}:\n"
    root, nobody = "root:x:0:0:root:/root:/bin/sh\n", "nobody:x:65534:65534:nobody:/:/bin/false\n"
    return root + own + nobody, f"root:x:0:\n{group}nogroup:x:65534:\n"


def configuration(
    spec: SandboxSpec,
    options: Options,
    facts: Facts,
    image: Image,
    person: Person,
    sources: Mapping[Path, Path],
) -> dict[str, Any]:
    """What is sent to the engine. ``sources`` says where each of `places` is mounted from."""
    small = f"rw,nosuid,nodev,noexec,mode=0755,size={64 * 1024}"
    tmpfs = {"/tmp": f"rw,exec,nosuid,nodev,mode=1777,size={options.tmp_size}"}
    if any(path.is_relative_to(CLOSED) for path in sources):
        tmpfs[str(CLOSED)] = small
    mounts = [_bind(source, path, writable=True) for path, source in sources.items()]
    mounts += [_bind(spec.run_dir / name, Path("/etc", name), writable=False) for name in ("passwd", "group")]
    host: dict[str, Any] = {
        "NetworkMode": options.network,
        "ReadonlyRootfs": True,
        "Tmpfs": tmpfs,
        "Mounts": mounts,
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges"] + (["seccomp=unconfined"] if options.seccomp == "unconfined" else []),
        "Privileged": False,
        "IpcMode": "private",
        "ShmSize": SHARED_MEMORY,
        "CgroupnsMode": "private",
        "Memory": options.memory,
        "MemorySwap": options.memory,
        "PidsLimit": options.pids,
        "NanoCpus": int(min(options.cpus, facts.cpus) * 1e9),
        "Ulimits": [
            {"Name": "core", "Soft": 0, "Hard": 0},
            {"Name": "nofile", "Soft": OPEN_FILES, "Hard": OPEN_FILES},
        ],
        "LogConfig": {"Type": "none"},
        "RestartPolicy": {"Name": "no"},
        "AutoRemove": False,
        "Init": False,
    }
    return {
        "Image": image.id,
        "Entrypoint": [image.python, "-I", "-c", LOADER],
        # The inside program is the container's init: it reaps, and ends with the channel.
        "Cmd": ["--stdio", *spec.inside_args(tier=options.tier)],
        "Env": [],
        "User": f"{person.uid}:{person.gid}",
        "WorkingDir": "/",
        "Hostname": "sandbox",
        "Labels": labels(spec),
        "Healthcheck": {"Test": ["NONE"]},
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "OpenStdin": True,
        "StdinOnce": True,
        "Tty": False,
        "HostConfig": host,
    }


def _bind(source: Path, target: Path, *, writable: bool) -> dict[str, Any]:
    return {
        "Type": "bind",
        "Source": str(source),
        "Target": str(target),
        "ReadOnly": not writable,
        "BindOptions": {"Propagation": "rprivate"},
    }
