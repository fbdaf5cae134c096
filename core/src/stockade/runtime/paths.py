"""The layout of ``$STOCKADE_HOME`` (design §8), and the only code that deletes in it.

Nothing is deleted on a record's word: a directory goes only when it lies directly under its parent in
this root, is a real directory, and carries the marker that this module wrote.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
from pathlib import Path

MARKER = ".stockade"
_PLAIN = re.compile(r"[a-z0-9][a-z0-9._-]{0,47}")


def slug(key: str) -> str:
    """A folder name for any string: itself where it is plain, else readable and with a hash (L58)."""
    if _PLAIN.fullmatch(key):
        return key
    readable = re.sub(r"[^a-z0-9._-]+", "-", key.lower()).strip("-._")[:24] or "key"
    return f"{readable}-{hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


class Home:
    """The state root. Everything in it is private to the user (0700)."""

    def __init__(self, root: Path) -> None:
        self.root = root.expanduser().absolute()

    def ensure(self) -> None:
        """Make the root and its folders. Idempotent."""
        for path in (self.root, self.root / "state", self.root / "run", self.root / "owners"):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)

    @property
    def registry(self) -> Path:
        """The registry's database."""
        return self.root / "registry.db"

    @property
    def owners(self) -> Path:
        """One lock file a living kernel."""
        return self.root / "owners"

    def state(self, key: str) -> Path:
        """What outlives the sandboxes of ``key``."""
        return self.root / "state" / slug(key)

    def run(self, sandbox: str) -> Path:
        """What is gone with the sandbox. ``sandbox`` is an id made by the kernel."""
        return self.root / "run" / slug(sandbox)

    def make(self, path: Path) -> None:
        """Make a directory of `state` or `run` with its marker. Idempotent."""
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        (path / MARKER).touch(mode=0o600)

    def discard(self, path: Path) -> bool:
        """Delete a directory made by `make`; True when it is gone. Never follows a link out of the root."""
        if path.parent not in (self.root / "state", self.root / "run") or path.name in ("", ".", ".."):
            return False
        if path.is_symlink() or not path.is_dir():
            return not path.exists()
        if not (path / MARKER).is_file():
            return False
        _make_removable(path)
        shutil.rmtree(path, ignore_errors=True)
        return not path.exists()


def _make_removable(path: Path) -> None:
    # An agent may leave directories that cannot be entered or emptied; their owner can still change that.
    # Each is changed before os.walk goes down into it; links are never followed.
    for folder, names, _ in os.walk(path):
        for name in names:
            directory = os.path.join(folder, name)
            mode = os.lstat(directory).st_mode
            if stat.S_ISDIR(mode) and mode & 0o700 != 0o700:
                os.chmod(directory, stat.S_IMODE(mode) | 0o700)
