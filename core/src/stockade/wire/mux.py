"""Many streams on one channel: HELLO, open, credit, reset, ping. Both ends. Standard library only.

Everything read is untrusted: a peer that breaks the rules ends the connection with a typed
`ProtocolError`, never with another exception.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal

from stockade.contracts.channel import Channel
from stockade.errors import ProtocolError, SandboxLost, StockadeError
from stockade.wire import frames
from stockade.wire.frames import CREDIT, DATA, END, HELLO, OPEN, PING, PONG, RESET
from stockade.wire.hello import MAX_OPEN, PROTOCOL, Hello, dump_object, load_object
from stockade.wire.stream import MuxStream, StreamReset

__all__ = ["PROTOCOL", "Hello", "Mux", "MuxStream", "StreamReset"]

MAX_STREAMS = 512
"""Streams that a peer may have open at once."""
READ = 256 * 1024

log = logging.getLogger("stockade.wire")

Accept = Callable[[MuxStream], Awaitable[None]]


class Mux:
    """One end. ``accept`` gets each stream the peer opens, in a task of its own."""

    def __init__(
        self, channel: Channel, *, side: Literal["kernel", "inside"], hello: Hello, accept: Accept | None = None
    ) -> None:
        self._channel = channel
        self._side = side
        self._hello = hello
        self._accept = accept
        self._next_id = 1 if side == "kernel" else 2
        self._highest_peer_id = 0
        self._streams: dict[int, MuxStream] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._pump: asyncio.Task[None] | None = None
        self._peer: asyncio.Future[Hello] | None = None
        self._pings: dict[bytes, asyncio.Future[None]] = {}
        self._ping_count = 0
        self._closed = asyncio.Event()
        self._failure: StockadeError | None = None
        self.last_frame = time.monotonic()
        self.skipped = 0
        """Frames of unknown type that were skipped."""

    # -- life ---------------------------------------------------------------------------------------

    async def start(self, timeout: float) -> Hello:
        """Exchange HELLOs. Call once. Raises `ProtocolError` or `SandboxLost` (also after ``timeout`` seconds)."""
        self._peer = asyncio.get_running_loop().create_future()
        self._peer.add_done_callback(lambda f: f.cancelled() or f.exception())
        self._pump = asyncio.create_task(self._read_all(), name="stockade-mux")
        await self.write(frames.encode(HELLO, 0, self._hello.encode()))
        try:
            async with asyncio.timeout(timeout):
                return await asyncio.shield(self._peer)
        except TimeoutError:
            raise SandboxLost(
                f"no greeting within {timeout:g} s",
                hint="See the sandbox's log; a slow host may need a longer setting.",
            ) from None

    async def wait_closed(self) -> StockadeError | None:
        """Return when the connection has ended, with the reason; ``None`` after `aclose`."""
        await self._closed.wait()
        return self._failure

    @property
    def closed(self) -> bool:
        """Whether the connection has ended."""
        return self._closed.is_set()

    async def aclose(self) -> None:
        """End the connection and every stream at once. Idempotent."""
        self._end(None)
        tasks = [task for task in (*self._tasks, self._pump) if task and task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._channel.aclose()

    def _end(self, failure: StockadeError | None) -> None:
        if self._closed.is_set():
            return
        self._failure = failure
        self._closed.set()
        ending = failure or SandboxLost("the connection to the sandbox was closed")
        for stream in list(self._streams.values()):
            stream.fail(ending)
        self._streams.clear()
        for waiter in (self._peer, *self._pings.values()):
            if waiter is not None and not waiter.done():
                waiter.set_exception(ending)

    # -- sending --------------------------------------------------------------------------------------

    async def write(self, data: bytes) -> None:
        """Write whole frames. Raises the connection's failure when it has ended."""
        if self._closed.is_set():
            raise self._failure or SandboxLost("the connection to the sandbox was closed")
        try:
            await self._channel.write(data)
        except (ConnectionError, OSError) as error:
            self._end(SandboxLost(f"the channel broke: {error}"))
            raise self._failure or SandboxLost("the channel broke") from error

    async def open(self, kind: str, args: Mapping[str, Any]) -> MuxStream:
        """Open a stream. ``args`` is JSON of at most `MAX_OPEN` bytes."""
        payload = dump_object({"kind": kind, "args": args})
        if len(payload) > MAX_OPEN:
            raise ProtocolError(f"arguments of {len(payload)} bytes are over the cap of {MAX_OPEN}")
        stream = MuxStream(self, self._next_id, kind, args)
        self._next_id += 2
        self._streams[stream.id] = stream
        await self.write(frames.encode(OPEN, stream.id, payload))
        return stream

    async def ping(self, timeout: float) -> float:
        """Seconds of a round trip. Raises `TimeoutError`, or the connection's failure."""
        self._ping_count += 1
        token = self._ping_count.to_bytes(8, "big")
        waiter = self._pings[token] = asyncio.get_running_loop().create_future()
        started = time.monotonic()
        try:
            await self.write(frames.encode(PING, 0, token))
            async with asyncio.timeout(timeout):
                await waiter
        finally:
            self._pings.pop(token, None)
            if waiter.done() and not waiter.cancelled():
                waiter.exception()
        return time.monotonic() - started

    async def send_reset(self, stream: int, code: str, message: str) -> None:
        """Tell the peer that a stream is gone; a connection that is gone needs no telling."""
        payload = dump_object({"code": code, "message": message[:4096]})
        with contextlib.suppress(StockadeError):
            await self.write(frames.encode(RESET, stream, payload))

    def forget(self, stream: MuxStream) -> None:
        """The stream takes no more frames."""
        self._streams.pop(stream.id, None)

    def forget_finished(self, stream: MuxStream) -> None:
        """Forget the stream once both halves are closed."""
        if stream.finished:
            self.forget(stream)

    # -- receiving --------------------------------------------------------------------------------------

    async def _read_all(self) -> None:
        decoder = frames.Decoder()
        try:
            while data := await self._channel.read(READ):
                self.last_frame = time.monotonic()
                for frame in decoder.feed(data):
                    await self._handle(frame)
            torn = f" within a frame ({decoder.pending} bytes)" if decoder.pending else ""
            self._end(SandboxLost(f"the channel closed{torn}"))
        except ProtocolError as error:
            self._end(error)
        except StockadeError as error:
            self._end(error if isinstance(error, SandboxLost) else SandboxLost(str(error)))
        except asyncio.CancelledError:
            self._end(None)
            raise
        except BaseException as error:
            self._end(ProtocolError(f"the reader failed: {type(error).__name__}"))
            log.exception("wire reader failed")
        finally:
            await self._channel.aclose()

    async def _handle(self, frame: frames.Frame) -> None:
        type_, id, payload = frame
        if self._peer is not None and not self._peer.done():
            if type_ != HELLO:
                raise ProtocolError(f"expected HELLO, got {frames.NAMES.get(type_, type_)}")
            self._peer.set_result(Hello.decode(payload))
        elif type_ == DATA:
            stream = self._known(id)
            if stream is not None and not stream.feed(payload):
                raise ProtocolError(f"stream {id}: data beyond its credit or after its end")
        elif type_ == CREDIT:
            stream = self._known(id)
            if len(payload) != 4:
                raise ProtocolError(f"stream {id}: CREDIT of {len(payload)} bytes")
            if stream is not None and not stream.grant(int.from_bytes(payload, "big")):
                raise ProtocolError(f"stream {id}: more credit than was used")
        elif type_ == END:
            stream = self._known(id)
            if stream is not None:
                if not stream.feed_end():
                    raise ProtocolError(f"stream {id}: ended twice")
                self.forget_finished(stream)
        elif type_ == RESET:
            stream = self._known(id)
            body = load_object(payload, "RESET")
            if stream is not None:
                stream.fail(StreamReset(str(body.get("code", "reset")), str(body.get("message", ""))))
                self.forget(stream)
        elif type_ == OPEN:
            await self._opened(id, payload)
        elif type_ == PING:
            await self.write(frames.encode(PONG, 0, payload[:64]))
        elif type_ == PONG:
            waiter = self._pings.get(payload)
            if waiter is not None and not waiter.done():
                waiter.set_result(None)
        elif type_ == HELLO:
            raise ProtocolError("a second HELLO")
        else:
            self.skipped += 1

    def _known(self, id: int) -> MuxStream | None:
        """The stream, or None for one that is gone; an id that was never used is a protocol error."""
        stream = self._streams.get(id)
        if stream is None:
            mine = id % 2 == self._next_id % 2
            if id == 0 or (id >= self._next_id if mine else id > self._highest_peer_id):
                raise ProtocolError(f"frame for stream {id}, which was never opened")
        return stream

    async def _opened(self, id: int, payload: bytes) -> None:
        if id == 0 or id % 2 == self._next_id % 2 or id <= self._highest_peer_id:
            raise ProtocolError(f"the peer may not open stream {id}")
        body = load_object(payload, "OPEN")
        kind, args = body.get("kind"), body.get("args")
        if not isinstance(kind, str) or not isinstance(args, dict):
            raise ProtocolError("OPEN without a kind or arguments")
        self._highest_peer_id = id
        theirs = sum(1 for stream in self._streams if stream % 2 == id % 2)
        if self._accept is None or theirs >= MAX_STREAMS:
            code = "unsupported" if self._accept is None else "too_many_streams"
            await self.send_reset(id, code, f"{kind} stream refused")
            return
        stream = self._streams[id] = MuxStream(self, id, kind, args)
        task = asyncio.create_task(self._run(self._accept, stream), name=f"stockade-{kind}-{id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, accept: Accept, stream: MuxStream) -> None:
        try:
            await accept(stream)
        except (StreamReset, SandboxLost, ProtocolError):
            log.debug("%r ended by its peer", stream)
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("serving %r failed", stream)
        finally:
            if not stream.finished:
                await stream.reset("closed", "the stream was not finished by its server")
