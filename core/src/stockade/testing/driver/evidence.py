"""Scripts that look out of a sandbox. Each prints what it found as JSON; the standard library is enough."""

from __future__ import annotations

PROCESSES = """
import json, os, sys
from pathlib import Path

# Is the process with this mark on its command line seen in here, and can it be ended?
mark, pid, seen = sys.argv[1], int(sys.argv[2]), []
for entry in Path("/proc").iterdir():
    if entry.name.isdigit() and int(entry.name) != os.getpid():
        try:
            if mark.encode() in (entry / "cmdline").read_bytes():
                seen.append(int(entry.name))
        except OSError:
            pass
if pid in seen:
    os.kill(pid, 9)
print(json.dumps(seen))
"""
"""Arguments: a mark, and the pid of the host's process that carries it. Prints the pids that carry it in here."""

NETWORK = """
import fcntl, json, socket, struct, sys

found = []
with socket.socket() as probe:
    for _, name in socket.if_nameindex():
        flags = fcntl.ioctl(probe, 0x8913, struct.pack("16sh14x", name.encode(), 0))  # SIOCGIFFLAGS
        if name != "lo" and struct.unpack_from("16xh", flags)[0] & 1:
            found.append(f"interface {name} is up")
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=2).close()
    found.append("a server on the host's loopback answers")
except OSError:
    pass
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
    try:
        probe.connect(("192.0.2.1", 9))  # sends nothing; it only needs a way there
        found.append("there is a route to other networks")
    except OSError:
        pass
print(json.dumps(found))
"""
"""Argument: a port that the host listens on. Prints the ways out."""

FILES = """
import json, os, sys

secret, folder, found = sys.argv[1], sys.argv[2], []
try:
    with open(secret) as file:
        file.read()
    found.append(f"{secret} of the host can be read")
except OSError:
    pass
try:
    with open(f"{folder}/kit-written", "w"):
        found.append(f"{folder} of the host can be written")
except OSError:
    pass
mounts = []
with open("/proc/self/mountinfo") as table:
    for line in table:
        before, _, after = line.partition(" - ")
        mounts.append((before.split()[4], after.split()[0]))
for place in sys.argv[3:]:
    if os.path.isdir(place) and os.access(place, os.W_OK):
        near = max((m for m in mounts if f"{place}/".startswith(m[0].rstrip("/") + "/")), key=lambda m: len(m[0]))
        if near[1] not in ("tmpfs", "ramfs", "devtmpfs"):  # what is written there is gone with the sandbox
            found.append(f"{place} can be written, and is a {near[1]}")
print(json.dumps(found))
"""
"""Arguments: a file of the host, a folder of the host, and places that must not be written. Prints what can be."""

NESTED = """
import ctypes, json, os, subprocess

FLAGS = ["--user", "--map-current-user", "--pid", "--fork", "--mount-proc"]
NEWNS, NEWUSER, NEWPID, REC_PRIVATE = 0x20000, 0x10000000, 0x20000000, 0x4000 | 0x40000

def by_program():
    try:
        return subprocess.run(["unshare", *FLAGS, "true"], capture_output=True).returncode == 0
    except OSError:
        return False

def by_calls():
    uid, gid = os.getuid(), os.getgid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(NEWUSER | NEWNS | NEWPID):
        return False
    try:
        for name, value in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(value)
    except OSError:
        return False
    child = os.fork()
    if child == 0:
        failed = libc.mount(b"none", b"/", None, REC_PRIVATE, None) or libc.mount(b"proc", b"/proc", b"proc", 0, None)
        os._exit(1 if failed else 0)
    return os.waitpid(child, 0)[1] == 0

print(json.dumps(by_program() or by_calls()))
"""
"""Prints whether a further user namespace can be made, with processes and a ``/proc`` of its own (L41)."""
