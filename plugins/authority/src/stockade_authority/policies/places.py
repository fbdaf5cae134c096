"""Places of sandboxes and turns: how many there are now, in all processes of one state root.

SQLite decides, one short transaction an ask. A place lasts as long as what holds it and needs nobody to give it
back: that of a sandbox counts while the registry has the sandbox and its owner lives, that of a turn while
the process that runs it lives. `end_turn` is the ordinary end of a turn's place.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stockade.runtime.owner import Owner, is_alive
from stockade.runtime.paths import Home
from stockade.runtime.registry import Registry

_SCHEMA = """
CREATE TABLE IF NOT EXISTS sandboxes (id TEXT PRIMARY KEY, user TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS turns (id TEXT PRIMARY KEY, user TEXT NOT NULL, key TEXT NOT NULL, owner TEXT NOT NULL);
"""
WAIT = 5.0
"""Seconds to wait for another process's transaction."""


@dataclass(frozen=True, slots=True)
class Limit:
    """At most ``most`` places with this value in this column; without a column, at most so many at all."""

    setting: str
    most: int
    column: str = ""
    value: str = ""


@dataclass(frozen=True, slots=True)
class Count:
    """How many places a limit's holders have, without the one that is asked for."""

    limit: Limit
    taken: int

    @property
    def full(self) -> bool:
        """Whether there is no further place."""
        return self.taken >= self.limit.most


class Places:
    """One process's view. Every method blocks for milliseconds (`WAIT` at most); use one thread for all.

    Raises `sqlite3.Error`, `OSError` and `stockade.runtime.registry.RegistryError`: no place then.
    """

    def __init__(self, root: Path) -> None:
        self._home = Home(root)
        self._db: sqlite3.Connection | None = None
        self._registry: Registry | None = None
        self._owner: Owner | None = None

    def take_sandbox(self, id: str, user: str, limits: list[Limit], *, dry: bool) -> list[Count]:
        """Take a place for a sandbox unless a limit is full; nothing is counted for one that has its place."""
        with self._transaction() as db:
            self._forget_sandboxes(db)
            if db.execute("SELECT 1 FROM sandboxes WHERE id = ?", (id,)).fetchone():
                return []
            counts = [_count(db, "sandboxes", limit) for limit in limits]
            if not dry and not any(count.full for count in counts):
                db.execute("INSERT INTO sandboxes VALUES (?, ?)", (id, user))
            return counts

    def take_turn(self, id: str, user: str, key: str, limits: list[Limit], *, dry: bool) -> list[Count]:
        """Take a place for a turn unless a limit is full."""
        if self._owner is None:
            self._home.ensure()
            self._owner = Owner(self._home.owners)
        with self._transaction() as db:
            for (owner,) in db.execute("SELECT DISTINCT owner FROM turns").fetchall():
                if not is_alive(self._home.owners, owner):
                    db.execute("DELETE FROM turns WHERE owner = ?", (owner,))
            counts = [_count(db, "turns", limit) for limit in limits]
            if not dry and not any(count.full for count in counts):
                db.execute("INSERT INTO turns VALUES (?, ?, ?, ?)", (id, user, key, self._owner.id))
            return counts

    def end_turns(self, ids: set[str]) -> None:
        """Their places are free. Idempotent."""
        with self._transaction() as db:
            db.executemany("DELETE FROM turns WHERE id = ?", [(id,) for id in ids])

    def close(self) -> None:
        """Give up what this process holds. Idempotent."""
        if self._owner is not None:
            self._owner.release()
        if self._registry is not None:
            self._registry.close()
        if self._db is not None:
            self._db.close()
        self._db = self._registry = self._owner = None

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        if self._db is None:
            self._db = self._open()
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield self._db
            self._db.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            raise

    def _open(self) -> sqlite3.Connection:
        self._home.ensure()
        path = self._home.root / "quota.db"
        path.touch(mode=0o600)
        db = sqlite3.connect(path, timeout=WAIT, isolation_level=None)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=OFF")  # after a power cut nothing runs, so nothing holds a place
        db.executescript(_SCHEMA)
        return db

    def _forget_sandboxes(self, db: sqlite3.Connection) -> None:
        """Free the places of sandboxes that are gone, or whose owner is: the reaper's, and they end by themselves."""
        if self._registry is None:
            self._registry = Registry(self._home)
        rows = self._registry.rows()
        alive = {owner for owner in {row.owner for row in rows} if is_alive(self._home.owners, owner)}
        live = {row.id for row in rows if row.owner in alive}
        gone = [(id,) for (id,) in db.execute("SELECT id FROM sandboxes") if id not in live]
        db.executemany("DELETE FROM sandboxes WHERE id = ?", gone)


def _count(db: sqlite3.Connection, table: str, limit: Limit) -> Count:
    where, values = (f" WHERE {limit.column} = ?", (limit.value,)) if limit.column else ("", ())
    (taken,) = db.execute(f"SELECT count(*) FROM {table}{where}", values).fetchone()
    return Count(limit, taken)
