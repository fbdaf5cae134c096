"""`RouteContract`."""

from __future__ import annotations

import asyncio
import gc
import logging
import secrets
from typing import Any

import pytest

from stockade.contracts.route import Route
from stockade.errors import NotConfigured
from stockade.testing.bounds import BLOCKED, bounded, shortest_block, until
from stockade.testing.capabilities import requires
from stockade.testing.route.base import WARRANT, Connect, Dialogue, RouteKit


class RouteContract(RouteKit):
    """What every route owes. Subclass it, and give two fixtures::

        from stockade.testing import RouteContract

        class TestMyRoute(RouteContract):
            dialect = "mine"

            @pytest.fixture
            def route(self):
                return MyRoute(address_of_a_service_that_echoes)

            @pytest.fixture
            def dialogue(self):
                return MyDialogue()

    ``dialogue`` has the two methods of `stockade.testing.route.Dialogue`. A third fixture, ``unconfigured``, is a
    route without settings, unless ``Capabilities(preflight=False)`` is said. The kit closes the route after each test.
    """

    # -- serving -------------------------------------------------------------------------------------------

    @bounded
    async def test_a_request_is_answered(self, connect: Connect, dialogue: Dialogue) -> None:
        """The control: with the key of its session, a caller is served."""
        call = connect()
        assert await self.ask(call, dialogue, "hello"), bytes(call.answer[:500])

    @bounded
    async def test_large_bodies_arrive_whole(self, connect: Connect, dialogue: Dialogue) -> None:
        """4 MiB each way, to an inside that takes 4 KiB at a time."""
        call = connect(window=4096)
        assert await self.ask(call, dialogue, secrets.token_hex(2 * 1024 * 1024)), f"{len(call.answer)} bytes"

    @bounded
    async def test_concurrent_connections_do_not_mix(self, connect: Connect, dialogue: Dialogue) -> None:
        """Of 20 sandboxes at once, each gets the answer to its own request."""
        words = [f"word{secrets.token_hex(8)}" for _ in range(20)]
        calls = [connect() for _ in words]
        asked = [self.ask(call, dialogue, word) for call, word in zip(calls, words, strict=True)]
        assert all(await asyncio.gather(*asked))
        for call, word in zip(calls, words, strict=True):
            assert not any(other.encode() in call.answer for other in words if other != word)

    @bounded
    async def test_the_loop_is_not_blocked(self, connect: Connect, dialogue: Dialogue) -> None:
        """All sandboxes of the kernel wait meanwhile."""
        blocked = await shortest_block(lambda: self.ask(connect(), dialogue, "hello"))
        assert blocked < BLOCKED, f"{blocked:.2f} s"

    # -- who is served -------------------------------------------------------------------------------------

    @requires("authenticates")
    @bounded
    async def test_only_the_sessions_key_is_served(self, connect: Connect, dialogue: Dialogue) -> None:
        """Not a wrong key, none, or that of another session: any process inside can connect (L70)."""
        right = connect()
        strangers = {"wrong": "0" * 32, "none": "", "another session's": right.origin.key}
        calls = {what: connect() for what in strangers}
        for what, key in strangers.items():
            calls[what].stream.say(dialogue.request(key, "hello"))
        await self.refuses(right, calls, dialogue)

    @requires("authenticates")
    @bounded
    async def test_a_session_without_a_key_is_not_served(self, connect: Connect, dialogue: Dialogue) -> None:
        """An empty key is nobody's credential, least of all that of a caller who presents none."""
        keyless = connect(key="")
        keyless.stream.say(dialogue.request("", "hello"))
        await self.refuses(connect(), {"no key": keyless}, dialogue)

    @requires("warrants")
    @bounded
    async def test_each_call_needs_a_warrant(self, connect: Connect, dialogue: Dialogue) -> None:
        """Where the kernel mints tokens: none between turns and after a revocation, on a connection that lives on too.

        What `Origin` says is read for each call, and never kept.
        """
        late, lasting = connect(), connect()
        assert await self.ask(lasting, dialogue, "before")
        for call in (late, lasting):
            call.origin.caller.token = None
            call.answer.clear()
            call.stream.say(dialogue.request(call.origin.key, "hello"))
        await self.refuses(connect(), {"late": late, "lasting": lasting}, dialogue)

    # -- secrets -------------------------------------------------------------------------------------------

    @bounded
    async def test_the_warrant_stays_outside(self, connect: Connect, dialogue: Dialogue) -> None:
        """The turn's token is for the route, not for the sandbox."""
        call = connect()
        await self.ask(call, dialogue, "hello")
        assert WARRANT.encode() not in call.answer

    @bounded
    async def test_secrets_are_not_logged(
        self, connect: Connect, dialogue: Dialogue, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Neither the session's key nor the turn's token, at no level; not with a wrong request either."""
        caplog.set_level(logging.DEBUG)
        good, bad = connect(), connect()
        await self.ask(good, dialogue, "hello")
        bad.stream.say(bad.origin.key.encode() + b"\r\n\0" + dialogue.request(bad.origin.key, "hello"))
        bad.stream.finish()
        await bad.ends_within(self.patience)
        logged = caplog.text
        assert not any(secret in logged for secret in (good.origin.key, bad.origin.key, WARRANT))

    # -- ends ----------------------------------------------------------------------------------------------

    @bounded
    async def test_serve_ends_with_the_inside(self, connect: Connect, dialogue: Dialogue) -> None:
        """Soon after the caller closed its half: before a request, and after an answer."""
        idle, used = connect(), connect()
        await self.ask(used, dialogue, "hello")
        for call in (idle, used):
            call.stream.finish()
            assert await call.ends_within(self.patience), "it waits on"

    @bounded
    async def test_serve_ends_with_the_connection(self, connect: Connect, dialogue: Dialogue) -> None:
        """Soon after it broke, in the middle of a request; that is no error, or `ConnectionError`."""
        call = connect()
        whole = dialogue.request(call.origin.key, "hello")
        call.stream.say(whole[: len(whole) // 2])
        await asyncio.sleep(0)
        call.stream.break_off()
        assert await call.ends_within(self.patience), "it waits on"
        assert call.failure is None, repr(call.failure)

    @bounded
    async def test_a_cancelled_serve_leaves_nothing(self, connect: Connect, dialogue: Dialogue) -> None:
        """When the route is revoked or the sandbox ends: no task goes on (F78)."""
        await self.ask(connect(), dialogue, "hello")
        before = asyncio.all_tasks()
        call = connect()
        whole = dialogue.request(call.origin.key, "hello")
        call.stream.say(whole[: len(whole) // 2])
        for _ in range(5):
            await asyncio.sleep(0)
        call.task.cancel()
        assert await call.ends_within(self.patience), "it goes on after its cancellation"
        call.stream.break_off()
        assert await until(lambda: asyncio.all_tasks() <= before, self.patience), asyncio.all_tasks() - before

    @bounded
    async def test_garbage_ends_quietly(self, connect: Connect, dialogue: Dialogue) -> None:
        """Whatever a sandbox sends, `Route.serve` returns, and raises nothing but `ConnectionError`."""
        for garbage in _garbage(dialogue):
            call = connect()
            call.stream.say(garbage)
            call.stream.finish()
            assert await call.ends_within(self.patience), garbage[:40]
            assert call.failure is None, f"{garbage[:40]!r}: {call.failure!r}"

    @bounded
    async def test_garbage_harms_nobody_else(self, connect: Connect, dialogue: Dialogue) -> None:
        """The next caller is served."""
        for garbage in _garbage(dialogue):
            call = connect()
            call.stream.say(garbage)
            call.stream.finish()
            await call.ends_within(self.patience)
        assert await self.ask(connect(), dialogue, "hello")

    @bounded
    async def test_no_error_is_left_to_the_loop(self, connect: Connect, dialogue: Dialogue) -> None:
        """Neither by a good connection, nor by one that broke (L18)."""
        strays: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: strays.append(context))
        good, broken = connect(), connect()
        await self.ask(good, dialogue, "hello")
        broken.stream.say(dialogue.request(broken.origin.key, "hello"))
        broken.stream.break_off()
        good.stream.finish()
        for call in (good, broken):
            await call.ends_within(self.patience)
        await asyncio.sleep(0)
        gc.collect()
        assert strays == []

    @bounded
    async def test_closing_is_idempotent(self, connect: Connect, dialogue: Dialogue, route: Route) -> None:
        """After it served, and again."""
        call = connect()
        await self.ask(call, dialogue, "hello")
        call.stream.finish()
        await call.ends_within(self.patience)
        for _ in range(2):
            await route.aclose()

    # -- settings ------------------------------------------------------------------------------------------

    def test_preflight_lets_pass_what_is_configured(self, route: Route) -> None:
        """The dialect of the kit's attribute ``dialect``."""
        route.preflight(self.dialect)

    @requires("preflight")
    def test_preflight_says_what_is_missing(self, unconfigured: Route) -> None:
        """`NotConfigured`, with the ways to configure it as its hint: before a sandbox is made in vain."""
        try:
            unconfigured.preflight(self.dialect)
        except NotConfigured as error:
            assert error.hint.strip(), "without a hint"
        else:
            pytest.fail("an unconfigured route let it pass")


def _garbage(dialogue: Dialogue) -> list[bytes]:
    request = dialogue.request("key", "hello")
    return [
        b"",
        b"\0" * 1000,
        bytes(range(256)) * 100,
        b"\xc3\x28\xff\r\n" * 100,
        b"\r\n\r\n",
        b"x" * 1024 * 1024,
        b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        request[: len(request) // 2],
        request + b"\xff\xfe" * 100,
    ]
