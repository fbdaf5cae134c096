"""The hook module: the command ``stockade image``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from stockade import hookimpl

if TYPE_CHECKING:
    from stockade.cli.group import CommandGroup


@hookimpl
def register_commands(group: CommandGroup) -> None:
    """Add ``image``; what it needs is imported when it is called."""
    group.add("image", "Images for the Docker driver: build", _configure, _run)


def _configure(parser: argparse.ArgumentParser) -> None:
    from stockade_docker import cli

    cli.configure(parser)


def _run(args: argparse.Namespace) -> int:
    from stockade_docker import cli

    return cli.run(args)
