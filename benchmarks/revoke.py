"""From the call of ``Kernel.revoke`` to the last byte of any stream inside, with a hundred streams that send.

The inside is a process of its own, on the real wire. Two loads: what models send (small pieces, often), and
as much as the channel takes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.report import Bound, Series, row
from stockade import Kernel
from stockade.contracts.driver import Driver, Ending, Ownership, Reaped, Sandbox
from stockade.contracts.route import Origin, Route, Stream
from stockade.inside.turns import Outbox
from stockade.model.events import Text
from stockade.model.isolation import Isolation
from stockade.model.spec import SandboxSpec
from stockade.model.turn import Outcome
from stockade.plugins.answers import Answer
from stockade.testing.fakes import NullEngine
from stockade.wire.channels import StreamChannel
from stockade.wire.mux import Hello, Mux, MuxStream, StreamReset

ROUNDS = 25
STREAMS = 100
LOADS: dict[str, tuple[int, float]] = {"100 bytes every 5 ms": (100, 0.005), "as much as it takes": (64 * 1024, 0.0)}
"""Bytes of a piece, and seconds between two."""
RUNNING = 0.3
"""Seconds that the streams run before they are cut."""


class Pouring(Route):
    """Sends pieces for ever."""

    def __init__(self, size: int, pause: float) -> None:
        self._piece = b"x" * size
        self._pause = pause

    async def serve(self, stream: Stream, origin: Origin) -> None:
        while True:
            await stream.send(self._piece)
            await asyncio.sleep(self._pause)


class Pourable(NullEngine):
    """An engine by name only: `_inside` is its program."""

    ROUTES: ClassVar[Mapping[str, str]] = {"pouring": "bytes"}


class Place(Sandbox):
    """This file, in a process of its own."""

    def __init__(self, spec: SandboxSpec, process: subprocess.Popen[bytes], channel: StreamChannel) -> None:
        self.id = spec.id
        self.isolation = Isolation(0, "none", "none", "none", "none", "none", False)
        self.channel = channel
        self._process = process

    async def wait(self) -> Ending:
        await asyncio.to_thread(self._process.wait)
        return Ending("exited")

    async def destroy(self, grace: float) -> Ending:
        self._process.kill()
        await asyncio.to_thread(self._process.wait)
        return Ending("destroyed")

    async def revoke(self, route: str) -> None:
        """There is no other way out."""


class Places(Driver):
    """Makes `Place`s."""

    async def create(self, spec: SandboxSpec) -> Sandbox:
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "benchmarks.revoke", spec.id, str(theirs.fileno())]
            process = subprocess.Popen(command, pass_fds=(theirs.fileno(),), cwd=Path(__file__).parents[1])
        return Place(spec, process, await StreamChannel.from_socket(ours))

    async def reap(self, owned: Ownership) -> list[Reaped]:
        return []


def main() -> list[Bound]:
    """Each round has a new sandbox."""
    return asyncio.run(_main())


async def _main() -> list[Bound]:
    bounds = []
    for name, (size, pause) in LOADS.items():
        last, done = [], []
        with tempfile.TemporaryDirectory() as scratch:
            async with Kernel.open(home=scratch, plugins=["stockade-authority"]) as kernel:
                kernel._boot.routes["pouring"] = Answer("bench", Pouring(size, pause))  # type: ignore[index]
                kernel._catalog._drivers["places"] = Places({})
                kernel._catalog._engines["pourable"] = ("nothing:Nothing", Pourable)
                for count in range(ROUNDS):
                    streams, returned = await _round(kernel, f"k{count}")
                    last += streams
                    done.append(returned)
        row(f"{STREAMS} streams, {name}: revoke returns", Series(done))
        row("  last byte of a stream", Series(last))
        bounds.append(Bound(f"last byte after revoke, {name}, p99", Series(last).p99 * 1000, 50, "ms"))
    return bounds


async def _round(kernel: Kernel, key: str) -> tuple[list[float], float]:
    """Seconds from the call: to each stream's last byte (0: before), and to its return."""
    turn = await kernel.turn("pour", engine="pourable", driver="places", sandbox=key)
    told = aiter(turn)
    await anext(told)
    await asyncio.sleep(RUNNING)
    begun = time.monotonic()
    cut = await kernel.revoke(key, "all")
    returned = time.monotonic() - begun
    if cut != STREAMS:
        raise SystemExit(f"{cut} streams were cut, not {STREAMS}")
    event = await anext(told)
    assert isinstance(event, Text)
    await turn.outcome()
    await kernel.destroy(key)
    return [max(0.0, moment - begun) for moment in json.loads(event.text)], returned


# -- the inside's end -------------------------------------------------------------------------------


async def _read(stream: MuxStream) -> float:
    """The time of the last byte."""
    last = 0.0
    with contextlib.suppress(StreamReset):
        while await stream.receive():
            last = time.monotonic()
    return last


async def _inside(sandbox: str, fd: int) -> None:
    async def accept(stream: MuxStream) -> None:
        while await stream.receive():
            pass
        args: Mapping[str, Any] = {"route": "pouring", "session": stream.args["session"]}
        reading = [asyncio.create_task(_read(await mux.open("tunnel", args))) for _ in range(STREAMS)]
        box = Outbox(stream)
        await box.emit(Text("pouring"))
        await box.emit(Text(json.dumps(await asyncio.gather(*reading))))
        await box.finish(Outcome("completed"))

    channel = await StreamChannel.from_socket(socket.socket(fileno=fd))
    mux = Mux(channel, side="inside", hello=Hello(("turn", "tunnel"), sandbox), accept=accept)
    await mux.start(30)
    await mux.wait_closed()


if __name__ == "__main__":
    asyncio.run(_inside(sys.argv[1], int(sys.argv[2])))
