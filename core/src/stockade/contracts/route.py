"""Routes are the named ways out of a sandbox. They run in the kernel's process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from stockade.errors import TurnFailed
from stockade.model.authority import Token


class Stream(ABC):
    """One connection that something inside the sandbox made to the route's listener."""

    @abstractmethod
    async def receive(self) -> bytes:
        """The next bytes from inside, as they came; ``b""`` when the inside closed its half."""

    @abstractmethod
    async def send(self, data: bytes) -> None:
        """Bytes to the inside; waits for its credit. Raises `ConnectionError` when the stream is gone."""

    @abstractmethod
    async def send_end(self) -> None:
        """Close this half. Idempotent."""

    @abstractmethod
    async def reset(self, code: str, message: str = "") -> None:
        """Drop the connection in both directions. Idempotent."""


@dataclass(slots=True, kw_only=True, eq=False)
class Caller:
    """Whose turn runs in a session, from one turn to the next. The kernel changes it; a route only looks.

    But for ``refused``: why a route last refused a call of the turn, if it did (`Origin.refuse`).
    """

    user: str = ""
    engine: str = ""
    turn: str = ""
    token: Token | None = None
    refused: TurnFailed | None = None


@dataclass(frozen=True, slots=True)
class Origin:
    """Who is calling, as the kernel knows it, not as the caller says.

    ``key`` is the session's placeholder credential: a caller that does not present it is not the engine
    (L70). ``warranted`` says that this kernel mints tokens: a call without one (between turns, or after a
    revocation) has to be refused then. ``user``, ``engine``, ``turn`` and ``token`` change while the
    connection lives, because an engine keeps its connections from turn to turn: read them for each call,
    and never keep them.
    """

    sandbox: str
    session: str
    route: str
    key: str = field(default="", repr=False)
    warranted: bool = False
    caller: Caller = field(default_factory=Caller, repr=False)

    @property
    def user(self) -> str:
        """The user of the turn that runs now, else of the last one."""
        return self.caller.user

    @property
    def engine(self) -> str:
        """The engine of the turn that runs now, else of the last one."""
        return self.caller.engine

    @property
    def turn(self) -> str:
        """The turn that runs in the session now; empty between turns."""
        return self.caller.turn

    @property
    def token(self) -> Token | None:
        """The token of that turn, renewed before it expires; ``None`` between turns and once it is revoked (L45)."""
        return self.caller.token

    def refuse(self, ending: TurnFailed) -> None:
        """Tell the kernel that a call of the turn was refused: a turn that fails afterwards ends so.

        An engine sees only what the route answered, and cannot tell a budget of ours from a vendor's limit.
        """
        self.caller.refused = ending


class Route(ABC):
    """Serves the streams of one route name, for all sandboxes of a kernel."""

    def preflight(self, dialect: str) -> None:
        """Called before a sandbox is made for an engine that speaks ``dialect`` on this route.

        Raises `stockade.errors.NotConfigured` with the ways to configure it.
        """

    @abstractmethod
    async def serve(self, stream: Stream, origin: Origin) -> None:
        """Serve one connection until either side ends it. Runs in a task of its own.

        Cancelled when the route is revoked or the sandbox ends; the kernel resets the stream then.
        """

    async def aclose(self) -> None:
        """Release servers and clients. Idempotent."""
