"""Streams that the inside opens towards a route: checked, attributed, served, cut."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from stockade.contracts.route import Origin, Route, Stream
from stockade.errors import ProtocolError, SandboxLost
from stockade.plugins.answers import Answer
from stockade.runtime.entry import Entry, Tunnel
from stockade.wire.mux import MuxStream, StreamReset

log = logging.getLogger("stockade.routes")

CUT_TIME = 1.0
"""Seconds for telling the inside that its streams are cut; the route's side ends in any case."""


class RouteStream(Stream):
    """A tunnel as a route sees it: endings of the wire are `ConnectionError`."""

    def __init__(self, stream: MuxStream) -> None:
        self._stream = stream

    async def receive(self) -> bytes:
        try:
            return await self._stream.receive()
        except (StreamReset, SandboxLost, ProtocolError) as error:
            raise ConnectionResetError(str(error)) from error

    async def send(self, data: bytes) -> None:
        try:
            await self._stream.send(data)
        except (StreamReset, SandboxLost, ProtocolError) as error:
            raise ConnectionResetError(str(error)) from error

    async def send_end(self) -> None:
        try:
            await self._stream.send_end()
        except (SandboxLost, ProtocolError) as error:
            raise ConnectionResetError(str(error)) from error

    async def reset(self, code: str, message: str = "") -> None:
        await self._stream.reset(code, message)


async def accept(
    entry: Entry, routes: Mapping[str, Answer[Route]], stream: MuxStream, *, warranted: bool = False
) -> None:
    """Serve one stream that the inside opened. Everything but a tunnel to a known route is refused.

    ``warranted``: whether the kernel has a minter.
    """
    name, session_name = stream.args.get("route"), stream.args.get("session")
    if stream.kind != "tunnel" or not isinstance(name, str) or not isinstance(session_name, str):
        await stream.reset("unsupported", "only tunnels may be opened from inside")
        return
    route, session = routes.get(name), entry.known(session_name)
    if route is None or session is None:
        await stream.reset("denied", f"no route {name!r} for this session")
        return
    if entry.has_revoked(name):
        await stream.reset("revoked", f"route {name!r} was revoked")
        return
    task = asyncio.current_task()
    assert task is not None
    tunnel = Tunnel(name, stream, task)
    entry.tunnels.add(tunnel)
    origin = Origin(entry.id, session.name, name, key=session.key, warranted=warranted, caller=session)
    try:
        await route.value.serve(RouteStream(stream), origin)
    except ConnectionError:
        log.debug("%s: a connection to route %s broke", entry.id, name)
    except Exception:
        log.exception("%s: route %s of plugin %s failed", entry.id, name, route.plugin)
        await stream.reset("route_failed", f"route {name!r} failed")
    finally:
        entry.tunnels.discard(tunnel)


async def cut(entry: Entry, route: str) -> int:
    """Refuse new streams of ``route`` (``"all"`` for every route) and drop the live ones; returns how many."""
    entry.revoked.add(route)
    cut_now = [t for t in entry.tunnels if route in ("all", t.route)]
    # All of it before the first await: nothing that waits to be sent is sent any more.
    dropped = [t for t in cut_now if t.stream.drop("revoked", _why(t))]
    for tunnel in cut_now:
        tunnel.task.cancel()
    if dropped:  # the inside learns why; a channel that takes no bytes must not hold the cut up
        telling = [asyncio.ensure_future(t.stream.tell_reset("revoked", _why(t))) for t in dropped]
        await asyncio.wait(telling, timeout=CUT_TIME)
    return len(cut_now)


def _why(tunnel: Tunnel) -> str:
    return f"route {tunnel.route!r} was revoked"
