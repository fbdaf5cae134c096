"""``stockade --version``: the kernel and every plugin, without importing one."""

from __future__ import annotations

import sys

from stockade import __version__
from stockade.plugins.scan import scan


def version_text() -> str:
    """One line for the kernel, one for each installed plugin, enabled or not."""
    python = ".".join(map(str, sys.version_info[:3]))
    lines = [f"stockade {__version__} (Python {python})"]
    lines += [f"  {entry.kind} {entry}" for entry in scan()]
    return "\n".join(lines)
