"""One sandbox in the hands of a kit, which plays the kernel: the same wire, no registry."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stockade.archive.beneath import Destination
from stockade.archive.pack import pack
from stockade.archive.rules import Limits, Tally
from stockade.archive.unpack import unpack
from stockade.contracts.driver import Ending, Sandbox
from stockade.model.events import Ended, Event, Text
from stockade.model.spec import SandboxSpec
from stockade.model.turn import Outcome
from stockade.runtime.environment import sandbox_environment
from stockade.runtime.execs import STDERR, STDOUT
from stockade.runtime.paths import Home
from stockade.testing import agent, faults
from stockade.testing.driver import processes
from stockade.wire.blocking import BlockingStream
from stockade.wire.mux import MuxStream
from stockade.wire.peer import Peer, events

GRACE = 1.0
"""Seconds that the kit gives a sandbox to end when it does not matter."""

ROOMY = {"max_bytes": 10**8, "max_members": 1000}
"""Limits that no copy of a kit meets."""

AGENT = Path(agent.__file__).read_text()


@dataclass
class Done:
    """How a command ended."""

    stdout: bytes = b""
    stderr: bytes = b""
    result: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Standard output, without white space around it."""
        return self.stdout.decode(errors="replace").strip()


@dataclass
class Told:
    """A turn as the kernel heard it."""

    events: list[Event]

    @property
    def outcome(self) -> Outcome:
        """Its one outcome, which is its last event."""
        assert [type(event) for event in self.events].count(Ended) == 1, "not exactly one outcome"
        last = self.events[-1]
        assert isinstance(last, Ended), f"after the outcome came {last}"
        return last.outcome

    @property
    def text(self) -> str:
        """All text."""
        return "".join(event.text for event in self.events if isinstance(event, Text))


class World:
    """The directories of the kernel that the kit plays, under ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = Home(root / "home")
        self.home.ensure()
        self.work = root / "work"
        self.work.mkdir(exist_ok=True)

    def spec(self, **changes: Any) -> SandboxSpec:
        """A sandbox to be made, with its directories. ``extra`` are further variables."""
        # An id is unique for ever, as the kernel's are: it is the mark of the sandbox's processes.
        id = changes.pop("id", f"sb-{secrets.token_hex(8)}")
        state, run, workspace = self.home.state(id), self.home.run(id), self.work / id
        self.home.make(state)
        self.home.make(run)
        workspace.mkdir(exist_ok=True)
        values: dict[str, Any] = {
            "id": id,
            "key": id,
            "state_dir": state,
            "run_dir": run,
            "workspace": workspace,
            "environment": sandbox_environment(os.environ, state, id, changes.pop("extra", {})),
            "deadline": time.time() + 600,
            "lease": 30.0,
        }
        return SandboxSpec(**values | changes)


class Box:
    """A sandbox, the kernel's end of its channel, and what was planted in it.

    A ``silent`` one hears nothing of the kernel after the greeting.
    """

    def __init__(self, spec: SandboxSpec, sandbox: Sandbox, *, silent: bool = False) -> None:
        self.spec = spec
        self.sandbox = sandbox
        # Pings come four times a lease.
        self.peer = Peer(sandbox.channel, sandbox=spec.id, lease=1e6 if silent else spec.lease, accept=_refuse)
        self.marks: list[str] = []
        self.ended = False
        self._interpreter = ""

    async def greet(self, seconds: float) -> None:
        """HELLO. Raises as `Peer.start` does."""
        await self.peer.start(seconds)

    async def destroy(self, grace: float = GRACE) -> Ending:
        """Destroy the sandbox; a test that calls this is answerable for its end."""
        self.ended = True
        return await self.sandbox.destroy(grace)

    # -- commands --------------------------------------------------------------------------------------

    async def run(self, *argv: str, stdin: bytes = b"", **args: Any) -> Done:
        """A command to its end."""
        stream = await self._exec(*argv, **args)

        async def feed() -> None:
            await stream.send(stdin)
            await stream.send_end()

        feeding = asyncio.create_task(feed())
        try:
            return await _collect(stream)
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)

    async def sh(self, script: str, *words: str) -> str:
        """What a shell script prints; ``$1`` and so on are the words."""
        done = await self.run("sh", "-c", script, "sh", *words)
        assert done.result["exit_code"] == 0, f"{script!r} failed: {done}"
        return done.text

    async def python(self, script: str, *words: str) -> Any:
        """What a Python script prints, read as JSON. It runs on the inside program's own interpreter."""
        done = await self.run(*await self._python(script, *words))
        assert done.result["exit_code"] == 0, f"a script failed: {done.stderr.decode(errors='replace')}"
        return json.loads(done.stdout)

    async def plant(self, *kinds: str) -> str:
        """Processes that ignore SIGTERM and more (`stockade.testing.agent.KINDS`), and a parent of them; their mark."""
        mark = self.mark()
        stream = await self._exec(*await self._python(AGENT, mark, *kinds))
        said = b""
        while b"up\n" not in said:
            piece = await stream.receive()
            assert piece[:1] == b"\1", f"nothing was planted: {piece!r}"
            said += piece[1:]
        return mark

    def mark(self) -> str:
        """A new mark; what carries it is killed after the test."""
        self.marks.append(f"kit-{secrets.token_hex(8)}")
        return self.marks[-1]

    async def _python(self, script: str, *words: str) -> list[str]:
        if not self._interpreter:
            self._interpreter = await self.sh("readlink /proc/$PPID/exe")
        return [self._interpreter, "-I", "-S", "-c", script, *words]

    async def _exec(self, *argv: str, **args: Any) -> MuxStream:
        return await self.peer.open("exec", {"argv": list(argv), **args})

    # -- files -----------------------------------------------------------------------------------------

    async def upload(self, source: Path, target: str) -> None:
        """Copy a folder in."""
        stream = await self.peer.open("archive", {"op": "upload", "path": target, "into": "", **ROOMY})

        def work(blocking: BlockingStream) -> None:
            folder = os.open(source, os.O_RDONLY)
            try:
                for piece in pack(folder, Tally(Limits(**ROOMY))):
                    blocking.send(piece)
                blocking.flush()
            finally:
                os.close(folder)

        await BlockingStream(stream).run(work)
        await stream.send_end()
        while await stream.receive():
            pass

    async def download(self, source: str, target: Path) -> None:
        """Copy a file or folder out."""
        stream = await self.peer.open("archive", {"op": "download", "path": source, **ROOMY})

        def work(blocking: BlockingStream) -> None:
            destination = Destination(os.open(target.parent, os.O_RDONLY), target.name, overwrite=False)
            try:
                unpack(blocking.receive, destination, Tally(Limits(**ROOMY)))
            finally:
                destination.close()

        await BlockingStream(stream).run(work)

    # -- turns -----------------------------------------------------------------------------------------

    async def turn(self, prompt: str, session: str, *, cancel: bool = False) -> Told:
        """A turn of `stockade.testing.faults.FaultEngine`; with ``cancel`` ended after its first text."""
        stream = await self.peer.open(
            "turn", {"turn": session, "session": session, "engine": "fault", "entry": faults.ENTRY, "home": "shared"}
        )
        await stream.send(prompt.encode())
        await stream.send_end()
        heard: list[Event] = []
        async for batch in events(stream):
            heard += batch
            if cancel and any(isinstance(event, Text) for event in batch):
                cancel = False
                await self.peer.control("cancel", 20, turn=session)
        return Told(heard)

    # -- the end ---------------------------------------------------------------------------------------

    async def clean(self, seconds: float) -> None:
        """Leave nothing, whatever the test has seen: its own destroy is not repeated, what is left is killed."""
        try:
            async with asyncio.timeout(seconds):
                await self.peer.aclose()
                if not self.ended:
                    await self.destroy(0)
        finally:
            await asyncio.to_thread(processes.send, signal.SIGKILL, self.spec.id, *self.marks)


async def _collect(stream: MuxStream) -> Done:
    done = Done()
    while data := await stream.receive():
        if data[0] == STDOUT:
            done.stdout += data[1:]
        elif data[0] == STDERR:
            done.stderr += data[1:]
        else:
            done.result = json.loads(data[1:])
    return done


async def _refuse(stream: MuxStream) -> None:
    await stream.reset("revoked", "a kit has no routes")
