"""The hook module: one route, ``model``, and one command."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING

from stockade import Route, Settings, hookimpl

if TYPE_CHECKING:
    from stockade.cli.group import CommandGroup


@hookimpl
def routes(settings: Settings) -> Mapping[str, Route]:
    """The model route. Its settings are the table ``[plugin.gateway]``."""
    from stockade_gateway.route import ModelRoute

    return {"model": ModelRoute.from_settings(settings)}


@hookimpl
def register_commands(group: CommandGroup) -> None:
    """Add ``stockade gateway``."""
    group.add("gateway", "The gateway on its own: serve", _configure, _run)


def _configure(parser: argparse.ArgumentParser) -> None:
    from stockade_gateway.cli_serve import configure

    configure(parser)


def _run(args: argparse.Namespace) -> int:
    from stockade_gateway.cli_serve import run

    return run(args)
