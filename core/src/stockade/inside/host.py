"""What the kernel may ask of a sandbox: one handler a kind of stream."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from typing import Any

from stockade.errors import ProtocolError
from stockade.inside import execs
from stockade.inside.engines import Loader
from stockade.inside.options import Options
from stockade.inside.sessions import Sessions
from stockade.inside.turns import RunningTurn, TurnRequest
from stockade.wire.mux import Mux, MuxStream

CANCEL = 15.0
"""Seconds after which ``cancel`` and ``close_session`` answer although the turn has not ended."""
SHUTDOWN = 1.0
"""Seconds that running turns have to end when the sandbox is asked to."""

log = logging.getLogger("stockade.inside")


class Host:
    """Serves the streams of one kernel."""

    def __init__(self, options: Options, loader: Loader) -> None:
        self._options = options
        self._loader = loader
        # The environment is complete when the program starts and never changes after (L63).
        self._environment = dict(os.environ)
        # Resolved now, before any other program runs in here: of what is made a link later, none is followed.
        self._folders = tuple((str(path), os.path.realpath(path)) for path in (options.workspace, options.state_dir))
        self._sessions = Sessions(options, self._environment)
        self._turns: dict[str, RunningTurn] = {}
        self._execs = 0
        self._mux: Mux | None = None

    def attach(self, mux: Mux) -> None:
        """The connection whose streams come to `accept`. Call once, before it starts."""
        self._mux = mux

    async def accept(self, stream: MuxStream) -> None:
        """Serve one stream that the kernel opened."""
        if stream.kind == "turn":
            await self._turn(stream)
        elif stream.kind == "exec":
            await self._exec(stream)
        elif stream.kind == "control":
            await self._control(stream)
        elif stream.kind in ("read", "write", "archive"):
            from stockade.inside import files  # most sandboxes copy nothing, and all should start fast

            await files.serve(stream, files.Roots(self._folders))
        else:
            await stream.reset("unsupported", f"this sandbox has no {stream.kind!r} streams")

    async def aclose(self) -> None:
        """Cancel the turns and close the engines, each bounded; processes that are left die with the program."""
        turns = list(self._turns.values())
        for turn in turns:
            turn.cancelled.set()
        if turns:
            await asyncio.wait([asyncio.create_task(turn.ended.wait()) for turn in turns], timeout=SHUTDOWN)
        await self._sessions.aclose()

    async def _turn(self, stream: MuxStream) -> None:
        try:
            request = TurnRequest.parse(stream.args)
        except ProtocolError as error:
            await stream.reset(error.code, error.message)
            return
        if request.turn in self._turns:
            await stream.reset("protocol", f"turn {request.turn} is running already")
            return
        assert self._mux is not None
        session, evicted = self._sessions.enter(request.session)
        turn = self._turns[request.turn] = RunningTurn(request, session)
        try:
            for other in evicted:
                await other.aclose()
            await turn.run(stream, self._mux, self._loader)
        finally:
            del self._turns[request.turn]
            self._sessions.leave(session)
            turn.ended.set()

    async def _exec(self, stream: MuxStream) -> None:
        self._execs += 1
        try:
            await execs.serve(stream, self._options.workspace, self._environment)
        except ProtocolError as error:
            await stream.reset(error.code, error.message)
        finally:
            self._execs -= 1

    async def _control(self, stream: MuxStream) -> None:
        op = stream.args.get("op")
        if op == "cancel":
            answer = await self._cancel(str(stream.args.get("turn")))
        elif op == "close_session":
            answer = await self._close_session(str(stream.args.get("session")))
        elif op == "revoke":
            answer = await self._revoke(str(stream.args.get("route")))
        elif op == "stats":
            answer = self._stats()
        else:
            await stream.reset("unsupported", f"no control operation {op!r}")
            return
        await stream.send(json.dumps(answer).encode())
        await stream.send_end()

    async def _cancel(self, turn_id: str) -> dict[str, Any]:
        turn = self._turns.get(turn_id)
        if turn is None:
            return {"cancelled": False}
        turn.cancelled.set()
        await _bounded(turn)
        return {"cancelled": True}

    async def _close_session(self, name: str) -> dict[str, Any]:
        running = [turn for turn in self._turns.values() if turn.request.session == name]
        for turn in running:
            turn.cancelled.set()
        for turn in running:
            await _bounded(turn)
        session = self._sessions.pop(name)
        if session is not None:
            await session.aclose()
        return {"closed": session is not None}

    async def _revoke(self, route: str) -> dict[str, Any]:
        """Stop listening and cut what is open; the kernel refuses new streams by itself."""
        found = self._sessions.listeners(route)
        cut = sum(listener.connections for _, listener in found)
        for session, listener in found:
            session.listeners.pop(route, None)
            await listener.aclose()
        return {"listeners": len(found), "connections": cut}

    def _stats(self) -> dict[str, Any]:
        with open("/proc/self/statm", "rb") as file:
            resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return {
            "sessions": len(self._sessions),
            "turns": sorted(self._turns),
            "execs": self._execs,
            "tunnels": sum(listener.connections for _, listener in self._sessions.listeners()),
            "rss": resident,
        }


async def _bounded(turn: RunningTurn) -> None:
    try:
        async with asyncio.timeout(CANCEL):
            await turn.ended.wait()
    except TimeoutError:
        log.error("turn %s did not end within %g s of its cancellation", turn.request.turn, CANCEL)
