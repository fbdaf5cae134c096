"""The kernel's end of one sandbox: greets it, pings it, opens its streams, validates its events."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from stockade.contracts.channel import Channel
from stockade.errors import ProtocolError, StockadeError
from stockade.model.events import MAX_EVENT, Event, Truncated, Unparsed
from stockade.wire.mux import Accept, Hello, Mux, MuxStream

log = logging.getLogger("stockade.wire")

_EVENTS: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="kind")])


class Peer:
    """One sandbox's inside program. ``accept`` gets the streams it opens (tunnels)."""

    def __init__(self, channel: Channel, *, sandbox: str, lease: float, accept: Accept) -> None:
        self._sandbox = sandbox
        self._lease = lease
        self._mux = Mux(channel, side="kernel", hello=Hello(epoch=sandbox), accept=accept)
        self._pinger: asyncio.Task[None] | None = None
        self.hello = Hello()

    async def start(self, timeout: float) -> None:
        """Greet; wait ``timeout`` seconds. Raises `ProtocolError` or `SandboxLost`."""
        self.hello = await self._mux.start(timeout)
        if self.hello.epoch != self._sandbox:
            raise ProtocolError(f"the peer says it is sandbox {self.hello.epoch!r}", sandbox=self._sandbox)
        self._pinger = asyncio.create_task(self._ping(), name=f"stockade-ping-{self._sandbox}")

    @property
    def concurrent(self) -> bool:
        """Whether the peer can run several turns at once; an older one gets one at a time (L10, L11)."""
        return "concurrent-turns" in self.hello.capabilities

    @property
    def closed(self) -> bool:
        """Whether the connection has ended."""
        return self._mux.closed

    async def wait_closed(self) -> StockadeError | None:
        """Return when the connection has ended, with the reason."""
        return await self._mux.wait_closed()

    async def open(self, kind: str, args: Mapping[str, Any]) -> MuxStream:
        """Open a stream."""
        return await self._mux.open(kind, args)

    async def control(self, op: str, timeout: float, **args: Any) -> dict[str, Any]:
        """One order to the inside program and its answer. Raises `TimeoutError` after ``timeout`` seconds."""
        async with asyncio.timeout(timeout):
            stream = await self._mux.open("control", {"op": op, **args})
            await stream.send_end()
            reply = b""
            while data := await stream.receive():
                reply += data
                if len(reply) > MAX_EVENT:
                    raise ProtocolError(f"the answer to {op} is over the cap", sandbox=self._sandbox)
        try:
            answer = json.loads(reply or b"{}")
        except ValueError as error:
            raise ProtocolError(f"the answer to {op} is not JSON", sandbox=self._sandbox) from error
        if not isinstance(answer, dict):
            raise ProtocolError(f"the answer to {op} is not an object", sandbox=self._sandbox)
        return answer

    async def aclose(self) -> None:
        """End the connection. Idempotent."""
        if self._pinger is not None:
            self._pinger.cancel()
            await asyncio.wait({self._pinger})
        await self._mux.aclose()

    async def _ping(self) -> None:
        # Pings keep the inside program's dead-man quiet. A late answer is no reason to end a busy sandbox (F71).
        while not self._mux.closed:
            with contextlib.suppress(TimeoutError, StockadeError):
                await self._mux.ping(self._lease)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._lease / 4):
                    await self._mux.wait_closed()


async def events(stream: MuxStream) -> AsyncIterator[list[Event]]:
    """The events of a turn's stream, as many at a time as have come. Raises `ProtocolError` for a line that is none.

    A line over the cap is dropped and reported as `Truncated`; a kind that this kernel does not know
    (a newer engine's) becomes `Unparsed`.
    """
    buffer = bytearray()
    dropped = 0
    while data := await stream.receive():
        buffer += data
        *lines, rest = buffer.split(b"\n")
        batch: list[Event] = []
        for line in lines:
            if dropped:
                batch.append(Truncated(dropped + len(line)))
                dropped = 0
            elif line:
                batch.append(_event(bytes(line)))
        buffer = bytearray(rest)
        if len(buffer) > MAX_EVENT:
            dropped += len(buffer)
            buffer.clear()
        if batch:
            yield batch
    if buffer or dropped:
        raise ProtocolError("the turn's stream ended within an event")


def _event(line: bytes) -> Event:
    try:
        return _EVENTS.validate_json(line)
    except ValidationError as error:
        if error.errors()[0]["type"] == "union_tag_invalid":
            return Unparsed(line[:4096].decode(errors="replace"))
        raise ProtocolError(f"an event is malformed: {error.errors(include_input=False)[0]['msg']}") from None
