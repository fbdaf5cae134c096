"""The registry: one row for each sandbox, from before its first side effect until after its last.

SQLite in WAL mode, shared by all processes of one ``$STOCKADE_HOME``. Every call is one short
transaction; a row says what should be looked for, never what may be deleted.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from stockade.errors import SandboxInUse, StockadeError
from stockade.runtime.owner import is_alive, process_of
from stockade.runtime.paths import Home

State = Literal["creating", "live", "ending"]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS sandboxes (
    id TEXT PRIMARY KEY, key TEXT NOT NULL UNIQUE, driver TEXT NOT NULL, owner TEXT NOT NULL,
    state TEXT NOT NULL, created REAL NOT NULL, deadline REAL NOT NULL, ephemeral INTEGER NOT NULL,
    engine TEXT NOT NULL, user TEXT NOT NULL, tier INTEGER, handle TEXT NOT NULL, sighted REAL, wish TEXT NOT NULL
)
"""
VERSION = 1


class RegistryError(StockadeError):
    """The registry cannot be read or written."""

    code = "registry"


@dataclass(frozen=True, slots=True)
class Row:
    """One sandbox. Times in seconds since the epoch. ``wish``: see `stockade.runtime.wishes`."""

    id: str
    key: str
    driver: str
    owner: str
    state: State
    created: float
    deadline: float
    ephemeral: bool
    engine: str = ""
    user: str = ""
    tier: int | None = None
    handle: Mapping[str, Any] | None = None
    sighted: float | None = None
    wish: str = ""


class Registry:
    """Opened by every command that looks at sandboxes; `close` when done."""

    def __init__(self, home: Path | Home) -> None:
        self.home = home if isinstance(home, Home) else Home(home)
        self.home.ensure()
        try:
            self.home.registry.touch(mode=0o600)
            self._db = sqlite3.connect(self.home.registry, timeout=5.0, isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            (version,) = self._db.execute("PRAGMA user_version").fetchone()
            if version not in (0, VERSION):
                raise RegistryError(
                    f"{self.home.registry} has version {version}, this Stockade writes {VERSION}",
                    hint="Use the newer Stockade, or another STOCKADE_HOME.",
                )
            self._db.execute(_SCHEMA)
            self._db.execute(f"PRAGMA user_version={VERSION}")
        except sqlite3.Error as error:
            raise RegistryError(
                f"cannot open the registry {self.home.registry}: {error}",
                hint="Check the permissions and the free space of STOCKADE_HOME; `stockade doctor` tells more.",
            ) from error

    def close(self) -> None:
        """Close the database. Idempotent."""
        self._db.close()

    def intend(self, row: Row) -> None:
        """Write a row before anything of the sandbox exists.

        Raises `SandboxInUse` when the key has a row already; the caller reaps it first if its owner is dead.
        """
        values = {f.name: getattr(row, f.name) for f in fields(Row)} | {"handle": json.dumps(row.handle or {})}
        names = ", ".join(values)
        try:
            self._write(f"INSERT INTO sandboxes ({names}) VALUES (:{', :'.join(values)})", values)
        except sqlite3.IntegrityError:
            other = self.find(row.key)
            pid = process_of(self.home.owners, other.owner) if other else "?"
            raise SandboxInUse(
                f"sandbox {row.key!r} belongs to another process (PID {pid})",
                sandbox=other.id if other else row.id,
                hint="Wait for it, use another --sandbox or --session, or end it: `stockade sandboxes destroy`.",
            ) from None

    def update(self, id: str, **changes: Any) -> None:
        """Change columns of one row; a row that is gone is left gone."""
        if "handle" in changes:
            changes["handle"] = json.dumps(changes["handle"])
        sets = ", ".join(f"{name} = :{name}" for name in changes)
        self._write(f"UPDATE sandboxes SET {sets} WHERE id = :id", {**changes, "id": id})

    def remove(self, id: str) -> None:
        """The sandbox is confirmed gone. Idempotent."""
        self._write("DELETE FROM sandboxes WHERE id = :id", {"id": id})

    def rows(self) -> list[Row]:
        """All rows, oldest first."""
        return [_row(r) for r in self._db.execute(f"SELECT {_COLUMNS} FROM sandboxes ORDER BY created, id")]

    def find(self, name: str) -> Row | None:
        """The row with this key or id."""
        query = f"SELECT {_COLUMNS} FROM sandboxes WHERE key = :n OR id = :n ORDER BY key = :n DESC"
        found = self._db.execute(query, {"n": name}).fetchone()
        return _row(found) if found else None

    def wishes(self, owner: str) -> list[Row]:
        """Rows of this owner that another process wants something of."""
        query = f"SELECT {_COLUMNS} FROM sandboxes WHERE owner = :o AND {_ASKED}"
        return [_row(r) for r in self._db.execute(query, {"o": owner})]

    def ask(self, id: str, wish: str) -> bool:
        """Want something of the owner; False when it has not yet answered another wish, or the row is gone."""
        sql = f"UPDATE sandboxes SET wish = :wish WHERE id = :id AND NOT {_ASKED}"
        return self._write(sql, {"id": id, "wish": wish}) == 1

    def answer(self, row: Row, answer: str) -> None:
        """Answer the row's wish, unless there is a newer one."""
        values = {"id": row.id, "wish": row.wish, "answer": answer}
        self._write("UPDATE sandboxes SET wish = :answer WHERE id = :id AND wish = :wish", values)

    def is_orphan(self, row: Row) -> bool:
        """Whether the row's owner is dead."""
        return not is_alive(self.home.owners, row.owner)

    def sight(self, row: Row, apart: float) -> bool:
        """Note that an orphan was seen; True for a sighting ``apart`` seconds or more after the first."""
        now = time.time()
        if row.sighted is None or row.sighted > now:
            self.update(row.id, sighted=now)
            return False
        return now - row.sighted >= apart

    def _write(self, sql: str, values: Mapping[str, Any]) -> int:
        """Returns how many rows were written."""
        try:
            return self._db.execute(sql, values).rowcount
        except sqlite3.IntegrityError:
            raise
        except sqlite3.Error as error:
            raise RegistryError(
                f"cannot write the registry {self.home.registry}: {error}",
                hint="Check the free space of STOCKADE_HOME and whether another process holds it.",
            ) from error


_COLUMNS = ", ".join(f.name for f in fields(Row))
_ASKED = "(wish = 'destroy' OR wish LIKE 'revoke %')"


def _row(values: tuple[Any, ...]) -> Row:
    data = dict(zip((f.name for f in fields(Row)), values, strict=True))
    data["ephemeral"] = bool(data["ephemeral"])
    data["handle"] = json.loads(data["handle"])
    return Row(**data)
