"""``stockade exec``: one command in a fresh sandbox, as if it ran here."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import threading
from typing import TYPE_CHECKING

from stockade.cli.arguments import add_sandbox_options
from stockade.cli.run import Opener, open_workspace
from stockade.cli.text import printable
from stockade.errors import UsageError

if TYPE_CHECKING:
    from stockade.cli.interrupts import Interrupts
    from stockade.runtime.execs import ExecHandle

TIMED_OUT = 124
"""Exit status for a command that reached ``--timeout``, as of timeout(1)."""


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of ``exec``."""
    add_sandbox_options(parser)
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- CMD ...", help="the command and its arguments")


def run(args: argparse.Namespace, opener: Opener | None = None) -> int:
    """Run the command; return its exit status, 128 + n for signal n, 124 after ``--timeout``."""
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        raise UsageError("no command", hint="Write it after two dashes: stockade exec -- ls -la")
    from stockade.cli.interrupts import run_interruptible

    return run_interruptible(lambda interrupts: _execute(args, command, interrupts, opener))


async def _execute(args: argparse.Namespace, command: list[str], interrupts: Interrupts, opener: Opener | None) -> int:
    from stockade.cli.logs import show_logs
    from stockade.cli.output import Output

    if opener is None:
        from stockade.kernel import Kernel

        opener = Kernel.open
    workspace, _ = open_workspace(args.workspace)
    outputs = {1: Output(1), 2: Output(2)}
    show_logs(lambda line: outputs[2].queue(f"stockade: {printable(line)}\n".encode()))
    async with opener() as kernel:
        proc = await kernel.exec(
            command,
            driver=args.driver,
            sandbox=args.sandbox,
            workspace=workspace,
            env_pass=tuple(args.env_pass),
            timeout=args.timeout,
            user=args.user,
            ttl=args.ttl,
        )
        async with proc:
            feeding = asyncio.create_task(feed_stdin(proc))
            try:
                async for stream, data in proc:
                    await outputs[stream].write(data)
                result = await proc.result()
            finally:
                feeding.cancel()
                await asyncio.wait([feeding])
            for output in outputs.values():
                await output.drain()
            interrupts.finish()
    if result.truncated:
        await outputs[2].write(b"stockade: the output was cut at its limit\n")
    if result.timed_out:
        await outputs[2].write(f"stockade: stopped after {args.timeout:g} s\n".encode())
    await outputs[2].drain()
    if result.timed_out:
        return TIMED_OUT
    return 128 + result.signal if result.signal else int(result.exit_code or 0)


async def feed_stdin(proc: ExecHandle) -> None:
    """Pass our standard input on, at the speed of the command, to its end."""
    while data := await read_input(0):
        await proc.send(data)
    await proc.send_end()


async def read_input(fd: int) -> bytes:
    """The next bytes; ``b""`` at the end, also of a descriptor that is closed or a terminal that is gone.

    In a daemon thread: a read of a terminal cannot be interrupted, and must not keep us alive.
    """
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[bytes] = loop.create_future()

    def arrived(data: bytes) -> None:
        if not waiter.done():
            waiter.set_result(data)

    def work() -> None:
        try:
            data = os.read(fd, 64 * 1024)
        except OSError:
            data = b""
        with contextlib.suppress(RuntimeError):  # the loop is closed: the command has ended
            loop.call_soon_threadsafe(arrived, data)

    threading.Thread(target=work, name="stdin", daemon=True).start()
    return await waiter
