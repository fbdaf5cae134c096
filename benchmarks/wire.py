"""Small events through the wire, and a big tunnel beside them. The inside is a process of its own."""

from __future__ import annotations

import asyncio
import resource
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.report import Bound, Series, row
from stockade.inside.turns import Outbox
from stockade.model.events import Text
from stockade.model.turn import Outcome
from stockade.wire.channels import StreamChannel
from stockade.wire.mux import Hello, Mux, MuxStream
from stockade.wire.peer import events

EVENTS = 300_000
TUNNEL = 1024**3
PACE = 0.005
"""Seconds between two events beside the tunnel."""
MIB = 1024 * 1024


def main() -> list[Bound]:
    """Both measurements, each on a connection of its own."""
    return [*asyncio.run(_many()), *asyncio.run(_beside())]


async def _many() -> list[Bound]:
    mux, process = await _connect("many")
    stream = await mux.open("turn", {})
    started = time.perf_counter()
    count = 0
    async for batch in events(stream):
        count += len(batch)
    seconds = time.perf_counter() - started
    await mux.aclose()
    process.wait()
    row(f"{count:,} events", f"{seconds:9.2f} s")
    return [Bound("small events", count / seconds, 50_000, "a second", least=True)]


async def _beside() -> list[Bound]:
    tunnel_done = asyncio.Event()
    received, peaks = 0, [0, 0]

    async def tunnel(stream: MuxStream) -> None:
        nonlocal received
        while data := await stream.receive():
            received += len(data)
            peaks[received > TUNNEL // 10] = _resident()
        tunnel_done.set()

    mux, process = await _connect("beside", tunnel)
    stream = await mux.open("turn", {})
    delays: list[float] = []
    started = time.perf_counter()
    async for batch in events(stream):
        now = time.monotonic()
        delays += [now - float(event.text) for event in batch if isinstance(event, Text)]
    seconds = time.perf_counter() - started
    await tunnel_done.wait()
    await mux.aclose()
    process.wait()
    inside = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    row("1 GiB through a tunnel", f"{seconds:9.2f} s, {received / seconds / MIB:,.0f} MiB/s")
    row("  events beside it, delay", Series(delays))
    row("  memory of the kernel's end", f"{peaks[0] / MIB:9.1f} MiB at a tenth, {peaks[1] / MIB:.1f} MiB at the end")
    return [
        Bound("an event's delay beside 1 GiB, p99", Series(delays).p99 * 1000, 20, "ms"),
        Bound("growth of the kernel's end", (peaks[1] - peaks[0]) / MIB, 16, "MiB"),
        Bound("largest memory of the inside's end", inside, 128, "MiB"),
    ]


async def _connect(mode: str, accept: object = None) -> tuple[Mux, subprocess.Popen[bytes]]:
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.wire", mode, str(theirs.fileno())],
            pass_fds=(theirs.fileno(),),
            cwd=Path(__file__).parents[1],
        )
    mux = Mux(await StreamChannel.from_socket(ours), side="kernel", hello=Hello(), accept=accept)  # type: ignore[arg-type]
    await mux.start(30)
    return mux, process


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


# -- the inside's end -------------------------------------------------------------------------------


async def _inside(mode: str, fd: int) -> None:
    async def accept(stream: MuxStream) -> None:
        box = Outbox(stream)
        if mode == "many":
            for _ in range(EVENTS):
                await box.emit(Text("word "))
        else:
            pouring = asyncio.create_task(_pour(mux))
            while not pouring.done():
                await box.emit(Text(repr(time.monotonic())))
                await asyncio.sleep(PACE)
            await pouring
        await box.finish(Outcome("completed"))

    channel = await StreamChannel.from_socket(socket.socket(fileno=fd))
    mux = Mux(channel, side="inside", hello=Hello(("turn",)), accept=accept)
    await mux.start(30)
    await mux.wait_closed()


async def _pour(mux: Mux) -> None:
    stream = await mux.open("tunnel", {})
    block = struct.pack("Q", 7) * (MIB // 8)
    for _ in range(TUNNEL // MIB):
        await stream.send(block)
    await stream.send_end()


if __name__ == "__main__":
    asyncio.run(_inside(sys.argv[1], int(sys.argv[2])))
