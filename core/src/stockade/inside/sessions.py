"""The live engines of a sandbox, one a session."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path

from stockade.contracts.engine import Engine, EngineContext
from stockade.errors import ProtocolError
from stockade.inside import tree
from stockade.inside.listeners import Listener
from stockade.inside.options import Options
from stockade.model.turn import Endpoint
from stockade.wire.mux import Mux

MAX_SESSIONS = 32
"""Sessions kept alive; beyond it the one that was idle longest is closed (L12)."""
CLOSE = 2.0
"""Seconds that an engine has to close."""

log = logging.getLogger("stockade.inside")

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")


class Session:
    """One conversation: its engine while it lives, its listeners, and the mark of its processes."""

    def __init__(self, name: str, options: Options, environment: Mapping[str, str]) -> None:
        self.name = name
        self.users = 0
        """Turns that run or wait; a session with users is never evicted (L78)."""
        self.lock = asyncio.Lock()
        self.engine: Engine | None = None
        self.listeners: dict[str, Listener] = {}
        self._options = options
        self._environment = environment
        self._identity: tuple[type[Engine], Path] | None = None
        self._scope = ""

    def home(self, engine: str, key: str) -> Path:
        """The engine's own directory, created. Raises `ProtocolError` for names that are no names (L58)."""
        for name in (engine, key):
            if not _NAME.fullmatch(name):
                raise ProtocolError(f"{name!r} is not a name for a directory")
        home = self._options.state_dir / "engines" / engine / key
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        return home

    async def ensure_engine(self, cls: type[Engine], home: Path) -> tuple[Engine, str | None]:
        """The session's engine, and the native session to resume when it is new. Under `lock`."""
        if self._identity != (cls, home):
            await self.drop_engine()
        if self.engine is not None:
            return self.engine, None
        self._identity, self._scope = (cls, home), tree.new_scope()
        self.engine = cls(
            EngineContext(
                session=self.name,
                home=home,
                workspace=self._options.workspace,
                tier=self._options.tier,
                environment={**self._environment, tree.SCOPE: self._scope},
                log=logging.getLogger(f"stockade.engine.{cls.__module__}"),
            )
        )
        return self.engine, self._recall(home)

    async def endpoints(self, mux: Mux, routes: Mapping[str, str]) -> dict[str, Endpoint]:
        """Where the routes (names to placeholder keys) are reached; listens where nothing does yet."""
        for route in routes:
            if route not in self.listeners:
                listener = Listener(mux, route, self.name)
                await listener.start()
                self.listeners[route] = listener
        return {route: Endpoint(self.listeners[route].url, key) for route, key in routes.items()}

    async def kill(self, grace: float) -> None:
        """End every process that the engine started."""
        if self._scope and (left := await tree.end(tree.scope_finder(self._scope), grace=grace)):
            log.error("session %s: %d processes could not be killed", self.name, len(left))

    async def drop_engine(self) -> None:
        """Close the engine, then end what it left; the next turn gets a new one. Never raises for its faults."""
        engine, self.engine, self._identity = self.engine, None, None
        if engine is None:
            return
        try:
            async with asyncio.timeout(CLOSE):
                await engine.aclose()
        except Exception:
            log.warning("session %s: the engine did not close well", self.name, exc_info=True)
        await self.kill(grace=0.5)

    async def aclose(self) -> None:
        """Close everything. Idempotent."""
        await self.drop_engine()
        listeners, self.listeners = self.listeners, {}
        await asyncio.gather(*(listener.aclose() for listener in listeners.values()))

    # -- the native session, kept in the engine's home (L34) ---------------------------------------------

    def remember(self, native: str) -> None:
        """Write the native session of an outcome, so that a later sandbox can resume it."""
        if self._identity is None or not native:
            return
        path = self._memory(self._identity[1])
        beside = path.with_suffix(".new")
        beside.write_text(json.dumps({"native": native}))
        os.replace(beside, path)

    def _recall(self, home: Path) -> str | None:
        path = self._memory(home)
        try:
            native = json.loads(path.read_bytes()).get("native")
        except FileNotFoundError:
            return None
        except (ValueError, AttributeError):
            log.warning("%s is damaged; the conversation starts anew", path)
            return None
        return native if isinstance(native, str) and native else None

    def _memory(self, home: Path) -> Path:
        import hashlib

        return home / f"stockade-session-{hashlib.sha256(self.name.encode()).hexdigest()[:32]}.json"


class Sessions:
    """All sessions of a sandbox, least recently used first."""

    def __init__(self, options: Options, environment: Mapping[str, str]) -> None:
        self._options = options
        self._environment = environment
        self._sessions: dict[str, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def enter(self, name: str) -> tuple[Session, list[Session]]:
        """The session with one more user, and those that must be closed to make room. Pair with `leave`."""
        session = self._sessions.pop(name, None) or Session(name, self._options, self._environment)
        session.users += 1
        evicted = []
        for other in [other for other in self._sessions.values() if not other.users]:
            if len(self._sessions) < MAX_SESSIONS:
                break
            evicted.append(self._sessions.pop(other.name))
        self._sessions[name] = session
        return session, evicted

    def leave(self, session: Session) -> None:
        """A turn of the session is over (L9)."""
        session.users -= 1

    def pop(self, name: str) -> Session | None:
        """Take the session out."""
        return self._sessions.pop(name, None)

    def listeners(self, route: str | None = None) -> list[tuple[Session, Listener]]:
        """The open listeners, of one route or all."""
        return [
            (session, listener)
            for session in self._sessions.values()
            for name, listener in session.listeners.items()
            if route is None or name == route
        ]

    async def aclose(self) -> None:
        """Close all, at once."""
        sessions = list(self._sessions.values())
        self._sessions.clear()
        await asyncio.gather(*(session.aclose() for session in sessions), return_exceptions=True)
