"""The one pipe: a container's standard streams, attached through the engine (F24)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import struct
from collections import deque
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import aiohttp
from aiodocker.exceptions import DockerError
from aiodocker.stream import Stream

from stockade.contracts.channel import Channel

log = logging.getLogger("stockade.docker")

HIGH_WATER = 1024 * 1024
"""Bytes received and not yet read at which the engine's stream is no longer read."""
MAX_LOG = 16 * 1024 * 1024
"""Bytes of the sandbox's log; what comes later is dropped."""
MAX_REPORT = 1024 * 1024
STDOUT = 1

LOADER = (
    "import json,struct,sys;f=open(0,'rb',buffering=0,closefd=False)\n"
    "def r(n):\n"
    " b=b''\n"
    " while len(b)<n:\n"
    "  p=f.read(n-len(b))\n"
    "  if not p:sys.exit(120)\n"
    "  b+=p\n"
    " return b\n"
    "ORDER=json.loads(r(struct.unpack('>I',r(4))[0]))\n"
    "exec(compile(ORDER['program'],'stockade-boot','exec'))"
)
"""What is on the command line: it reads `stockade_docker.boot` and the environment from the channel, and runs it."""

_PROGRAM = files("stockade_docker").joinpath("boot.py").read_text()
_GONE = (OSError, aiohttp.ClientError, DockerError, RuntimeError, AssertionError)
"""What the library raises on a connection that is gone."""


class AttachChannel(Channel):
    """Standard input and output of a container; its standard error goes to the log. Made by `open`."""

    def __init__(self, stream: Stream, log_file: Path) -> None:
        self._stream = stream
        self._log = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._logged = 0
        self._inbox: deque[bytes] = deque()
        self._held = 0
        self._ended = False
        self._closed = False
        self._readable = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._writing = asyncio.Lock()
        self._pump: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, stream: Stream, log_file: Path) -> AttachChannel:
        """Attach. Before the container starts, so that nothing of it is missed."""
        await stream.__aenter__()
        channel = cls(stream, log_file)
        channel._pump = asyncio.create_task(channel._receive(), name="stockade-docker-attach")
        return channel

    async def boot(self, environment: Mapping[str, str], places: list[str]) -> dict[str, Any]:
        """Send `stockade_docker.boot` and what it needs; what it reports. Raises `ConnectionError`."""
        order = json.dumps({"program": _PROGRAM, "environment": dict(environment), "places": places}).encode()
        await self.write(struct.pack(">I", len(order)) + order)
        size: int = struct.unpack(">I", await self._exactly(4))[0]
        if size > MAX_REPORT:
            raise ConnectionError("what came from the container is no report")
        try:
            return dict(json.loads(await self._exactly(size)))
        except ValueError as error:
            raise ConnectionError("what came from the container is no report") from error

    async def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = await self.read(count - len(data))
            if not piece:
                raise ConnectionError("the container ended before it was ready")
            data += piece
        return data

    async def read(self, limit: int) -> bytes:
        """See `Channel.read`."""
        while not self._inbox:
            if self._ended:
                return b""
            self._readable.clear()
            await self._readable.wait()
        data = self._inbox.popleft()
        if len(data) > limit:
            self._inbox.appendleft(data[limit:])
            data = data[:limit]
        self._held -= len(data)
        if self._held * 2 < HIGH_WATER:
            self._room.set()
        return data

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """See `Channel.write`."""
        async with self._writing:
            if self._ended or self._closed:
                raise ConnectionResetError("the container's end of the channel is gone")
            try:
                await self._stream.write_in(bytes(data))
            except _GONE as error:
                raise ConnectionResetError(f"the container's end of the channel is gone: {error}") from error

    async def drained(self, seconds: float) -> None:
        """Wait until all that the container said has arrived, at most so long."""
        if self._pump is not None:
            await asyncio.wait({self._pump}, timeout=seconds)

    async def aclose(self) -> None:
        """See `Channel.aclose`."""
        if self._closed:
            return
        self._closed = True
        self._end()
        if self._pump is not None:
            self._pump.cancel()
        with contextlib.suppress(*_GONE):
            await self._stream.close()

    def _end(self) -> None:
        self._ended = True
        self._readable.set()

    async def _receive(self) -> None:
        try:
            while (message := await self._stream.read_out()) is not None:
                if message.stream != STDOUT:
                    left = MAX_LOG - self._logged
                    self._logged += os.write(self._log, message.data[:left]) if left > 0 else 0
                    continue
                self._inbox.append(message.data)
                self._held += len(message.data)
                self._readable.set()
                if self._held >= HIGH_WATER:
                    self._room.clear()
                    await self._room.wait()
        except _GONE as error:
            log.debug("the attached stream broke: %s", error)
        finally:
            os.close(self._log)
            self._end()
