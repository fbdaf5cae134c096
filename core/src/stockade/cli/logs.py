"""Log records for people: one line each on standard error, tracebacks only with STOCKADE_DEBUG."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable


def debugging() -> bool:
    """Whether the user asked for tracebacks and detail."""
    return os.environ.get("STOCKADE_DEBUG", "") not in ("", "0")


class _Lines(logging.Handler):
    def __init__(self, show: Callable[[str], None]) -> None:
        super().__init__()
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()
            if record.exc_info and record.exc_info[1] is not None:
                text += f": {type(record.exc_info[1]).__name__}: {record.exc_info[1]}"
                if debugging():
                    text += "\n" + logging.Formatter().formatException(record.exc_info)
            self._show(f"{record.levelname.lower()}: {text}")
        except Exception:
            self.handleError(record)


def show_logs(show: Callable[[str], None]) -> None:
    """From now on give each warning, or with ``STOCKADE_DEBUG`` each record, to ``show``."""
    logging.basicConfig(handlers=[_Lines(show)], level=logging.INFO if debugging() else logging.WARNING, force=True)
