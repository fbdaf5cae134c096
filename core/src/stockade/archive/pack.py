"""A file or a folder as an archive, piece by piece."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from stockade.archive import tar
from stockade.archive.beneath import explained
from stockade.archive.rules import MODE, STAGING, TOP, Tally, check_link, check_parts, raw, show, text
from stockade.archive.tar import Member
from stockade.errors import FileError, FileRefused

PIECE = 256 * 1024

_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_REFUSED = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_source(folder: int, name: str) -> int:
    """A descriptor of the file or folder to be copied. Raises `OSError`, or `FileRefused` for another kind."""
    found = os.stat(raw(name), dir_fd=folder, follow_symlinks=False)
    check_kind(found, name)
    source = os.open(raw(name), _OPEN, dir_fd=folder)
    try:
        check_kind(os.fstat(source), name)
    except BaseException:
        os.close(source)
        raise
    return source


def check_kind(found: os.stat_result, name: str) -> None:
    """Raises `FileRefused` for all but a file and a folder."""
    if stat.S_ISLNK(found.st_mode):
        raise FileRefused(f"{show(name)} is a link: name what it leads to")
    if what := _REFUSED.get(stat.S_IFMT(found.st_mode)):
        raise FileRefused(f"{show(name)}: {what}, which is not copied")


def pack(source: int, tally: Tally, exclude: Sequence[str] = ()) -> Iterator[bytes]:
    """The archive of an open file or folder, which stays open.

    ``exclude`` are shell patterns of what is left out with all below it: of a name, or with a ``/`` in it of the path.

    Files are read as they are found; hard links are copied as files of their own, names that vanish meanwhile are
    left out. Raises `FileError` for all that `unpack` would refuse, with the name.
    """
    found = os.fstat(source)
    if stat.S_ISDIR(found.st_mode):
        yield from _folder(source, found, (TOP,), tally, exclude)
    else:
        yield from _file(source, found, (TOP,), tally)
    yield tar.END


def contents(source: int, size: int, name: str) -> Iterator[bytes]:
    """The first ``size`` bytes of an open file. Raises `FileError` when there are fewer."""
    while size:
        try:
            data = os.read(source, min(size, PIECE))
        except OSError as error:
            raise explained(error, show(name)) from error
        if not data:
            raise FileError(f"{show(name)} became shorter while it was copied")
        size -= len(data)
        yield data


def _folder(
    source: int, found: os.stat_result, at: tuple[str, ...], tally: Tally, exclude: Sequence[str]
) -> Iterator[bytes]:
    name = "/".join(at)
    tally.member(name)
    yield tar.header(Member(name, "folder", stat.S_IMODE(found.st_mode) & MODE))
    try:
        entries = sorted(map(os.fsencode, os.listdir(source)))
    except OSError as error:
        raise explained(error, show(name)) from error
    for entry in entries:
        below = (*at, text(entry))
        if not entry.startswith(STAGING) and not _excluded(below, exclude):
            yield from _entry(source, below, tally, exclude)


def _excluded(at: tuple[str, ...], exclude: Sequence[str]) -> bool:
    return any(fnmatchcase("/".join(at[1:]) if "/" in pattern else at[-1], pattern) for pattern in exclude)


def _entry(folder: int, at: tuple[str, ...], tally: Tally, exclude: Sequence[str]) -> Iterator[bytes]:
    name = "/".join(at)
    check_parts(at, show(name))
    try:
        found = os.stat(raw(at[-1]), dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            target = text(os.readlink(raw(at[-1]), dir_fd=folder))
        else:
            check_kind(found, name)
            source = os.open(raw(at[-1]), _OPEN, dir_fd=folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise explained(error, show(name)) from error
    if stat.S_ISLNK(found.st_mode):
        check_link(at, target)
        tally.member(name)
        yield tar.header(Member(name, "link", target=target))
        return
    try:
        found = os.fstat(source)
        check_kind(found, name)
        if stat.S_ISDIR(found.st_mode):
            yield from _folder(source, found, at, tally, exclude)
        else:
            yield from _file(source, found, at, tally)
    finally:
        os.close(source)


def _file(source: int, found: os.stat_result, at: tuple[str, ...], tally: Tally) -> Iterator[bytes]:
    name = "/".join(at)
    tally.member(name)
    tally.announce(name, found.st_size)
    yield tar.header(Member(name, "file", stat.S_IMODE(found.st_mode) & MODE, found.st_size))
    for data in contents(source, found.st_size, name):
        tally.content(name, len(data))
        yield data
    yield bytes(tar.padding(found.st_size))
