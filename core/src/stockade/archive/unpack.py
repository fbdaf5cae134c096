"""An archive as files, of which none is at its destination before all have been checked."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from stockade.archive.beneath import FOLDER, Destination, Staging, explained, explaining, open_folder
from stockade.archive.rules import TOP, Tally, check_link, parts, quoted, raw, show
from stockade.archive.tar import Reader
from stockade.errors import FileRefused

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
HOLE = bytes(4096)


def unpack(receive: Callable[[], bytes], destination: Destination, tally: Tally) -> None:
    """Take an archive to its end, then move what it holds to ``destination``.

    Everything is made new in a private folder beside the destination: so a name that comes twice, lies below a file
    or a link, or whose folder is no member, meets what is there and is refused. Raises `FileError`; then nothing of
    it is left, unless moving into an existing folder failed half-way.
    """
    destination.check()
    with explaining("the destination"):
        staging = Staging(destination.folder)
    with staging:
        tree = _Tree(staging.fd, tally)
        try:
            tree.fill(Reader(receive))
        finally:
            tree.close()
        kept = destination.take(staging, TOP)
        tree.set_late_modes(destination, kept)


def write(pieces: Iterable[bytes], mode: int, destination: Destination, tally: Tally) -> None:
    """Take one file's bytes to their end, then move it to ``destination``. Raises as `unpack`."""
    destination.check()
    with explaining("the destination"):
        staging = Staging(destination.folder)
    with staging:
        with explaining("the file"):
            file = os.open(raw(TOP), _CREATE, 0o600, dir_fd=staging.fd)
        try:
            _fill(file, pieces, TOP, tally)
            os.fchmod(file, mode)
        finally:
            os.close(file)
        destination.take(staging, TOP)


class _Tree:
    """The members that have come, below ``root``."""

    def __init__(self, root: int, tally: Tally) -> None:
        self._tally = tally
        self._folder = os.dup(root)
        self._at: tuple[str, ...] = ()
        self._root = root
        self._late: list[tuple[tuple[str, ...], int]] = []

    def fill(self, reader: Reader) -> None:
        for member in reader.members():
            at = parts(member.name)
            if len(at) == 1 and (self._tally.members or member.kind == "link"):
                raise FileRefused(f"{show(member.name)}: the archive holds two things, or only a link")
            self._tally.member(member.name)
            folder = self._enter(at)
            try:
                if member.kind == "folder":
                    self._make_folder(folder, at, member.mode)
                elif member.kind == "link":
                    check_link(at, member.target)
                    os.symlink(raw(member.target), raw(at[-1]), dir_fd=folder)
                else:
                    self._tally.announce(member.name, member.size)
                    file = os.open(raw(at[-1]), _CREATE, 0o600, dir_fd=folder)
                    try:
                        _fill(file, reader.content(member), member.name, self._tally)
                        os.fchmod(file, member.mode)
                    finally:
                        os.close(file)
            except FileExistsError as error:
                raise FileRefused(f"{show(member.name)}: the name comes twice") from error
            except OSError as error:
                raise explained(error, show(member.name)) from error
        if not self._tally.members:
            raise FileRefused("the archive is empty")

    def set_late_modes(self, destination: Destination, kept: set[tuple[str, ...]]) -> None:
        """Close the folders that had to be open to be filled and moved. Those that existed stay as they are."""
        for at, mode in reversed(self._late):
            place = (*destination.parts, *at[1:])
            if place not in kept:
                with explaining(quoted("/".join(place))):
                    folder = open_folder(destination.folder, place)
                    try:
                        os.fchmod(folder, mode)
                    finally:
                        os.close(folder)

    def close(self) -> None:
        os.close(self._folder)

    def _enter(self, at: tuple[str, ...]) -> int:
        """The folder of a member, which stays open until another one is entered."""
        if at[:-1] != self._at:
            try:
                folder = open_folder(self._root, at[:-1])
            except FileNotFoundError as error:
                raise FileRefused(f"{show('/'.join(at))}: its folder is not in the archive") from error
            except OSError as error:
                raise explained(error, show("/".join(at))) from error
            os.close(self._folder)
            self._folder, self._at = folder, at[:-1]
        return self._folder

    def _make_folder(self, folder: int, at: tuple[str, ...], mode: int) -> None:
        os.mkdir(raw(at[-1]), 0o700, dir_fd=folder)
        if mode & 0o700 != 0o700:
            self._late.append((at, mode))
            return
        made = os.open(raw(at[-1]), FOLDER, dir_fd=folder)
        try:
            os.fchmod(made, mode)
        finally:
            os.close(made)


def _fill(file: int, pieces: Iterable[bytes | memoryview], name: str, tally: Tally) -> None:
    """Write a new file; blocks of zeros stay holes."""
    with explaining(show(name)):
        size = 0
        for piece in pieces:
            tally.content(name, len(piece))
            view = memoryview(piece)
            # A look at the first block tells nearly always, and costs nothing.
            if view[: len(HOLE)] == HOLE and bytes(view).count(0) == len(view):
                os.lseek(file, len(view), os.SEEK_CUR)
            else:
                while view:
                    view = view[os.write(file, view) :]
            size += len(piece)
        os.ftruncate(file, size)
