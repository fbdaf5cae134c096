"""Who owns a sandbox: one locked file for each living kernel.

The lock is the proof of life: the operating system drops it when the process dies in whatever way, it
works across PID namespaces, and no PID can be reused for it.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from pathlib import Path


class Owner:
    """This process's claim. Holds an exclusive lock until `release`, or the process's death."""

    def __init__(self, folder: Path) -> None:
        self.id = secrets.token_hex(8)
        self._path = folder / f"{self.id}.lock"
        # Locked under another name: whoever sees an unlocked lock file takes its owner for dead.
        fresh = self._path.with_suffix(".new")
        self._fd = os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        os.write(self._fd, str(os.getpid()).encode())
        fresh.rename(self._path)

    def release(self) -> None:
        """Give the claim up. Idempotent."""
        if self._fd >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = -1


def is_alive(folder: Path, owner: str) -> bool:
    """Whether the kernel with this id still runs."""
    try:
        fd = os.open(folder / f"{owner}.lock", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two who look must not see each other
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def process_of(folder: Path, owner: str) -> str:
    """The PID that the owner wrote, for a message; ``?`` when it cannot be read."""
    try:
        return (folder / f"{owner}.lock").read_text() or "?"
    except OSError:
        return "?"


def forget_dead(folder: Path, keep: frozenset[str]) -> None:
    """Remove lock files of dead owners that no row names any more."""
    for path in folder.glob("*.lock"):
        if path.stem not in keep and not is_alive(folder, path.stem):
            path.unlink(missing_ok=True)
