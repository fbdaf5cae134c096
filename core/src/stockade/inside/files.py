"""Files of the sandbox: one stream a copy, in or out.

All paths are below the workspace or the state dir, whatever a process in here makes of them meanwhile.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from stockade.archive import unpack
from stockade.archive.beneath import FOLDER, Destination, explaining, open_folder
from stockade.archive.pack import contents, open_source, pack
from stockade.archive.rules import MODE, Limits, Tally, check_parts, quoted
from stockade.errors import FileError, FileRefused, ProtocolError
from stockade.wire.blocking import BlockingStream
from stockade.wire.mux import MuxStream


class Roots:
    """The folders that may be copied from and to, the workspace first: each as it is called and as it really is."""

    def __init__(self, folders: Sequence[tuple[str, str]]) -> None:
        self._roots = folders

    def locate(self, path: str) -> tuple[int, tuple[str, ...]]:
        """A descriptor of the root that holds ``path``, and the parts below it. Relative: to the workspace.

        The caller closes the descriptor. Raises `FileError`.
        """
        root, below = self._split(path)
        parts = tuple(part for part in below.split("/") if part not in ("", "."))
        check_parts(parts, quoted(path))
        with explaining(quoted(root)):
            return os.open(root, FOLDER), parts

    def _split(self, path: str) -> tuple[str, str]:
        if not path.startswith("/"):
            return self._roots[0][1], path
        for given, real in self._roots:
            for root in (given, real):
                if path == root or path.startswith(root.rstrip("/") + "/"):
                    return real, path[len(root) :]
        workspace, state = (given for given, _ in self._roots)
        raise FileRefused(f"{quoted(path)} is neither below the workspace, {workspace}, nor below {state}")


async def serve(stream: MuxStream, roots: Roots) -> None:
    """Serve one stream. What fails resets it with the error's code; then nothing of the copy is left."""
    try:
        request = _Request(stream, roots)
        await BlockingStream(stream).run(request.work)
    except (FileError, ProtocolError) as error:
        await stream.reset(error.code, error.message)
        return
    await stream.send_end()


class _Request:
    """One copy. ``work`` does it, in a thread."""

    def __init__(self, stream: MuxStream, roots: Roots) -> None:
        args = stream.args
        self._roots = roots
        self._path = _text(args, "path")
        self._tally = Tally(Limits(_count(args, "max_bytes"), _count(args, "max_members")))
        self._overwrite = args.get("overwrite") is True
        self.work: Callable[[BlockingStream], None]
        if stream.kind == "read":
            self.work = self._read
        elif stream.kind == "write":
            self._mode = _count(args, "mode") & MODE
            self.work = self._write
        elif args.get("op") == "download":
            self._exclude = args.get("exclude") or []
            if not isinstance(self._exclude, list) or not all(isinstance(p, str) for p in self._exclude):
                raise ProtocolError("a download with malformed patterns")
            self.work = self._download
        elif args.get("op") == "upload":
            self._into = _text(args, "into")
            if self._into:
                check_parts((self._into,), quoted(self._into))
            self.work = self._upload
        else:
            raise ProtocolError("an archive stream is a download or an upload")

    def _read(self, stream: BlockingStream) -> None:
        source = self._open()
        try:
            found = os.fstat(source)
            if not stat.S_ISREG(found.st_mode):
                raise FileRefused(f"{quoted(self._path)} is a folder: it can be copied to a path, not be read as bytes")
            self._tally.announce(self._path, found.st_size)
            for piece in contents(source, found.st_size, self._path):
                stream.send(piece)
            stream.flush()
        finally:
            os.close(source)

    def _download(self, stream: BlockingStream) -> None:
        source = self._open()
        try:
            for piece in pack(source, self._tally, self._exclude):
                stream.send(piece)
            stream.flush()
        finally:
            os.close(source)

    def _write(self, stream: BlockingStream) -> None:
        self._place(stream, "", lambda d: unpack.write(_pieces(stream), self._mode, d, self._tally))

    def _upload(self, stream: BlockingStream) -> None:
        self._place(stream, self._into, lambda d: unpack.unpack(stream.receive, d, self._tally))

    def _place(self, stream: BlockingStream, into: str, work: Callable[[Destination], None]) -> None:
        root, parts = self._roots.locate(self._path)
        try:
            destination = Destination.beneath(root, parts, into, overwrite=self._overwrite)
        finally:
            os.close(root)
        try:
            work(destination)
        finally:
            destination.close()
        stream.send(json.dumps({"bytes": self._tally.bytes, "members": self._tally.members}).encode())
        stream.flush()

    def _open(self) -> int:
        """A descriptor of what the path names."""
        root, parts = self._roots.locate(self._path)
        try:
            with explaining(quoted(self._path)):
                if not parts:
                    return open_folder(root, ())
                folder = open_folder(root, parts[:-1])
                try:
                    return open_source(folder, parts[-1])
                finally:
                    os.close(folder)
        finally:
            os.close(root)


def _pieces(stream: BlockingStream) -> Iterator[bytes]:
    while data := stream.receive():
        yield data


def _text(args: Mapping[str, Any], name: str) -> str:
    value = args.get(name)
    if not isinstance(value, str) or "\0" in value:
        raise ProtocolError(f"a copy without {name}")
    return value


def _count(args: Mapping[str, Any], name: str) -> int:
    value = args.get(name)
    if not isinstance(value, int) or value < 0:
        raise ProtocolError(f"a copy without {name}")
    return value
