"""The tar format, block by block: headers are the standard library's, the loop around them is ours.

`tarfile` reads what a header announces into memory, follows chains of headers by recursion and knows a dozen
dialects. From an untrusted peer only the three kinds of members that `header` makes are accepted.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from stockade.archive.rules import MAX_NAME, MODE, show
from stockade.errors import FileRefused

Kind = Literal["file", "folder", "link"]

BLOCK = 512
END = bytes(2 * BLOCK)
MAX_EXTRA = 4 * MAX_NAME
"""Bytes of an extended header: a name, a target, a size."""
MAX_TAIL = 64 * 1024
"""Zeros after the end, with which writers fill their last record."""

_TYPES: dict[Kind, bytes] = {"file": tarfile.REGTYPE, "folder": tarfile.DIRTYPE, "link": tarfile.SYMTYPE}
_KINDS: dict[bytes, Kind] = {type_: kind for kind, type_ in _TYPES.items()}
_REFUSED = {
    tarfile.LNKTYPE: "a hard link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a named pipe",
}
_KNOWN = {b"path", b"linkpath", b"size", b"hdrcharset"}


@dataclass(frozen=True, slots=True)
class Member:
    """One header. ``target`` is a link's, ``size`` a file's."""

    name: str
    kind: Kind
    mode: int = 0o755
    size: int = 0
    target: str = ""


def header(member: Member) -> bytes:
    """The blocks that announce a member; a long or odd name makes an extended header (PAX)."""
    info = tarfile.TarInfo(member.name)
    info.type, info.mode, info.size, info.linkname = _TYPES[member.kind], member.mode, member.size, member.target
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def padding(size: int) -> int:
    """Zeros that fill a file's last block."""
    return -size % BLOCK


class Reader:
    """An archive as it arrives. ``receive`` gives the next bytes, ``b""`` at the end."""

    def __init__(self, receive: Callable[[], bytes]) -> None:
        self._receive = receive
        self._rest = memoryview(b"")

    def members(self) -> Iterator[Member]:
        """The members; of a file, `content` must be exhausted before the next one.

        Raises `FileRefused` for everything that is not an archive as `header` makes them, whole to its end.
        """
        extra: dict[bytes, bytes] = {}
        while True:
            block = self._exactly(BLOCK)
            if block == END[:BLOCK]:
                break
            try:
                info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
            except (tarfile.HeaderError, ValueError):
                raise FileRefused("this is no tar archive, or it is damaged") from None
            if info.type == tarfile.XHDTYPE:
                if extra or not 0 < info.size <= MAX_EXTRA:
                    raise FileRefused(f"an extended header of {info.size} bytes, or two in a row")
                extra = _records(self._exactly(info.size + padding(info.size))[: info.size])
                continue
            yield _member(info, extra)
            extra = {}
        if extra or self._exactly(BLOCK) != END[:BLOCK]:
            raise FileRefused("the archive's end is damaged")
        self._nothing_more()

    def content(self, member: Member) -> Iterator[memoryview]:
        """The bytes of a file, in pieces."""
        left = member.size
        while left:
            piece = self._piece(left)
            left -= len(piece)
            yield piece
        self._exactly(padding(member.size))

    def _piece(self, most: int) -> memoryview:
        if not self._rest:
            data = self._receive()
            if not data:
                raise FileRefused("the archive is cut off")
            self._rest = memoryview(data)
        piece, self._rest = self._rest[:most], self._rest[most:]
        return piece

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            data += self._piece(size - len(data))
        return bytes(data)

    def _nothing_more(self) -> None:
        seen, data = 0, bytes(self._rest)
        while True:
            seen += len(data)
            if seen > MAX_TAIL or data.count(0) != len(data):
                raise FileRefused("something follows the archive's end")
            if not (data := self._receive()):
                return


def _records(data: bytes) -> dict[bytes, bytes]:
    """An extended header: records ``LENGTH KEY=VALUE\\n``."""
    found: dict[bytes, bytes] = {}
    while data:
        length, space, _ = data[:8].partition(b" ")
        size = int(length) if length.isdigit() and space else 0
        whole = size <= len(data)
        record, data = data[len(length) + 1 : size], data[size:]
        key, equals, value = record[:-1].partition(b"=")
        if not whole or record[-1:] != b"\n" or not equals or key not in _KNOWN or key in found:
            raise FileRefused(f"an extended header with {record[:60]!a}, which is malformed or unknown")
        found[key] = value
    return found


def _member(info: tarfile.TarInfo, extra: dict[bytes, bytes]) -> Member:
    path, link = extra.get(b"path"), extra.get(b"linkpath")
    name = info.name if path is None else path.decode("utf-8", "surrogateescape")
    target = info.linkname if link is None else link.decode("utf-8", "surrogateescape")
    kind = _KINDS.get(info.type)
    if kind is None:
        what = _REFUSED.get(info.type, f"of the unknown kind {info.type!a}")
        raise FileRefused(f"{show(name)}: {what}, which is not copied")
    size = info.size
    if (given := extra.get(b"size")) is not None:
        size = int(given) if given.isdigit() and len(given) < 20 else -1
    if size < 0 or (size and kind != "file"):
        raise FileRefused(f"{show(name)}: a {kind} of {size} bytes")
    if kind == "folder":
        name = name.removesuffix("/")
    return Member(name, kind, info.mode & MODE, size, target if kind == "link" else "")
