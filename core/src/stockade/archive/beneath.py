"""Working below one folder, by descriptors, and without following a link.

Whoever shares the folder may exchange any name for a link at any moment. A path that is looked at and then used can
so be led elsewhere; a descriptor cannot (F96).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterator, Sequence
from typing import Literal

from stockade.archive.rules import STAGING, quoted, raw
from stockade.errors import FileError, FileExists, FileMissing, FileRefused

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
STALE = 60.0
"""Seconds after which an unfinished copy that nobody holds was left by a process that died."""


def explained(error: OSError, shown: str) -> FileError:
    """What the system said, as one of ours. ``shown`` names the thing, as `quoted` does."""
    if error.errno == errno.ENOENT:
        return FileMissing(f"{shown} does not exist")
    if error.errno in (errno.ENOTDIR, errno.ELOOP):
        return FileRefused(f"{shown}: on the way there is a link or a file where a folder should be")
    if error.errno == errno.EEXIST:
        return FileExists(f"{shown} exists")
    return FileError(f"{shown}: {error.strerror or error}")


@contextlib.contextmanager
def explaining(shown: str) -> Iterator[None]:
    """Raise `explained` for every `OSError` within."""
    try:
        yield
    except OSError as error:
        raise explained(error, shown) from error


def open_folder(root: int, parts: Sequence[str]) -> int:
    """A descriptor of the folder ``parts`` below ``root``, to be closed by the caller. Raises `OSError`."""
    folder = os.dup(root)
    for part in parts:
        try:
            below = os.open(raw(part), FOLDER, dir_fd=folder)
        finally:
            os.close(folder)
        folder = below
    return folder


def kind(folder: int, name: bytes) -> Literal["folder", "other"] | None:
    """What is there now, a link being an ``other``; ``None`` for nothing. Raises `OSError`."""
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None
    return "folder" if stat.S_ISDIR(mode) else "other"


class Staging:
    """A private folder for what is not complete yet, and its end. Use as a context manager; ``fd`` is within."""

    def __init__(self, folder: int) -> None:
        self._folder = folder
        _sweep(folder)
        self._name = STAGING + secrets.token_hex(8).encode()
        os.mkdir(self._name, 0o700, dir_fd=folder)
        try:
            self.fd = os.open(self._name, FOLDER, dir_fd=folder)
        except BaseException:
            os.rmdir(self._name, dir_fd=folder)
            raise
        with contextlib.suppress(OSError):  # a file system without locks: then nobody sweeps either
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def __enter__(self) -> Staging:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)
        _remove(self._folder, self._name)


def _remove(folder: int, name: bytes) -> None:
    with contextlib.suppress(RecursionError):  # only others put folders so deep there; it stays theirs
        shutil.rmtree(name, ignore_errors=True, dir_fd=folder)


def _sweep(folder: int) -> None:
    """Remove what a process that was killed could not."""
    for name in filter(lambda n: n.startswith(STAGING), map(os.fsencode, os.listdir(folder))):
        with contextlib.suppress(OSError):  # somebody holds it, or removes it too
            left = os.open(name, FOLDER, dir_fd=folder)
            try:
                if time.time() - os.fstat(left).st_mtime < STALE:
                    continue
                fcntl.flock(left, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(folder, name)
            finally:
                os.close(left)


class Destination:
    """Where a copy goes: the entry ``name`` of ``folder``, or with no name the folder's own content.

    ``folder`` is a descriptor that `close` closes.
    """

    def __init__(self, folder: int, name: str | None, *, overwrite: bool) -> None:
        self.folder = folder
        self._name = name
        self._overwrite = overwrite

    @classmethod
    def beneath(cls, root: int, parts: Sequence[str], into: str, *, overwrite: bool) -> Destination:
        """``parts``, or where that is a folder, its entry ``into`` (with no ``into``, its own content).

        Raises `FileError`.
        """
        shown = quoted("/".join(parts) or ".")
        with explaining(shown):
            if not parts:
                return cls(open_folder(root, ()), into or None, overwrite=overwrite)
            parent = open_folder(root, parts[:-1])
            try:
                if kind(parent, raw(parts[-1])) == "folder":
                    return cls(open_folder(parent, parts[-1:]), into or None, overwrite=overwrite)
                return cls(os.dup(parent), parts[-1], overwrite=overwrite)
            finally:
                os.close(parent)

    @property
    def parts(self) -> tuple[str, ...]:
        """Of the copy, below ``folder``."""
        return () if self._name is None else (self._name,)

    def check(self) -> None:
        """Raise `FileExists` when a copy cannot end well, before its bytes travel."""
        if self._name is not None and not self._overwrite:
            with explaining(quoted(self._name)):
                if kind(self.folder, raw(self._name)) == "other":
                    raise FileExists(f"{quoted(self._name)} exists")

    def take(self, staging: Staging, name: str) -> set[tuple[str, ...]]:
        """Move the finished ``name`` of ``staging`` here; returns the folders that existed and were added to.

        Only missing names and, with ``overwrite``, files are replaced; all is looked at before the first move.
        One move is all it takes unless the destination is a folder already. Raises `FileError`.
        """
        kept: set[tuple[str, ...]] = set()
        for act in (False, True):
            kept.clear()
            if self._name is None:
                if kind(staging.fd, raw(name)) != "folder":
                    raise FileExists("the destination is a folder, and what is copied has no name")
                below = open_folder(staging.fd, (name,))
                try:
                    kept.add(())
                    self._merge(below, self.folder, (), act=act, kept=kept)
                finally:
                    os.close(below)
            else:
                self._put((staging.fd, name), self.folder, (self._name,), act=act, kept=kept)
        return kept

    def _put(
        self, source: tuple[int, str], folder: int, at: tuple[str, ...], *, act: bool, kept: set[tuple[str, ...]]
    ) -> None:
        old, new = raw(source[1]), raw(at[-1])
        with explaining(quoted("/".join(at))):
            here, there = kind(source[0], old), kind(folder, new)
            if here == there == "folder":
                kept.add(at)
                below, beside = open_folder(source[0], (source[1],)), open_folder(folder, at[-1:])
                try:
                    self._merge(below, beside, at, act=act, kept=kept)
                finally:
                    os.close(below)
                    os.close(beside)
            elif there is not None and not (self._overwrite and here == there == "other"):
                raise FileExists(f"{quoted('/'.join(at))} exists" + (", as another kind" if here != there else ""))
            elif act:
                self._move((source[0], old), (folder, new))

    def _merge(self, below: int, folder: int, at: tuple[str, ...], *, act: bool, kept: set[tuple[str, ...]]) -> None:
        for name in sorted(os.fsencode(entry).decode("utf-8", "surrogateescape") for entry in os.listdir(below)):
            self._put((below, name), folder, (*at, name), act=act, kept=kept)

    def _move(self, source: tuple[int, bytes], target: tuple[int, bytes]) -> None:
        if not self._overwrite and kind(*source) == "other":
            # A second name and the loss of the first one: unlike a rename, it fails if a file has come meanwhile.
            try:
                os.link(source[1], target[1], src_dir_fd=source[0], dst_dir_fd=target[0], follow_symlinks=False)
            except FileExistsError:
                raise
            except OSError:
                pass  # a file system without hard links
            else:
                os.unlink(source[1], dir_fd=source[0])
                return
        os.rename(source[1], target[1], src_dir_fd=source[0], dst_dir_fd=target[0])

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self.folder)
