"""An engine whose import lasts as long as the pipe ``gate`` in the workspace is open."""

from pathlib import Path

Path("gate").read_text()
