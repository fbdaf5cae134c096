"""The revoked tokens, for all processes of one state root, until they would have expired anyway.

``denylist.db`` is SQLite in WAL mode. A look costs microseconds: SQLite says with one number whether another
connection has written, and only then are the new rows read. What is revoked here is known here at once.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from stockade_authority.errors import DenylistUnavailable

log = logging.getLogger("stockade.authority")

KEPT = 300.0
"""Seconds that an entry outlives its token, for clocks that differ."""
WAIT = 5.0
"""Seconds to wait for another process that writes."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS denied (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, jti TEXT NOT NULL UNIQUE, expires REAL NOT NULL, reason TEXT NOT NULL
)
"""


class Denylist:
    """Which tokens (``jti``) are worth nothing. ``home`` is the state root. Safe in several threads."""

    def __init__(self, home: Path) -> None:
        self._path = home / "denylist.db"
        self._denied: dict[str, float] = {}
        self._seen = 0
        self._version: int | None = None
        self._reading, self._writing = threading.Lock(), threading.Lock()
        try:
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._path.touch(mode=0o600)
            self._writer, self._reader = self._connect(), self._connect()
            self._writer.execute("PRAGMA journal_mode=WAL")
            self._writer.execute("PRAGMA synchronous=NORMAL")
            self._writer.execute(_SCHEMA)
            self._look()
        except (sqlite3.Error, OSError) as error:
            raise self._unavailable(error) from error

    def close(self) -> None:
        """Close the file. Idempotent."""
        with self._writing, self._reading:
            self._writer.close()
            self._reader.close()

    def denies(self, jti: str) -> bool:
        """Whether the token is revoked, as of now in whatever process. Raises `DenylistUnavailable`."""
        with self._reading:
            try:
                self._look()
            except sqlite3.Error as error:
                raise self._unavailable(error) from error
        return jti in self._denied

    def deny_here(self, tokens: Mapping[str, float]) -> None:
        """Revoke in this process only, without waiting for a disk: `deny` follows."""
        with self._reading:
            self._denied.update(tokens)

    def deny(self, tokens: Mapping[str, float], reason: str) -> None:
        """Revoke: ``tokens`` are times of expiry by ``jti``. Blocks until all processes know. Idempotent."""
        self.deny_here(tokens)
        now = time.time()
        rows = [(jti, expires, reason) for jti, expires in tokens.items() if expires + KEPT > now]
        with self._writing:
            try:
                self._writer.execute("BEGIN IMMEDIATE")
                self._writer.execute("DELETE FROM denied WHERE expires < ?", (now - KEPT,))
                self._writer.executemany(
                    "INSERT INTO denied (jti, expires, reason) VALUES (?, ?, ?) ON CONFLICT (jti) DO NOTHING", rows
                )
                self._writer.execute("COMMIT")
            except sqlite3.Error as error:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                raise self._unavailable(error) from error

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=WAIT, isolation_level=None, check_same_thread=False)

    def _look(self) -> None:
        (version,) = self._reader.execute("PRAGMA data_version").fetchone()
        if version == self._version:
            return
        rows = self._reader.execute("SELECT seq, jti, expires FROM denied WHERE seq > ?", (self._seen,)).fetchall()
        for seq, jti, expires in rows:
            self._seen = max(self._seen, seq)
            self._denied[jti] = expires
        if self._version is not None:
            before = time.time() - KEPT
            for jti in [jti for jti, expires in self._denied.items() if expires < before]:
                del self._denied[jti]
        self._version = version

    def _unavailable(self, error: Exception) -> DenylistUnavailable:
        return DenylistUnavailable(
            f"the list of revoked tokens {self._path} cannot be used: {error}",
            hint="Check the permissions and the free space of STOCKADE_HOME. Until then no token is accepted.",
        )
