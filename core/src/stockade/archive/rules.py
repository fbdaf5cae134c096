"""What may be copied: one set of rules for packing and for unpacking, so that what was saved can be restored (S69).

An archive has one thing in it, called `TOP`: a file, or a folder with files, folders and links below it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stockade.errors import FileLimit, FileRefused

TOP = "data"
STAGING = b".stockade-copy-"
"""How the names of unfinished copies begin. They lie beside their destination and are never packed."""
MODE = 0o777
"""The bits of a mode that are kept: no set-user-id, set-group-id or sticky bit."""
MAX_NAME = 4096
"""Bytes of a path, and of a link's target."""
MAX_PART = 255
MAX_DEPTH = 100
"""Folders above a member: each is held open while it is packed."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one copy: bytes of all files together as programs see them (holes count), and members of all kinds.

    A ratio needs no limit: nothing on the wire is compressed, so what arrives is what is written, and holes are
    kept as holes.
    """

    max_bytes: int
    max_members: int


@dataclass(slots=True)
class Tally:
    """What has been copied so far. ``moved`` is called with ``(bytes, members)`` as they grow, in any thread."""

    limits: Limits
    moved: Callable[[int, int], None] | None = None
    bytes: int = 0
    members: int = 0

    def member(self, name: str) -> None:
        """Another member. Raises `FileLimit`."""
        self.members += 1
        if self.members > self.limits.max_members:
            raise FileLimit(f"{show(name)}: this is more than {self.limits.max_members} members")
        self._tell()

    def announce(self, name: str, size: int) -> None:
        """A file of this size is next. Raises `FileLimit` before any of it is copied."""
        if self.bytes + size > self.limits.max_bytes:
            raise FileLimit(f"{show(name)}: with its {size} bytes it is more than {self.limits.max_bytes} bytes")

    def content(self, name: str, size: int) -> None:
        """So many bytes were copied. Raises `FileLimit`."""
        self.announce(name, size)
        self.bytes += size
        self._tell()

    def _tell(self) -> None:
        if self.moved is not None:
            self.moved(self.bytes, self.members)


def raw(text: str) -> bytes:
    """A name as the system has it: names are bytes, and need not be UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def text(name: bytes) -> str:
    """The other way round."""
    return name.decode("utf-8", "surrogateescape")


def quoted(path: str) -> str:
    """A path for people: nothing in it that moves a cursor or cannot be encoded."""
    return repr(path) if path.isprintable() else ascii(path)


def show(name: str) -> str:
    """A member's name for people: as it is below `TOP`."""
    return "what is copied" if name == TOP else quoted(name.removeprefix(TOP + "/"))


def parts(name: str) -> tuple[str, ...]:
    """The parts of a member's name. Raises `FileRefused` for one that is not plainly below `TOP`."""
    found = tuple(name.split("/"))
    if found[0] != TOP:
        raise FileRefused(f"{show(name)}: the name is absolute, or leads out of the archive")
    check_parts(found, show(name))
    return found


def check_parts(found: tuple[str, ...], shown: str) -> None:
    """Raises `FileRefused` for names with ``..`` and the like, and for what no file system takes."""
    if any(part in ("", ".", "..") or "/" in part for part in found):
        raise FileRefused(f"{shown}: the name has empty parts, . or ..")
    try:
        sizes = [len(raw(part)) for part in found]
    except UnicodeEncodeError:
        raise FileRefused(f"{shown}: the name cannot be encoded") from None
    if any("\0" in part for part in found) or len(found) > MAX_DEPTH + 1 or max(sizes, default=0) > MAX_PART:
        raise FileRefused(f"{shown[:200]}: the name is too deep, has too long a part, or a NUL")
    if sum(sizes) + len(sizes) > MAX_NAME:
        raise FileRefused(f"{shown[:200]}: the name is longer than {MAX_NAME} bytes")


def check_link(found: tuple[str, ...], target: str) -> None:
    """A symbolic link stays below `TOP`, wherever the tree lies. Raises `FileRefused`.

    ``..`` may only begin a target: the folders above a link are real ones, so there the text says where it leads.
    After the name of another link it would not.
    """
    name = "/".join(found)
    if not target or target.startswith("/") or "\0" in target or len(raw(target)) > MAX_NAME:
        raise FileRefused(f"{show(name)}: a link to {target[:200]!a}, which is absolute, empty or too long")
    steps = [step for step in target.split("/") if step not in ("", ".")]
    ups = next((i for i, step in enumerate(steps) if step != ".."), len(steps))
    if ups > len(found) - 2:
        raise FileRefused(f"{show(name)}: a link to {target[:200]!a}, which leads out of what is copied")
    if ".." in steps[ups:]:
        raise FileRefused(f"{show(name)}: a link to {target[:200]!a}, whose .. may lead anywhere")
