"""``stockade cp``: files and folders, into a sandbox or out of one."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from stockade.cli.arguments import add_place_options
from stockade.errors import UsageError

if TYPE_CHECKING:
    from stockade.cli.interrupts import Interrupts
    from stockade.cli.progress import Progress
    from stockade.cli.run import Opener
    from stockade.runtime.files import SandboxFiles

TIMED_OUT = 124
"""Exit status after ``--timeout``, as of ``exec``."""
STANDARD = "-"


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of ``cp``."""
    parser.add_argument("source", metavar="SOURCE", help="what to copy: SANDBOX:PATH, a path here, or - for stdin")
    parser.add_argument("target", metavar="TARGET", help="where to: a path here, SANDBOX:PATH, or - for stdout")
    parser.add_argument("--force", action="store_true", help="replace files that exist")
    parser.add_argument(
        "--exclude",
        action="append",
        default=[],
        metavar="PATTERN",
        help="leave out what is called so, such as .venv or '*.pyc'; with a / in it, the path (repeatable)",
    )
    add_place_options(parser)


def run(args: argparse.Namespace, opener: Opener | None = None) -> int:
    """Copy; 0, or 124 after ``--timeout``."""
    source, target = split(args.source), split(args.target)
    if (source[0] is None) == (target[0] is None):
        raise UsageError(
            "one of the two must be in a sandbox, the other one here",
            hint="Write it as SANDBOX:PATH, with the key of the sandbox; a path here that has a colon as ./a:b.",
        )
    from stockade.cli.interrupts import run_interruptible

    return run_interruptible(lambda interrupts: _copy(args, source, target, interrupts, opener))


def split(word: str) -> tuple[str | None, str]:
    """The sandbox's key, ``None`` for here, and the path. A key goes to the first colon, and begins no path."""
    key, colon, path = word.partition(":")
    if not colon or word.startswith(("/", "./", "../")):
        return None, word
    if not key:
        raise UsageError(f"{word!r} names no sandbox", hint="Write its key before the colon: SANDBOX:PATH")
    return key, path or "."


async def _copy(
    args: argparse.Namespace,
    source: tuple[str | None, str],
    target: tuple[str | None, str],
    interrupts: Interrupts,
    opener: Opener | None,
) -> int:
    from stockade.cli.logs import show_logs
    from stockade.cli.output import Output
    from stockade.cli.progress import Progress
    from stockade.cli.run import open_workspace
    from stockade.cli.text import printable

    if opener is None:
        from stockade.kernel import Kernel

        opener = Kernel.open
    workspace, _ = open_workspace(args.workspace)
    err = Output(2)
    show_logs(lambda line: err.queue(f"stockade: {printable(line)}\n".encode()))
    progress = Progress(err, shares_line=False, draws=sys.stderr.isatty())
    try:
        async with asyncio.timeout(args.timeout) as limit, opener() as kernel:
            async with await kernel.files(
                driver=args.driver,
                sandbox=source[0] or target[0],
                workspace=workspace,
                user=args.user,
                ttl=args.ttl,
            ) as files:
                progress.label = "copying"
                if source[0] is None:
                    await _in(files, source[1], target[1], args, progress)
                else:
                    await _out(files, source[1], target[1], args, progress)
            interrupts.finish()
    except TimeoutError:
        if not limit.expired():
            raise
        err.queue(f"stockade: stopped after {args.timeout:g} s\n".encode())
        return TIMED_OUT
    finally:
        await progress.aclose()
        await err.drain()
    return 0


async def _in(files: SandboxFiles, source: str, target: str, args: argparse.Namespace, progress: Progress) -> None:
    if source == STANDARD:
        await files.write(target, _standard_input(), overwrite=args.force)
    else:
        await files.upload(source, target, overwrite=args.force, exclude=args.exclude, moved=_shown_by(progress))


async def _out(files: SandboxFiles, source: str, target: str, args: argparse.Namespace, progress: Progress) -> None:
    if target != STANDARD:
        await files.download(source, target, overwrite=args.force, exclude=args.exclude, moved=_shown_by(progress))
        return
    from stockade.cli.output import Output

    out = Output(1)
    size = 0
    async for data in files.read(source):
        await out.write(data)
        size += len(data)
        progress.label = f"copying, {size / 1e6:,.1f} MB"
    await out.drain()


def _shown_by(progress: Progress) -> Callable[[int, int], None]:
    """Called from another thread; the next frame shows it."""

    def moved(size: int, members: int) -> None:
        progress.label = f"copying, {size / 1e6:,.1f} MB, {members:,} files and folders"

    return moved


async def _standard_input() -> AsyncIterator[bytes]:
    from stockade.cli.exec_ import read_input

    while data := await read_input(0):
        yield data
