"""What a plugin adds to the command line (hook ``register_commands``)."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from dataclasses import dataclass

_NAME = re.compile(r"[a-z][a-z0-9-]*\Z")


@dataclass(frozen=True, slots=True)
class Command:
    """One command: ``configure`` adds its arguments, ``run`` does it and returns the exit status."""

    name: str
    help: str
    configure: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


class CommandGroup:
    """Collects the commands of all plugins. The kernel's own commands cannot be replaced."""

    def __init__(self, reserved: frozenset[str] = frozenset()) -> None:
        self._reserved = reserved
        self.commands: dict[str, Command] = {}

    def add(
        self,
        name: str,
        help: str,
        configure: Callable[[argparse.ArgumentParser], None],
        run: Callable[[argparse.Namespace], int],
    ) -> None:
        """Add a command.

        ``run`` may raise any `stockade.errors.StockadeError`; the command line prints it. A name that is
        not lower-case words with dashes, that the kernel has, or that another plugin added, is refused
        with `ValueError`.
        """
        if not _NAME.match(name):
            raise ValueError(f"command name {name!r} is not lower-case words with dashes")
        if name in self._reserved:
            raise ValueError(f"command {name!r} is the kernel's own")
        if name in self.commands:
            raise ValueError(f"command {name!r} was added twice")
        self.commands[name] = Command(name, help, configure, run)


def plugin_commands(reserved: frozenset[str]) -> dict[str, Command]:
    """The commands of all enabled hook modules, which are imported for it. Raises `BootError` and `PluginBroken`."""
    from stockade.plugins.hooks import load_hooks
    from stockade.plugins.selection import read_selection

    group = CommandGroup(reserved)
    load_hooks(read_selection()).register_commands(group)
    return group.commands
