"""The time limit of a kit's tests, and waiting for what is to come. Neither needs another pytest plugin."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

import pytest

from stockade.testing.capabilities import Kit

K = TypeVar("K", bound=Kit)
P = ParamSpec("P")


def bounded(
    test: Callable[Concatenate[K, P], Awaitable[None]],
) -> Callable[Concatenate[K, P], Coroutine[Any, Any, None]]:
    """Make a coroutine a test of a kit, in either mode of pytest-asyncio; it fails after `Kit.limit` seconds."""

    @pytest.mark.asyncio
    @functools.wraps(test)
    async def run(self: K, /, *args: P.args, **kwargs: P.kwargs) -> None:
        bound = asyncio.timeout(self.limit)
        try:
            async with bound:
                await test(self, *args, **kwargs)
        except TimeoutError:
            if bound.expired():
                pytest.fail(f"not done within {self.limit:g} s (the kit's attribute `limit`)")
            raise

    return run


async def until(condition: Callable[[], object], seconds: float) -> bool:
    """Wait for ``condition``, at most so many seconds; whether it came true. It is asked every few milliseconds."""
    end = time.monotonic() + seconds
    while not (found := bool(condition())) and time.monotonic() < end:  # noqa: ASYNC110 - any condition will do
        await asyncio.sleep(0.005)
    return found


BLOCKED = 0.1
"""Seconds that work of the kernel's process may hold the event loop: all sandboxes wait meanwhile."""


async def shortest_block(work: Callable[[], Awaitable[object]], times: int = 3) -> float:
    """The longest time that ``work`` holds the loop; the shortest of several tries, as the host may be busy."""
    return min([await _longest_block(work) for _ in range(times)])


async def _longest_block(work: Callable[[], Awaitable[object]]) -> float:
    loop = asyncio.get_running_loop()
    longest, last = 0.0, loop.time()

    async def tick() -> None:
        nonlocal longest, last
        while True:
            await asyncio.sleep(0.005)
            longest, last = max(longest, loop.time() - last), loop.time()

    ticking = asyncio.create_task(tick())
    try:
        await asyncio.sleep(0)
        await work()
        await asyncio.sleep(0.01)  # so that it ticks after work that never gave way
    finally:
        ticking.cancel()
    return longest
