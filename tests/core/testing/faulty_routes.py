"""Routes with one fault each. They echo, as `stockade.testing.fakes.RecordingRoute` does."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import ClassVar

from stockade.contracts.route import Origin, Stream
from stockade.errors import NotConfigured
from stockade.testing.fakes import RecordingRoute
from tests.core.testing.faults import fails

log = logging.getLogger("toy.route")


class Good(RecordingRoute):
    """In parts that can be replaced."""

    async def serve(self, stream: Stream, origin: Origin) -> None:
        try:
            head = b""
            while b"\n" not in head and len(head) <= 1024 and (data := await stream.receive()):
                head += data
            key, newline, rest = head.partition(b"\n")
            if not newline or not self.admits(key, origin):
                await self.refuse(stream, key)
                return
            await self.echo(stream, origin, rest)
            await stream.send_end()
        except ConnectionError:
            await self.broken()

    def admits(self, key: bytes, origin: Origin) -> bool:
        return bool(origin.key) and key == origin.key.encode()

    async def refuse(self, stream: Stream, key: bytes) -> None:
        await stream.reset("denied")

    async def echo(self, stream: Stream, origin: Origin, data: bytes) -> None:
        while data:
            if not self.warranted(origin):
                await stream.reset("denied")
                return
            await stream.send(data)
            data = await stream.receive()

    def warranted(self, origin: Origin) -> bool:
        return not origin.warranted or origin.token is not None

    async def broken(self) -> None:
        pass


@fails("test_only_the_sessions_key_is_served")
class IgnoresTheKey(Good):
    def admits(self, key: bytes, origin: Origin) -> bool:
        return bool(origin.key)


@fails("test_each_call_needs_a_warrant")
class IgnoresTheWarrant(Good):
    def warranted(self, origin: Origin) -> bool:
        return True


@fails("test_each_call_needs_a_warrant")
class KeepsTheWarrant(Good):
    """Looks at it once a connection."""

    async def echo(self, stream: Stream, origin: Origin, data: bytes) -> None:
        if self.warranted(origin):
            while data:
                await stream.send(data)
                data = await stream.receive()


@fails("test_a_session_without_a_key_is_not_served")
class EmptyIsEqual(Good):
    def admits(self, key: bytes, origin: Origin) -> bool:
        return key == origin.key.encode()


@fails("test_a_request_is_answered")
class HangsUp(Good):
    async def echo(self, stream: Stream, origin: Origin, data: bytes) -> None:
        if origin.session != "session-0" or data != b"hello":
            await super().echo(stream, origin, data)


@fails("test_large_bodies_arrive_whole")
class OneMebibyte(Good):
    async def echo(self, stream: Stream, origin: Origin, data: bytes) -> None:
        size = 0
        while data:
            if size < 1024 * 1024 and self.warranted(origin):
                await stream.send(data)
            size += len(data)
            data = await stream.receive()


@fails("test_concurrent_connections_do_not_mix")
class SharesTheStream(Good):
    data = b""

    async def echo(self, stream: Stream, origin: Origin, data: bytes) -> None:
        self.data = data
        await asyncio.sleep(0)
        await super().echo(stream, origin, self.data if len(data) < 100 else data)


@fails("test_the_loop_is_not_blocked")
class Blocks(Good):
    async def echo(self, stream: Stream, origin: Origin, data: bytes) -> None:
        if origin.session in ("session-0", "session-1", "session-2"):
            time.sleep(0.12)
        await super().echo(stream, origin, data)


@fails("test_the_warrant_stays_outside")
class ShowsTheWarrant(Good):
    async def serve(self, stream: Stream, origin: Origin) -> None:
        if origin.token is not None:
            await stream.send(origin.token.value.encode() + b"\r")
        await super().serve(stream, origin)


@fails("test_secrets_are_not_logged")
class LogsKeys(Good):
    async def refuse(self, stream: Stream, key: bytes) -> None:
        log.debug("refused %s", key)
        await super().refuse(stream, key)


@fails("test_serve_ends_with_the_inside")
class WaitsForMore(Good):
    async def echo(self, stream: Stream, origin: Origin, data: bytes) -> None:
        await super().echo(stream, origin, data)
        await asyncio.Event().wait()


@fails("test_serve_ends_with_the_connection")
class WaitsForTheBroken(Good):
    async def broken(self) -> None:
        await asyncio.Event().wait()


@fails("test_a_cancelled_serve_leaves_nothing")
class LeavesATask(Good):
    waiting: ClassVar[set[asyncio.Task[None]]] = set()

    async def serve(self, stream: Stream, origin: Origin) -> None:
        task = asyncio.create_task(self.watch())
        self.waiting.add(task)
        try:
            await super().serve(stream, origin)
        except Exception:
            task.cancel()
            raise
        task.cancel()

    async def watch(self) -> None:
        await asyncio.Event().wait()


@fails("test_garbage_ends_quietly")
class NeedsText(Good):
    def admits(self, key: bytes, origin: Origin) -> bool:
        return bool(origin.key) and key.decode("ascii") == origin.key


@fails("test_garbage_harms_nobody_else")
class RemembersGarbage(Good):
    poisoned = False

    async def refuse(self, stream: Stream, key: bytes) -> None:
        self.poisoned = self.poisoned or b"\0" in key
        await super().refuse(stream, key)

    def admits(self, key: bytes, origin: Origin) -> bool:
        return not self.poisoned and super().admits(key, origin)


@fails("test_no_error_is_left_to_the_loop")
class LeavesErrors(Good):
    async def broken(self) -> None:
        async def fail() -> None:
            raise ConnectionResetError("it broke")

        asyncio.ensure_future(fail())  # noqa: RUF006


@fails("test_closing_is_idempotent")
class ClosesOnce(Good):
    closed = False

    async def aclose(self) -> None:
        if self.closed:
            raise RuntimeError("it is closed")
        self.closed = True


@fails("test_preflight_lets_pass_what_is_configured")
class NeverConfigured(Good):
    def preflight(self, dialect: str) -> None:
        raise NotConfigured("nothing is configured", hint="Give up.")


@fails("test_preflight_says_what_is_missing")
class NoHint(Good):
    def preflight(self, dialect: str) -> None:
        if dialect not in self._dialects:
            raise NotConfigured("nothing is configured")
