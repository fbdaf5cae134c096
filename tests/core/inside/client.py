"""A kernel's end of the wire for tests, without a kernel."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from stockade.contracts.channel import Channel
from stockade.wire.mux import Accept, Hello, Mux, MuxStream

ENGINE = "scripted_engine:Scripted"

_numbers = count(1)


@dataclass
class Done:
    """How a command ended."""

    stdout: bytes = b""
    stderr: bytes = b""
    result: dict[str, Any] = field(default_factory=dict)


class Client:
    """Opens streams and collects what comes back."""

    def __init__(self, channel: Channel, sandbox: str, accept: Accept | None = None) -> None:
        self.mux = Mux(channel, side="kernel", hello=Hello(epoch=sandbox), accept=accept)

    async def start(self) -> Hello:
        return await self.mux.start(30)

    async def open_exec(self, *argv: str, **args: Any) -> MuxStream:
        return await self.mux.open("exec", {"argv": list(argv), **args})

    async def exec(self, *argv: str, stdin: bytes = b"", **args: Any) -> Done:
        stream = await self.open_exec(*argv, **args)

        async def feed() -> None:
            await stream.send(stdin)
            await stream.send_end()

        done, _ = await asyncio.gather(collect(stream), feed())
        return done

    async def text(self, *argv: str, **args: Any) -> str:
        return (await self.exec(*argv, **args)).stdout.decode()

    async def open_turn(self, message: dict[str, Any] | bytes, **args: Any) -> MuxStream:
        stream = await self.mux.open(
            "turn",
            {
                "turn": f"t{next(_numbers)}",
                "session": "main",
                "engine": "scripted",
                "entry": ENGINE,
                "home": "shared",
                **args,
            },
        )
        await stream.send(message if isinstance(message, bytes) else json.dumps(message).encode())
        await stream.send_end()
        return stream

    async def turn(self, message: dict[str, Any] | bytes, **args: Any) -> list[dict[str, Any]]:
        return await events(await self.open_turn(message, **args))

    async def outcome(self, message: dict[str, Any] | bytes, **args: Any) -> dict[str, Any]:
        last = (await self.turn(message, **args))[-1]
        assert last["kind"] == "ended"
        return last["outcome"]  # type: ignore[no-any-return]

    async def facts(self, **args: Any) -> dict[str, Any]:
        return json.loads((await self.turn({"facts": True}, **args))[0]["text"])  # type: ignore[no-any-return]

    async def control(self, op: str, **args: Any) -> dict[str, Any]:
        stream = await self.mux.open("control", {"op": op, **args})
        await stream.send_end()
        return json.loads(await stream.receive())  # type: ignore[no-any-return]


async def collect(stream: MuxStream) -> Done:
    """What a command printed, and its result."""
    done = Done()
    while data := await stream.receive():
        if data[0] == 1:
            done.stdout += data[1:]
        elif data[0] == 2:
            done.stderr += data[1:]
        else:
            done.result = json.loads(data[1:])
    return done


async def first(stream: MuxStream) -> bytes:
    """The first output of a command: it runs then."""
    return (await stream.receive())[1:]


async def events(stream: MuxStream) -> list[dict[str, Any]]:
    """All events of a turn, as they crossed the wire."""
    received = b""
    while data := await stream.receive():
        received += data
    return [json.loads(line) for line in received.splitlines()]


async def until(condition: Callable[[], object], what: str, seconds: float = 20) -> None:
    """Wait until ``condition`` holds."""
    try:
        async with asyncio.timeout(seconds):
            while True:
                # In a thread, so that the loop goes on: what is waited for is outside this process.
                if await asyncio.to_thread(condition):
                    return
    except TimeoutError:
        raise AssertionError(f"not within {seconds} s: {what}") from None


def running(mark: str) -> list[int]:
    """Pids of the live processes whose command line or environment holds ``mark``."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            state = (entry / "stat").read_bytes().rpartition(b")")[2].split()[0]
            if state != b"Z" and any(mark.encode() in (entry / name).read_bytes() for name in ("cmdline", "environ")):
                found.append(int(entry.name))
        except OSError:
            continue
    return found
