"""Install the kernel and one engine from wheels, and see that exactly that engine is offered.

An entry point is offered wherever its distribution is installed; this shows that no distribution
brings more than its own, and that the wheels hold what they need (L83).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXPECTED = {"engine": ["claude"], "driver": []}


def run(*argv: str | Path) -> str:
    """Run a command, show what went wrong, return its output."""
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, argv))}\n{done.stdout}{done.stderr}")
    return done.stdout


def main() -> None:
    """Build, install, ask; exit 1 with the difference."""
    with tempfile.TemporaryDirectory() as scratch:
        wheels, place = Path(scratch) / "wheels", Path(scratch) / "venv"
        print("building wheels", flush=True)
        sources = [ROOT / "core", ROOT / "plugins" / "engines" / "claude"]
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
        run(*pip, "wheel", "--no-deps", "-w", wheels, *sources)
        print("installing them", flush=True)
        venv.create(place, with_pip=True)
        constraints = ["-c", ROOT / "constraints.txt"]
        run(place / "bin" / "python", *pip[1:], "install", *constraints, *sorted(wheels.glob("*.whl")))
        listed = json.loads(run(place / "bin" / "stockade", "plugins", "list", "--json"))
        found = {kind: [row["name"] for row in listed if row["kind"] == kind] for kind in EXPECTED}
        if found != EXPECTED:
            sys.exit(f"a slim installation offers {found}, not {EXPECTED}")
        run(place / "bin" / "stockade", "plugins", "check", "claude")
        print("a slim installation offers exactly the engine claude")


if __name__ == "__main__":
    main()
