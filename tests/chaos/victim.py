"""A kernel that kills itself with SIGKILL at its N-th step: python -m tests.chaos.victim N [MODE].

A step is one resumption of any coroutine after an await. Without N (0) it runs to the end and prints
how many steps there were. The sandbox holds processes that would live on if nobody ended them.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Coroutine
from typing import Any

from stockade import Kernel

SURVIVOR = "trap '' TERM; (setsid sleep 1000 </dev/null >/dev/null 2>&1 &); sleep 1000 </dev/null >/dev/null 2>&1 &"


class Counted(Coroutine[Any, Any, Any]):
    """A coroutine whose steps are counted; the fatal one never happens."""

    steps = 0
    fatal = 0

    def __init__(self, inner: Coroutine[Any, Any, Any]) -> None:
        self._inner = inner

    @classmethod
    def count(cls) -> None:
        cls.steps += 1
        if cls.steps == cls.fatal:
            os.kill(os.getpid(), signal.SIGKILL)

    def send(self, value: Any) -> Any:
        self.count()
        return self._inner.send(value)

    def throw(self, *error: Any) -> Any:
        self.count()
        return self._inner.throw(*error)

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Any:
        return self._inner.__await__()


def factory(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
    """Tasks whose steps are counted."""
    return asyncio.Task(Counted(coro), loop=loop, **options)


async def job(key: str) -> None:
    """Create, turn and destroy."""
    async with Kernel.open() as kernel:
        options = {"driver": "process", "sandbox": key}
        async with await kernel.exec(["sh", "-c", SURVIVOR], **options) as command:  # type: ignore[arg-type]
            assert (await command.result()).exit_code == 0
        turn = await kernel.turn("hi", engine="null", **options)  # type: ignore[arg-type]
        outcome = await turn.outcome()
        assert outcome.status == "completed", outcome
        await kernel.destroy(key)


async def main() -> None:
    """Count the steps of the job, not those of starting Python."""
    Counted.fatal = int(sys.argv[1])
    asyncio.get_running_loop().set_task_factory(factory)
    await asyncio.create_task(job(f"victim-{Counted.fatal}"))
    print(Counted.steps)


if __name__ == "__main__":
    asyncio.run(main())
