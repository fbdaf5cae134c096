"""The server's side: who may have leases. One file a grant in ``$STOCKADE_HOME/leases/``."""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

from stockade.errors import UsageError
from stockade_authority.policies.lease.document import NAME, Lease, Stop
from stockade_authority.policies.lease.errors import LeaseExpired, LeaseMissing

REVOKED_FOR = 10 * 365 * 86400
"""Seconds for which a revocation is good: until the grant is made anew."""


@dataclass(frozen=True, slots=True)
class Grant:
    """``valid`` is the life of each lease in seconds, ``until`` the end of them all (0: none); epoch seconds."""

    name: str
    valid: int
    until: int = 0
    stop: Stop = "ttl"
    max_ttl: int = 0
    made: int = 0
    revoked: int = 0

    def lease(self, now: float) -> Lease:
        """What holds now: a new lease, or the revocation. Raises `LeaseExpired` after ``until``."""
        if self.revoked:
            moment = self.revoked
            return Lease(self.name, _id(), moment, moment + REVOKED_FOR, "revoked", self.stop, self.max_ttl)
        if self.until and now >= self.until:
            raise LeaseExpired(f"the grant {self.name!r} is over", hint=f"stockade lease issue {self.name}")
        expires = int(now) + self.valid
        if self.until:
            expires = min(expires, self.until)
        # Never older than the revocation that this grant followed.
        return Lease(self.name, _id(), max(int(now), self.made), expires, "active", self.stop, self.max_ttl)


class Grants:
    """The grants of one state root. Every change is one rename, so a server sees all or nothing of it."""

    def __init__(self, home: Path) -> None:
        self._folder = home / "leases"

    def all(self) -> list[Grant]:
        """All grants, by name."""
        return [self.get(path.stem) for path in sorted(self._folder.glob("*.json"))]

    def get(self, name: str) -> Grant:
        """The grant of this name. Raises `LeaseMissing`."""
        try:
            return Grant(**json.loads(self._path(name).read_bytes()))
        except FileNotFoundError:
            raise LeaseMissing(f"there is no grant {name!r}", hint=f"stockade lease issue {name}") from None

    def put(self, grant: Grant) -> Grant:
        """Make or replace a grant. What follows a revocation counts as made after it."""
        now = int(time.time())
        try:
            now = max(now, self.get(grant.name).revoked + 1)
        except LeaseMissing:
            pass
        return self._write(dataclasses.replace(grant, made=now, revoked=0))

    def revoke(self, name: str, *, at_once: bool) -> Grant:
        """Take a grant back; ``at_once`` ends live sandboxes too. Idempotent, but for becoming stricter."""
        grant = self.get(name)
        stop: Stop = "now" if at_once else grant.stop
        moment = max(int(time.time()), grant.made)
        if grant.revoked:
            moment = grant.revoked if stop == grant.stop else max(moment, grant.revoked)
        return self._write(dataclasses.replace(grant, revoked=moment, stop=stop))

    def _write(self, grant: Grant) -> Grant:
        path = self._path(grant.name)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(path, json.dumps(dataclasses.asdict(grant)) + "\n")
        return grant

    def _path(self, name: str) -> Path:
        if not NAME.fullmatch(name):
            raise UsageError(
                f"a lease cannot be called {name!r}",
                hint="1 to 64 of a-z, 0-9, '.', '_' and '-', beginning with one of a-z, 0-9.",
            )
        return self._folder / f"{name}.json"


def write_private(path: Path, text: str) -> None:
    """Replace a file in one step, readable by its owner only. Raises `OSError`."""
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "w", encoding="utf-8") as file:
            file.write(text)
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def _id() -> str:
    return secrets.token_urlsafe(12)
