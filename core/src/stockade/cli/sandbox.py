"""``stockade sandbox``: the inside program under another name (see ``python -m stockade.inside``)."""

from __future__ import annotations


def run(argv: list[str]) -> int:
    """Hand everything over; imports nothing before, because the init forks before asyncio is loaded."""
    from stockade.inside.main import main

    return int(main(argv) or 0)
