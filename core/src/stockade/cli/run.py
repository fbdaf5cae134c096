"""``stockade run``: one message to a coding agent."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stockade.cli.arguments import add_sandbox_options, directory
from stockade.errors import UsageError
from stockade.model.turn import FILE_ACCESS

if TYPE_CHECKING:
    from stockade.cli.interrupts import Interrupts
    from stockade.cli.render import Renderer
    from stockade.kernel import Kernel
    from stockade.runtime.turns import TurnHandle

MAX_MESSAGE = 2 * 1024 * 1024
"""Bytes of a message."""

Opener = Callable[..., AbstractAsyncContextManager["Kernel"]]


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of ``run``."""
    parser.add_argument("message", nargs="?", metavar="MESSAGE", help="what to do; - reads it from standard input")
    parser.add_argument("--engine", metavar="NAME", help="the coding agent (see stockade plugins list)")
    parser.add_argument("--model", metavar="NAME", help="the model that the agent uses")
    parser.add_argument(
        "--file-access",
        choices=FILE_ACCESS,
        default="read-only",
        help="what the agent may write (default: %(default)s)",
    )
    parser.add_argument("--session", metavar="NAME", help="a conversation to begin or to go on with")
    add_sandbox_options(parser)
    parser.add_argument(
        "--add-dir", type=directory, action="append", default=[], metavar="DIR",
        help="a further directory that the agent may use (repeatable)",
    )  # fmt: skip
    parser.add_argument(
        "--rehearse", metavar="SCRIPT", help="answer from a script (a name, or a path) instead of a model; needs no key"
    )
    parser.add_argument(
        "--record", metavar="FILE", help="write the model traffic to a file, secrets removed, to be replayed"
    )
    parser.add_argument(
        "--replay", metavar="FILE", help="answer from such a file instead of a model; needs no key and no network"
    )
    parser.add_argument("--json", action="store_true", help="one event a line; the last one is the outcome")


def run(args: argparse.Namespace, opener: Opener | None = None) -> int:
    """Run one turn; see `stockade.cli.app.main` for the exit status."""
    _check_kept(args)
    message = read_message(args.message)
    from stockade.cli.interrupts import run_interruptible

    workspace, created = open_workspace(args.workspace)
    try:
        return run_interruptible(lambda interrupts: _converse(args, message, workspace, created, interrupts, opener))
    except UsageError:
        if created and workspace is not None and not any(workspace.iterdir()):
            workspace.rmdir()  # nothing was started: leave nothing
        raise


def read_message(given: str | None) -> str:
    """The message, byte for byte: no newline is added or taken away."""
    if given is None:
        raise UsageError(
            "no message", hint='Say what to do: stockade run "Explain this project", or - to read standard input.'
        )
    if given == "-":
        data = sys.stdin.buffer.read(MAX_MESSAGE + 1)
    else:
        data = given.encode("utf-8", "surrogateescape")
    if len(data) > MAX_MESSAGE:
        raise UsageError(
            f"the message is longer than {MAX_MESSAGE} bytes", hint="Put it into a file of the workspace and name that."
        )
    try:
        message = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"the message is not UTF-8 (byte {error.start})", hint="Convert it first, for example with iconv -t UTF-8."
        ) from None
    if not message.strip():
        raise UsageError("the message is empty", hint="Say what to do.")
    return message


def open_workspace(given: str | None) -> tuple[Path | None, bool]:
    """The workspace and whether it was created just now. Its parent must exist: a typo makes no tree."""
    if given is None:
        return None, False
    path = Path(given).expanduser().absolute()
    if path.is_dir():
        return path, False
    try:
        path.mkdir()
    except FileExistsError:
        raise UsageError(f"--workspace {given} is not a directory", hint="Name a directory.") from None
    except OSError as error:
        raise UsageError(
            f"--workspace {given} does not exist and cannot be created: {error.strerror}",
            hint="Create its parent directory first, or check its permissions.",
        ) from None
    return path, True


def _check_kept(args: argparse.Namespace) -> None:
    """Refuse to let an agent write where nobody will find it."""
    if args.file_access != "read-only" and not (args.workspace or args.session or args.sandbox):
        raise UsageError(
            f"--file-access {args.file_access} without a place that is kept: the files would be lost",
            hint="Add --workspace DIR (or --workspace . for this directory), --session NAME or --sandbox KEY.",
        )


async def _converse(
    args: argparse.Namespace,
    message: str,
    workspace: Path | None,
    created: bool,
    interrupts: Interrupts,
    opener: Opener | None,
) -> int:
    from stockade.cli.logs import show_logs
    from stockade.cli.render import make_renderer

    if opener is None:
        from stockade.kernel import Kernel

        opener = Kernel.open
    named = {name: getattr(args, name) for name in ("rehearse", "record", "replay")}
    overrides: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    renderer = make_renderer(as_json=args.json, workspace=str(workspace or ""))
    show_logs(renderer.note)
    try:
        if created:
            renderer.note(f"created the workspace {workspace}")
        async with opener(**overrides) as kernel:
            turn = await kernel.turn(
                message,
                engine=args.engine,
                driver=args.driver,
                model=args.model,
                workspace=workspace,
                file_access=args.file_access,
                session=args.session,
                sandbox=args.sandbox,
                user=args.user,
                ttl=args.ttl,
                add_dirs=tuple(args.add_dir),
                env_pass=tuple(args.env_pass),
                timeout=args.timeout,
            )
            with interrupts.politely(turn.cancel):
                return await _show(turn, renderer)
    finally:
        await renderer.aclose()


async def _show(turn: TurnHandle, renderer: Renderer) -> int:
    async for event in turn:
        await renderer.event(event)
    outcome = await turn.outcome()
    await renderer.ended(outcome)
    return 0 if outcome.status == "completed" else 1
