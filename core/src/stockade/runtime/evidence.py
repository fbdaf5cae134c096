"""The evidence log: ``$STOCKADE_HOME/evidence/``, one JSON object a line, written by all processes.

Whoever appends answers for what is in a line: never the content of a turn, never a secret.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

MAX_FILE = 16 * 1024 * 1024
"""Bytes after which a new file is begun."""
KEPT = 8
"""Files besides the one that is written; older ones are deleted."""
MAX_TEXT = 2048
"""Characters of one text in a line."""


class EvidenceLog:
    """Appends to ``NAME.jsonl``; older files are ``NAME.1.jsonl`` (the newest of them) and on.

    What somebody could write without end has a ``name`` of its own, so that it cannot push out the rest.
    """

    def __init__(self, home: Path, *, name: str = "evidence", max_file: int = MAX_FILE) -> None:
        self.folder = home / "evidence"
        self._name = name
        self._max_file = max_file

    @property
    def path(self) -> Path:
        """The file that is written now."""
        return self.folder / f"{self._name}.jsonl"

    def append(self, line: Mapping[str, Any]) -> None:
        """Add a line, whole or not at all. Blocks for as long as the disk takes. Raises `OSError`."""
        self.extend([line])

    def extend(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Add several lines in one go, all of them whole or none. As `append`."""
        data = b"".join(json.dumps(_short(line), separators=(",", ":")).encode() + b"\n" for line in lines)
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._locked():
            with contextlib.suppress(FileNotFoundError):
                size = os.lstat(self.path).st_size
                if size and size + len(data) > self._max_file:
                    self._rotate()
            file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                size = os.fstat(file).st_size
                try:
                    written = os.write(file, data)
                except OSError:
                    os.ftruncate(file, size)
                    raise
                if written < len(data):
                    os.ftruncate(file, size)  # the disk is full: no half line
                    raise OSError(f"only {written} of {len(data)} bytes could be written to {self.path}")
            finally:
                os.close(file)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        lock = os.open(
            self.folder / f".{self._name}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _rotate(self) -> None:
        for number in range(KEPT, 0, -1):
            older = self.folder / f"{self._name}.{number}.jsonl"
            newer = self.folder / f"{self._name}.{number - 1}.jsonl" if number > 1 else self.path
            with contextlib.suppress(FileNotFoundError):
                newer.rename(older)


def _short(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= MAX_TEXT else value[:MAX_TEXT] + "…"
    if isinstance(value, Mapping):
        return {str(key): _short(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_short(item) for item in value]
    return value
