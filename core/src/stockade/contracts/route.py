"""Routes are the named ways out of a sandbox. They run in the kernel's process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

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


@dataclass(frozen=True, slots=True)
class Origin:
    """Who is calling, as the kernel knows it, not as the caller says.

    ``turn`` and ``token`` are those of the turn that is running in the session now; empty and ``None``
    between turns. ``key`` is the session's placeholder credential: a caller that does not present it
    is not the engine (L70).
    """

    sandbox: str
    session: str
    route: str
    user: str = ""
    engine: str = ""
    turn: str = ""
    token: Token | None = None
    key: str = field(default="", repr=False)


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
