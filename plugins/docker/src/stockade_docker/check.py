"""Whether a container is what was asked for: by the engine's word and by what its first program sees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stockade_docker.container import Person
from stockade_docker.options import Options

_COMPARED = (
    "NetworkMode",
    "ReadonlyRootfs",
    "Privileged",
    "IpcMode",
    "Memory",
    "MemorySwap",
    "PidsLimit",
    "NanoCpus",
)
_EMPTY = ("Binds", "CapAdd", "Devices", "DeviceRequests", "GroupAdd", "Links", "PortBindings", "VolumesFrom")
_OF_THE_KERNEL = frozenset({"proc", "sysfs", "cgroup", "cgroup2", "mqueue", "devpts", "tmpfs"})
"""File systems that hold nothing of the host's disk."""


def mismatches(
    wanted: Mapping[str, Any],
    found: Mapping[str, Any],
    report: Mapping[str, Any],
    options: Options,
    person: Person,
    places: Sequence[Path],
) -> list[str]:
    """What is other than it should be, for a person to read. Bears any report: it came out of a container."""
    try:
        return [*_engine(wanted, found), *_inside(report, options, person, places)]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return [f"the report cannot be read: {type(error).__name__}: {error}"]


def _engine(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[str]:
    host, asked = found["HostConfig"], wanted["HostConfig"]
    for name in _COMPARED:
        if host.get(name) != asked[name]:
            yield f"{name} is {host.get(name)!r}, not {asked[name]!r}"
    for name in _EMPTY:
        if host.get(name):
            yield f"{name} is not empty"
    for name in ("PidMode", "UTSMode", "UsernsMode"):
        if host.get(name):
            yield f"{name} is {host[name]!r}"
    if [str(name).upper() for name in host.get("CapDrop") or ()] != ["ALL"]:
        yield f"CapDrop is {host.get('CapDrop')!r}"
    if sorted(host.get("SecurityOpt") or ()) != sorted(asked["SecurityOpt"]):
        yield f"SecurityOpt is {host.get('SecurityOpt')!r}"
    if found["Image"] != wanted["Image"]:
        yield f"the image is {found['Image']}, not {wanted['Image']}"
    if found["Config"]["User"] != wanted["User"]:
        yield f"the user is {found['Config']['User']!r}, not {wanted['User']!r}"
    mounted = {mount["Destination"] for mount in found["Mounts"] if mount["Type"] != "tmpfs"}
    for extra in sorted(mounted - {mount["Target"] for mount in asked["Mounts"]}):
        yield f"{extra} is mounted (the image declares a volume there)"


def _inside(report: Mapping[str, Any], options: Options, person: Person, places: Sequence[Path]) -> Iterator[str]:
    if set(report["uids"]) != {str(person.uid)} or set(report["gids"]) != {str(person.gid)}:
        yield f"inside, the user is {report['uids']}:{report['gids']}, not {person.uid}:{person.gid}"
    if extra := set(report["groups"]) - {str(person.gid)}:
        yield f"inside, there are further groups: {', '.join(sorted(extra))}"
    for name, value in report["capabilities"].items():
        if int(value, 16):
            yield f"inside, {name} is {value}"
    if report["no_new_privs"] != "1":
        yield "inside, new privileges can be had"
    if options.seccomp == "default" and report["seccomp"] != "2":
        yield "inside, there is no seccomp filter"
    if report["pid"] != 1:
        yield "inside, there is no PID namespace of its own"
    if options.network == "none" and set(report["interfaces"]) - {"lo"}:
        yield f"inside, network interfaces are up: {', '.join(report['interfaces'])}"
    own = {str(path) for path in places}
    for place, kind, writable in report["mounts"]:
        if writable and kind not in _OF_THE_KERNEL and place not in own:
            yield f"inside, {place} can be written"
    for place, problem in report["places"].items():
        if problem:
            yield f"inside, {place} is not usable: {problem}"
