"""Copies into and out of a sandbox, as their caller holds them."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stockade.archive.beneath import Destination, explaining
from stockade.archive.pack import check_kind, pack
from stockade.archive.rules import Limits, Tally, quoted
from stockade.archive.unpack import unpack
from stockade.errors import FILE_ERRORS, FileError, ProtocolError, SandboxLost, StockadeError
from stockade.wire.blocking import BlockingStream
from stockade.wire.mux import MuxStream, StreamReset

if TYPE_CHECKING:
    from stockade.runtime.entry import Entry
    from stockade.runtime.runner import Runner

Path = str | os.PathLike[str]
Moved = Callable[[int, int], None]
MAX_ANSWER = 4096
"""Bytes of what a sandbox says about a copy: its answer, or the message of its error."""


@dataclass(frozen=True, slots=True)
class Copied:
    """A finished copy: bytes of all files, and how many files, folders and links."""

    bytes: int
    members: int


class SandboxFiles:
    """Returned by `Kernel.files`. Use as an async context manager; copies may run side by side.

    Paths inside are relative to the workspace, or absolute below it or below the state folder; no link in them is
    followed. A source whose path ends in ``/.`` (or is ``.``) means the content of that folder. Every method raises
    `FileError` or one of its kinds, or the typed ending of the sandbox (`SandboxLost`, `TtlExpired`, …); it is
    undone when it fails or is cancelled: the destination is as it was.

    ``moved`` is called with bytes and members so far, from another thread.
    """

    def __init__(self, runner: Runner, entry: Entry, limits: Limits) -> None:
        self._runner = runner
        self._entry = entry
        self._limits = limits
        self._released = False

    @property
    def sandbox(self) -> str:
        """The sandbox's id."""
        return self._entry.id

    async def read(self, path: str) -> AsyncIterator[bytes]:
        """The bytes of one file, as they come."""
        tally = Tally(self._limits)
        async with self._stream("read", path=path) as stream:
            while data := await stream.receive():
                tally.content(path, len(data))
                yield data

    async def write(
        self, path: str, data: bytes | AsyncIterable[bytes], *, mode: int = 0o644, overwrite: bool = False
    ) -> None:
        """Make one file, whose folder exists, with these permission bits. It appears whole, or not at all."""
        async with self._stream("write", path=path, mode=mode, overwrite=overwrite) as stream:
            if isinstance(data, bytes):
                await stream.send(data)
            else:
                async for piece in data:
                    await stream.send(piece)
            await stream.send_end()
            await self._answer(stream)

    async def download(
        self,
        source: str,
        target: Path,
        *,
        overwrite: bool = False,
        exclude: Iterable[str] = (),
        moved: Moved | None = None,
    ) -> Copied:
        """Copy a file or folder out, into ``target`` where that is a folder, else as ``target``.

        Folders are merged; a file that exists is replaced only with ``overwrite``. ``exclude`` are shell patterns of
        what is left out: of a name, or with a ``/`` in it of the path below ``source``. What the sandbox sends is
        checked before any of it is at its place.
        """
        tally = Tally(self._limits, moved)

        def work(stream: BlockingStream) -> None:
            destination = _local(os.fspath(target), _own_name(source), overwrite=overwrite)
            try:
                unpack(stream.receive, destination, tally)
            finally:
                destination.close()

        async with self._stream("archive", op="download", path=source, exclude=[*exclude]) as stream:
            await BlockingStream(stream).run(work)
        return Copied(tally.bytes, tally.members)

    async def upload(
        self,
        source: Path,
        target: str,
        *,
        overwrite: bool = False,
        exclude: Iterable[str] = (),
        moved: Moved | None = None,
    ) -> Copied:
        """Copy a file or folder in; as `download`. It belongs to the sandbox's user."""
        path = os.fspath(source)
        tally, patterns = Tally(self._limits, moved), [*exclude]

        def work(stream: BlockingStream) -> None:
            with explaining(quoted(path)):
                check_kind(os.stat(path), path)
                source = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                for piece in pack(source, tally, patterns):
                    stream.send(piece)
                stream.flush()
            finally:
                os.close(source)

        args = {"op": "upload", "path": target, "into": _own_name(path), "overwrite": overwrite}
        async with self._stream("archive", **args) as stream:
            await BlockingStream(stream).run(work)
            await stream.send_end()
            await self._answer(stream)
        return Copied(tally.bytes, tally.members)

    async def aclose(self) -> None:
        """Give the sandbox back. Idempotent."""
        if not self._released:
            self._released = True
            await self._runner.release(self._entry)

    async def __aenter__(self) -> SandboxFiles:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    @contextlib.asynccontextmanager
    async def _stream(self, kind: str, **args: Any) -> AsyncIterator[MuxStream]:
        """A stream of one copy; with an error it is dropped, and the error told in our terms."""
        assert self._entry.peer is not None
        args |= {"max_bytes": self._limits.max_bytes, "max_members": self._limits.max_members}
        stream = None
        try:
            stream = await self._entry.peer.open(kind, args)
            yield stream
        except (StreamReset, SandboxLost) as error:
            raise self._told(error) from error
        finally:
            if stream is not None:
                await stream.reset("cancelled")

    async def _answer(self, stream: MuxStream) -> None:
        """Wait until the sandbox says that the copy is in its place."""
        answer = b""
        while data := await stream.receive():
            answer += data
            if len(answer) > MAX_ANSWER:
                raise ProtocolError("the answer to a copy is over the cap", sandbox=self._entry.id)
        try:
            if not isinstance(json.loads(answer), dict):
                raise ValueError
        except ValueError as error:
            raise ProtocolError("the answer to a copy is malformed", sandbox=self._entry.id) from error

    def _told(self, error: StockadeError) -> StockadeError:
        if not isinstance(error, StreamReset) or not self._entry.usable:
            return self._runner.failure(self._entry, error)
        if kind := FILE_ERRORS.get(error.reset_code):
            return kind(f"in the sandbox: {error.message[:MAX_ANSWER]}", sandbox=self._entry.id)
        if error.reset_code == "unsupported":
            return FileError(
                "the program in this sandbox copies no files",
                sandbox=self._entry.id,
                hint="It is older than this kernel: install the same version of stockade there.",
            )
        return SandboxLost(f"the copy was dropped: {error.message[:MAX_ANSWER]}", sandbox=self._entry.id)


def _own_name(path: str) -> str:
    """What a copy of ``path`` is called in a folder; empty for a folder's content."""
    name = path.rstrip("/").rpartition("/")[2]
    return "" if name in (".", "..") else name


def _local(target: str, into: str, *, overwrite: bool) -> Destination:
    """Where a download goes on this host. Links in ``target`` itself are the caller's, and followed."""
    path = target.rstrip("/") or "/"
    with explaining(quoted(target)):
        if os.path.isdir(path):
            name = into or None
        else:
            path, _, name = path.rpartition("/") if "/" in path else (".", "", path)
        return Destination(os.open(path or "/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), name, overwrite=overwrite)
