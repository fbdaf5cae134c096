"""Trees of files for the tests of copies: made, compared, packed and unpacked."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from stockade.archive.beneath import Destination
from stockade.archive.pack import pack
from stockade.archive.rules import Limits, Tally
from stockade.archive.unpack import unpack

ROOMY = Limits(10**9, 10_000)


def packed(source: Path, limits: Limits = ROOMY, exclude: Sequence[str] = ()) -> bytes:
    """The archive of a file or folder."""
    descriptor = os.open(source, os.O_RDONLY)
    try:
        return b"".join(pack(descriptor, Tally(limits), exclude))
    finally:
        os.close(descriptor)


def unpacked(
    archive: bytes | Iterator[bytes], target: Path, *, overwrite: bool = False, limits: Limits = ROOMY, piece: int = 700
) -> None:
    """Unpack as ``target``; the bytes come in pieces of an awkward size."""
    pieces = archive
    if isinstance(pieces, bytes):
        data = pieces
        pieces = iter([data[at : at + piece] for at in range(0, len(data), piece)])
    # The tree is moved into place: the folder is that of the target.
    destination = Destination(os.open(target.parent, os.O_RDONLY), target.name, overwrite=overwrite)
    try:
        unpack(lambda: next(pieces, b""), destination, Tally(limits))
    finally:
        destination.close()


def snapshot(root: Path) -> dict[bytes, tuple[str, int, bytes]]:
    """Every path below ``root`` with its kind, permission bits, and content or target."""
    found = {}
    for path in [os.fsencode(root), *_below(os.fsencode(root))]:
        status = os.lstat(path)
        name, mode = os.path.relpath(path, os.fsencode(root)), stat.S_IMODE(status.st_mode)
        if stat.S_ISLNK(status.st_mode):
            found[name] = ("link", 0, os.readlink(path))
        elif stat.S_ISDIR(status.st_mode):
            found[name] = ("folder", mode, b"")
        else:
            with open(path, "rb") as file:
                found[name] = ("file", mode, file.read())
    return found


def _below(root: bytes) -> Iterator[bytes]:
    for folder, folders, files in os.walk(root):
        for name in sorted([*folders, *files]):
            yield os.path.join(folder, name)


Entry = tuple[int, bytes] | bytes | tuple[int, "Tree"]
Tree = dict[bytes, Entry]
"""By name: a file's mode and content, a link's target, or a folder's mode and tree."""


def make(root: Path, tree: Tree) -> None:
    """Write a tree; modes last, so that a folder may be closed."""
    _make(os.fsencode(root), tree)


def _make(root: bytes, tree: Tree) -> None:
    os.mkdir(root)
    for name, entry in tree.items():
        path = os.path.join(root, name)
        if isinstance(entry, bytes):
            os.symlink(entry, path)
        elif isinstance(entry[1], bytes):
            with open(path, "wb") as file:
                file.write(entry[1])
            os.chmod(path, entry[0])
        else:
            _make(path, entry[1])
            os.chmod(path, entry[0])


def opened(roots: Sequence[Path]) -> None:
    """Let everything be deleted."""
    for root in roots:
        for folder, folders, _ in os.walk(os.fsencode(root)):
            for name in folders:
                path = os.path.join(folder, name)
                if not os.path.islink(path):
                    os.chmod(path, 0o700)
