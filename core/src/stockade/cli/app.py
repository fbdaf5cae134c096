"""The ``stockade`` command: finds the one command that was called, loads it, reports its errors.

``--help`` and ``plugins list`` must stay within 3 x ``python3 -c pass``, so this module imports next
to nothing: the list of commands below is text, and a command's module and parser exist only once it
is called. (click alone would cost 4.5 x.)
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from stockade.errors import BootError, PluginError, StockadeError, UsageError

COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("stockade.cli.run", "Give a coding agent one message, in a sandbox"),
    "exec": ("stockade.cli.exec_", "Run one command in a fresh sandbox"),
    "cp": ("stockade.cli.cp", "Copy files into a sandbox, or out of one"),
    "plugins": ("stockade.cli.plugins", "List, check and begin drivers, engines, minters and hook modules"),
    "sandboxes": ("stockade.cli.sandboxes", "List and end sandboxes of all processes, or a way out of one"),
    "doctor": ("stockade.cli.doctor", "What this host can do, and how to fix what it cannot"),
    "sandbox": ("stockade.cli.sandbox", "The program inside a sandbox (drivers start it)"),
}
"""Name of a command: its module, and its line in ``--help``."""

RAW = frozenset({"sandbox"})
"""Commands that parse their own arguments."""

INTERRUPTED = 128 + 2
"""Exit status after SIGINT. Numbers, because the import of ``signal`` takes a tenth of the budget."""
BROKEN_PIPE = 128 + 13
"""Exit status when the reader of our output went away (``| head``), as for any program."""

_USAGE = "usage: stockade [--help] [--version] COMMAND ..."


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status: 0 success, 1 a typed failure, 2 usage, 130 Ctrl-C.

    Never shows a traceback, unless ``STOCKADE_DEBUG`` is set.
    """
    try:
        code = dispatch(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
        return code
    except StockadeError as error:
        return _report(error.code, error.message, error.hint, error.exit_code)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # What is still buffered cannot be written; without this, Python says so once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return BROKEN_PIPE
    except OSError as error:
        return _report("io", str(error), "Check what it names: its permissions, and the free space.", 1)
    except Exception as error:
        hint = "This is a bug in Stockade. Set STOCKADE_DEBUG=1 to see where it comes from, and report it."
        return _report("internal", f"{type(error).__name__}: {error}", hint, 1)


def dispatch(argv: list[str]) -> int:
    """Find the command that ``argv`` names and run it."""
    if not argv:
        print(help_text(), file=sys.stderr)
        return UsageError.exit_code
    name, rest = argv[0], argv[1:]
    if name in ("-h", "--help") or (name == "help" and not rest):
        print(help_text())
        return 0
    if name in ("-V", "--version"):
        from stockade.cli.version import version_text

        print(version_text())
        return 0
    if name == "help":
        return dispatch([rest[0], "--help"])
    if name.startswith("-"):
        raise UsageError(f"no option {name!r} before the command", hint=f"{_USAGE}\n  See stockade --help.")
    return _builtin(name, rest) if name in COMMANDS else _from_plugin(name, rest)


def help_text() -> str:
    """The top-level help, from `COMMANDS` alone."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {text}" for name, (_, text) in COMMANDS.items()]
    return "\n".join(
        (
            _USAGE,
            "",
            "Run coding agents inside sandboxes; every part is a plugin.",
            "",
            "commands:",
            *lines,
            "",
            "Plugins may add more. 'stockade COMMAND --help' explains one command.",
            "Settings: stockade.toml, and STOCKADE_* variables with __ for nesting.",
            "Exit status: 0 success, 1 failure (with its code), 2 usage, 130 Ctrl-C.",
        )
    )


def _builtin(name: str, rest: list[str]) -> int:
    from importlib import import_module

    module_name, text = COMMANDS[name]
    module = import_module(module_name)
    if name in RAW:
        return int(module.run(rest))
    from stockade.cli.arguments import Parser

    parser = Parser(prog=f"stockade {name}", description=text + ".")
    module.configure(parser)
    return int(module.run(parser.parse_args(rest)))


def _from_plugin(name: str, rest: list[str]) -> int:
    """Only now are hook modules imported: a broken plugin breaks no command of the kernel."""
    from stockade.cli.arguments import Parser
    from stockade.cli.group import plugin_commands

    try:
        commands, trouble = plugin_commands(reserved=frozenset(COMMANDS)), ""
    except (PluginError, BootError) as error:
        commands, trouble = {}, f"\n{error}"
    command = commands.get(name)
    if command is None:
        import difflib

        close = difflib.get_close_matches(name, [*COMMANDS, *commands], n=1)
        hint = f"Did you mean 'stockade {close[0]}'?" if close else "See stockade --help."
        raise UsageError(f"no command {name!r}", hint=hint + trouble)
    parser = Parser(prog=f"stockade {name}", description=command.help)
    command.configure(parser)
    return int(command.run(parser.parse_args(rest)))


def _report(code: str, message: str, hint: str, exit_code: int) -> int:
    """Tell a failure on standard error. Messages may quote an agent, so controls are made visible."""
    from stockade.cli.text import printable

    if os.environ.get("STOCKADE_DEBUG", "") not in ("", "0"):  # logs.debugging(), without importing logging
        import traceback

        traceback.print_exc()
    lines = [f"stockade: {code}: {printable(message)}"]
    if hint:
        lines.append("  " + printable(hint).replace("\n", "\n  "))
    print("\n".join(lines), file=sys.stderr)
    return exit_code
