"""The program: greets the kernel, serves its streams, and ends itself when the kernel is gone."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any

from stockade.errors import ProtocolError, StockadeError
from stockade.inside.engines import Loader
from stockade.inside.host import Host
from stockade.inside.init import EXIT_HANGUP, EXIT_PROTOCOL, EXIT_SILENCE
from stockade.inside.options import Options
from stockade.wire.channels import StreamChannel
from stockade.wire.mux import Hello, Mux

CAPABILITIES = ("turn", "exec", "tunnel", "control", "read", "write", "archive", "concurrent-turns")
TICKS = 4
"""Parts of a lease in which silence is counted. A blocked event loop is one tick, not an end (F71)."""

log = logging.getLogger("stockade.inside")


def run(options: Options, descriptors: Sequence[int]) -> int:
    """Serve until the end; the exit code."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    return asyncio.run(_serve(options, descriptors))


async def _serve(options: Options, descriptors: Sequence[int]) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    channel = await _open(descriptors)
    loader = Loader()
    host = Host(options, loader)
    facts = {"pid": os.getpid(), "uid": os.getuid(), "python": sys.version.split()[0], "started": time.time()}
    mux = Mux(channel, side="inside", hello=Hello(CAPABILITIES, options.id, facts), accept=host.accept)
    host.attach(mux)
    try:
        await mux.start(timeout=options.lease)
    except StockadeError as error:
        log.error("no kernel: %s", error)
        return EXIT_PROTOCOL if isinstance(error, ProtocolError) else EXIT_HANGUP
    # Only now: before this point an error is a failed start and must end the program (L17).
    loop.set_exception_handler(_log_stray)
    if options.preload:
        loader.preload(options.preload)
    code = await _until_the_end(mux, stop, options.lease)
    await host.aclose()
    await mux.aclose()
    return code


async def _open(descriptors: Sequence[int]) -> StreamChannel:
    if len(descriptors) == 2:
        return await StreamChannel.from_pipes(descriptors[0], descriptors[1])
    import socket

    return await StreamChannel.from_socket(socket.socket(fileno=descriptors[0]))


async def _until_the_end(mux: Mux, stop: asyncio.Event, lease: float) -> int:
    closed = asyncio.create_task(mux.wait_closed())
    silent = asyncio.create_task(_silence(mux, lease))
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait({closed, silent, stopped}, return_when=asyncio.FIRST_COMPLETED)
    for task in (closed, silent, stopped):
        if not task.done():
            task.cancel()
    if stopped.done() and not stopped.cancelled():
        log.info("asked to end")
        return 0
    if closed.done() and not closed.cancelled():
        reason = closed.result()
        log.error("the channel ended: %s", reason)
        return EXIT_PROTOCOL if isinstance(reason, ProtocolError) else EXIT_HANGUP
    log.error("no sign of the kernel for %g s", lease)
    return EXIT_SILENCE


async def _silence(mux: Mux, lease: float) -> None:
    """Return when nothing came from the kernel for a whole lease."""
    seen, ticks = mux.last_frame, 0
    while ticks < TICKS:
        await asyncio.sleep(lease / TICKS)
        if mux.last_frame == seen:
            ticks += 1
        else:
            seen, ticks = mux.last_frame, 0


def _log_stray(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """An engine's SDK left a task or a callback that failed: not a reason to end (L18)."""
    log.error("stray error: %s", context.get("message"), exc_info=context.get("exception"))
