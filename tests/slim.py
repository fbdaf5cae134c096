"""Run by ``tox -e slim``: a kernel and one engine from wheels offer exactly that engine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

command = [str(Path(sys.executable).with_name("stockade")), "plugins", "list", "--json"]
listed = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
offered = [(plugin["kind"], plugin["name"], plugin["dist"]) for plugin in listed]
if offered != [("engine", "claude", "stockade-claude")]:
    sys.exit(f"expected the claude engine and nothing else, got {offered}")
print("offered:", offered)
