"""One sandbox of this kernel, in memory: its state, its sessions, its end."""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Literal

from stockade.contracts.driver import Ending, Sandbox
from stockade.contracts.route import Caller
from stockade.model.authority import SandboxRequest, Token
from stockade.model.turn import FileAccess
from stockade.wire.mux import MuxStream
from stockade.wire.peer import Peer

MAX_SESSIONS = 1024
"""Sessions that one sandbox remembers; the oldest idle one is forgotten (L12)."""

Reason = Literal["ttl", "oom", "lost", "cancelled", "revoked"]


@dataclass(slots=True, eq=False)
class Session(Caller):
    """A conversation in one sandbox. ``key`` is the placeholder credential its engine holds (L70)."""

    name: str
    key: str = field(default_factory=lambda: "stockade-" + secrets.token_urlsafe(24), repr=False)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0

    def take_token(self) -> Token | None:
        """The turn's token, which is no longer the turn's."""
        token, self.token = self.token, None
        return token


@dataclass(slots=True, eq=False)
class Tunnel:
    """A connection from inside that a route serves."""

    route: str
    stream: MuxStream
    task: asyncio.Task[None]


class Entry:
    """The runner's record of one sandbox, from the lookup miss until its confirmed end.

    States: *creating* (``creation`` runs), *live*, *ending* (``ending`` is set), *gone*. All changes are
    made in synchronous code.
    """

    def __init__(self, request: SandboxRequest, *, ephemeral: bool) -> None:
        self.id = request.sandbox
        self.key = request.key
        self.request = request
        self.ephemeral = ephemeral
        self.creation: asyncio.Task[None] | None = None
        self.ending: asyncio.Task[Ending] | None = None
        self.watch: asyncio.Task[None] | None = None
        self.sandbox: Sandbox | None = None
        self.peer: Peer | None = None
        self.deadline = 0.0
        self.secrets: tuple[str, ...] = ()
        self.tombstone: Reason | None = None
        self.reason: Reason | None = None
        self.evidence = ""
        self.admitted: dict[tuple[str, str, FileAccess], FileAccess] = {}
        self.revoked: set[str] = set()
        self.tunnels: set[Tunnel] = set()
        self.users = 0
        self.slot = asyncio.Lock()
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Entry {self.id} {self.key!r} {self.state}>"

    @property
    def state(self) -> Literal["creating", "live", "ending"]:
        """Where in its life the sandbox is."""
        if self.ending is not None or self.reason is not None:
            return "ending"
        return "live" if self.peer is not None and self.creation is not None and self.creation.done() else "creating"

    @property
    def usable(self) -> bool:
        """Whether a turn may start, or wait for the creation (L8)."""
        if self.tombstone is not None or self.state == "ending":
            return False
        return self.peer is None or not self.peer.closed

    def session(self, name: str) -> Session:
        """The session of this name, made when it is new."""
        found = self._sessions.get(name)
        if found is None:
            found = self._sessions[name] = Session(name)
            for old in list(self._sessions.values()):
                if len(self._sessions) <= MAX_SESSIONS:
                    break
                if old is not found and not old.waiting:
                    del self._sessions[old.name]
        self._sessions.move_to_end(name)
        return found

    def known(self, name: str) -> Session | None:
        """The session of this name, if a turn of it was ever started here."""
        return self._sessions.get(name)

    def busy(self) -> list[str]:
        """Names of the sessions that have a turn now."""
        return [s.name for s in self._sessions.values() if s.turn]

    def take_tokens(self) -> list[Token]:
        """The tokens of the turns that run now, which lose them: whoever takes one revokes it, and nobody else."""
        return [token for session in self._sessions.values() if (token := session.take_token()) is not None]

    def has_revoked(self, *routes: str) -> bool:
        """Whether one of these routes is closed for good."""
        return bool(self.revoked & {"all", *routes})
