"""``python -m stockade`` is the ``stockade`` command."""

from __future__ import annotations

from stockade.cli.app import main

if __name__ == "__main__":
    raise SystemExit(main())
