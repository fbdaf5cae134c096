"""Mounts in which the caller's files are another user's: root's tree for a sandbox that is not root (L29, F67).

An identity-mapped mount changes what owners look like, in both directions, and nothing on the disk. The two
users are swapped, everybody else stays who they are.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

PLACE = Path("/run/stockade-docker")
"""Where the mounts are until the container has started; never within a folder that anybody empties."""

_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_OPEN_TREE_CLONE = 1
_MOVE_MOUNT_F_EMPTY_PATH = 4
_AT_FDCWD, _AT_EMPTY_PATH = -100, 0x1000
_ATTR_NOSUID, _ATTR_NODEV, _ATTR_IDMAP = 0x2, 0x4, 0x100000
_MNT_DETACH = 2
_LAST = 0xFFFFFFFF

_libc = ctypes.CDLL(None, use_errno=True)


class _MountAttr(ctypes.Structure):
    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns", ctypes.c_uint64),
    )


def place(sandbox: str, sources: Sequence[Path], *, owner: int, inside: int) -> list[Path]:
    """Mount each source so that ``owner``'s files are ``inside``'s; where. Raises `OSError`, then nothing is left."""
    folder = PLACE / sandbox
    folder.mkdir(mode=0o700, parents=True)
    try:
        namespace = _user_namespace(owner, inside)
        try:
            return [_mount(source, folder / str(number), namespace) for number, source in enumerate(sources)]
        finally:
            os.close(namespace)
    except BaseException:
        remove(sandbox)
        raise


def remove(sandbox: str) -> None:
    """Unmount and forget the mounts of a sandbox. Deletes no file: a mount that stays keeps its folder."""
    folder = PLACE / sandbox
    if not folder.is_dir():
        return
    for target in folder.iterdir():
        _libc.umount2(os.fsencode(target), _MNT_DETACH)
        with contextlib.suppress(OSError):
            target.rmdir()
    with contextlib.suppress(OSError):
        folder.rmdir()


def _mount(source: Path, target: Path, namespace: int) -> Path:
    target.mkdir(mode=0o700)
    tree = _call(_OPEN_TREE, _AT_FDCWD, os.fsencode(source), _OPEN_TREE_CLONE | os.O_CLOEXEC, what=source)
    try:
        attributes = _MountAttr(set=_ATTR_IDMAP | _ATTR_NOSUID | _ATTR_NODEV, userns=namespace)
        size = ctypes.c_size_t(ctypes.sizeof(attributes))
        _call(_MOUNT_SETATTR, tree, b"", _AT_EMPTY_PATH, ctypes.byref(attributes), size, what=source)
        _call(_MOVE_MOUNT, tree, b"", _AT_FDCWD, os.fsencode(target), _MOVE_MOUNT_F_EMPTY_PATH, what=source)
    finally:
        os.close(tree)
    return target


def _call(number: int, *arguments: object, what: Path) -> int:
    result: int = _libc.syscall(number, *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(what))
    return result


def _user_namespace(owner: int, inside: int) -> int:
    """A descriptor of a user namespace that swaps two users (and the groups of the same numbers)."""
    # It ends with its standard input, so also with this process, however that ends.
    command = ["unshare", "--user", "--", "cat"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(b"\n")
            process.stdin.flush()
        if not process.stdout.readline():
            raise OSError(process.stderr.read().decode(errors="replace").strip() or "no user namespace can be made")
        table = _swap(owner, inside)
        for name in ("uid_map", "gid_map"):
            Path(f"/proc/{process.pid}/{name}").write_text(table)
        return os.open(f"/proc/{process.pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)


def _swap(one: int, other: int) -> str:
    low, high = sorted((one, other))
    rows = [(low, high, 1), (high, low, 1)]
    for start, end in ((0, low), (low + 1, high), (high + 1, _LAST)):
        if end > start:
            rows.append((start, start, end - start))
    return "".join(f"{inside} {outside} {count}\n" for inside, outside, count in rows)
