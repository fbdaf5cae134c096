"""The argument parser of every command, and the kinds of values that options take."""

from __future__ import annotations

import argparse
import math
import os
import re
from collections.abc import Sequence

from stockade.errors import UsageError

TYPE_CHECKING = False  # as type checkers understand it: ``plugins list`` does without typing and pathlib
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any, NoReturn

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class _Formatter(argparse.HelpFormatter):
    """argparse's own asks shutil for the width, whose import is a tenth of the time of ``plugins list``."""

    def __init__(self, prog: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(prog, *args, **{"width": _columns() - 2, **kwargs})


def _columns() -> int:
    try:
        return int(os.environ.get("COLUMNS", "")) or 80
    except ValueError:
        pass  # not set: ask the terminal
    try:
        return os.get_terminal_size().columns or 80
    except OSError:
        return 80  # not a terminal


class Parser(argparse.ArgumentParser):
    """argparse with our errors: `UsageError` with a hint, and no guessing of abbreviated options."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"formatter_class": _Formatter, **kwargs, "allow_abbrev": False})

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """The namespace; raises `UsageError` for what does not belong."""
        parsed, extra = self.parse_known_args(args, namespace)
        if extra:
            self._refuse(extra)
        return parsed

    def error(self, message: str) -> NoReturn:
        """Called by argparse for everything wrong."""
        raise UsageError(message, hint=f"{self.format_usage().strip()}\nSee {self.prog} --help.")

    def _refuse(self, extra: Sequence[str]) -> NoReturn:
        options = [word for word in extra if word.startswith("-")]
        if not options:
            raise UsageError(
                f"unexpected argument {extra[0]!r}",
                hint=f"Put what belongs together in quotes. See {self.prog} --help.",
            )
        import difflib

        known = list(self._option_string_actions)
        close = difflib.get_close_matches(options[0].split("=")[0], known, n=1)
        hint = f"Did you mean {close[0]}? " if close else ""
        raise UsageError(f"no option {options[0]!r}", hint=f"{hint}See {self.prog} --help.")


def seconds(text: str) -> float:
    """A length of time: ``90``, ``90s``, ``15m``, ``2h``, ``1d``."""
    match = re.fullmatch(r"([0-9]*\.?[0-9]+)([smhd]?)", text)
    value = float(match[1]) * _UNITS[match[2]] if match else math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a length of time; write 90s, 15m or 2h")
    return value


def variable(text: str) -> str:
    """The name of an environment variable. Values do not belong on a command line (F34)."""
    if "=" in text:
        name = text.partition("=")[0]
        raise argparse.ArgumentTypeError(
            f"{name}=… has a value, which every process on this host could read; export it and pass the name {name}"
        )
    if not _VARIABLE.match(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not the name of a variable")
    return text


def directory(text: str) -> Path:
    """A directory that exists."""
    from pathlib import Path  # a tenth of the time of ``plugins list``, which has no such option

    path = Path(text).expanduser().absolute()
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is not a directory")
    return path


def add_sandbox_options(parser: argparse.ArgumentParser) -> None:
    """The options that ``run`` and ``exec`` share."""
    parser.add_argument("--sandbox", metavar="KEY", help="key of the sandbox: what belongs together shares one")
    add_place_options(parser)
    parser.add_argument(
        "--env-pass",
        type=variable,
        action="append",
        default=[],
        metavar="NAME",
        help="let this variable of the host into the sandbox (repeatable)",
    )


def add_place_options(parser: argparse.ArgumentParser) -> None:
    """The options of every command that needs a sandbox."""
    parser.add_argument("--driver", metavar="NAME", help="what makes the sandbox (see stockade plugins list)")
    parser.add_argument("--workspace", metavar="DIR", help="the directory to work in; created when it is missing")
    parser.add_argument("--user", metavar="NAME", help="for whom: policies may ask, and each user has own agent homes")
    parser.add_argument("--ttl", type=seconds, metavar="TIME", help="longest life of the sandbox, such as 90s or 1h")
    parser.add_argument("--timeout", type=seconds, metavar="TIME", help="longest time for this call")
