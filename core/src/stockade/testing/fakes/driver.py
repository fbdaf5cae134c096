"""An in-memory driver: real wire, no process. For tests that inject failures and delays."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from stockade.contracts.driver import Driver, Ending, Ownership, Reaped, Sandbox
from stockade.model.events import Ended, Event, encode
from stockade.model.isolation import Isolation
from stockade.model.spec import SandboxSpec
from stockade.model.turn import Outcome
from stockade.testing.fakes.channel import MemoryChannel
from stockade.wire.mux import Hello, Mux, MuxStream, StreamReset

CAPABILITIES = ("turn", "exec", "tunnel", "control", "concurrent-turns")

Behaviour = Callable[["FakeTurn"], Awaitable[Outcome]]


class FakeTurn:
    """What a behaviour gets: the message and arguments, `emit`, and ``cancelled`` to wait for."""

    def __init__(self, sandbox: MemorySandbox, stream: MuxStream, message: str) -> None:
        self.sandbox = sandbox
        self.stream = stream
        self.message = message
        self.args: Mapping[str, Any] = stream.args
        self.cancelled = asyncio.Event()

    async def emit(self, event: Event) -> None:
        """Send one event."""
        await self.stream.send(encode(event))


async def complete(turn: FakeTurn) -> Outcome:
    """The default behaviour: a turn that completes at once."""
    return Outcome("completed")


class MemorySandbox(Sandbox):
    """Runs a `Behaviour` for each turn at the other end of a memory channel."""

    def __init__(self, spec: SandboxSpec, behaviour: Behaviour, capabilities: tuple[str, ...]) -> None:
        self.id = spec.id
        self.spec = spec
        self.isolation = Isolation(0, "none", "none", "none", "none", "none", False, spec.provider_keys)
        self.channel, self._far = MemoryChannel.pair()
        self._behaviour = behaviour
        self._ended: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        hello = Hello(capabilities, spec.id)
        self.mux = Mux(self._far, side="inside", hello=hello, accept=self._accept)
        self._greeting = asyncio.create_task(self.mux.start(10))
        self._greeting.add_done_callback(lambda t: t.cancelled() or t.exception())
        self.turns: dict[str, FakeTurn] = {}
        self.destroyed = 0
        self.revoked: list[str] = []
        self.destroy_errors: list[Exception] = []

    async def _accept(self, stream: MuxStream) -> None:
        if stream.kind == "turn":
            await self._turn(stream)
        elif stream.kind == "control":
            if stream.args["op"] == "cancel" and stream.args["turn"] in self.turns:
                self.turns[stream.args["turn"]].cancelled.set()
            await stream.send(json.dumps({"ok": True}).encode())
            await stream.send_end()
        else:
            await stream.reset("unsupported")

    async def _turn(self, stream: MuxStream) -> None:
        message = b""
        while data := await stream.receive():
            message += data
        turn = self.turns[stream.args["turn"]] = FakeTurn(self, stream, message.decode())
        outcome = await self._behaviour(turn)
        try:
            await stream.send(encode(Ended(outcome)))
            await stream.send_end()
        except StreamReset:
            return

    async def crash(self, reason: str = "lost", evidence: str = "crashed by the test") -> None:
        """End at once, as if the machine had pulled the plug."""
        if not self._ended.done():
            self._ended.set_result(Ending(reason, evidence))  # type: ignore[arg-type]
        await self._far.aclose()

    async def wait(self) -> Ending:
        return await asyncio.shield(self._ended)

    async def destroy(self, grace: float) -> Ending:
        self.destroyed += 1
        if self.destroy_errors:
            raise self.destroy_errors.pop(0)
        if not self._ended.done():
            self._ended.set_result(Ending("destroyed"))
        await self.mux.aclose()
        return self._ended.result()

    async def revoke(self, route: str) -> None:
        self.revoked.append(route)


class MemoryDriver(Driver):
    """Makes `MemorySandbox`es. Change ``behaviour``, ``capabilities`` and ``before_create`` at will."""

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(options or {})
        self.behaviour: Behaviour = complete
        self.capabilities = CAPABILITIES
        self.before_create: Callable[[SandboxSpec], Awaitable[None]] | None = None
        self.sandboxes: list[MemorySandbox] = []
        self.reaped: list[str] = []

    async def create(self, spec: SandboxSpec) -> Sandbox:
        if self.before_create is not None:
            await self.before_create(spec)
        sandbox = MemorySandbox(spec, self.behaviour, self.capabilities)
        self.sandboxes.append(sandbox)
        return sandbox

    async def reap(self, owned: Ownership) -> list[Reaped]:
        self.reaped += [orphan.id for orphan in owned.orphans]
        return [Reaped(orphan.id, True, "it was never real") for orphan in owned.orphans]
