"""Runs a command beside a fake backend of Cursor's, for where this process has a network of its own.

``python -m tests.e2e.beside_backend CMD…``; the exit status is the command's.
"""

from __future__ import annotations

import asyncio
import os
import sys

from tests.cursor.backend import Backend, serve, text


async def main() -> int:
    async with serve(Backend()) as backend:
        backend.play([text("It is done.")])
        environment = os.environ | {"STOCKADE_PLUGIN__CURSOR__UPSTREAM": backend.url, "CURSOR_API_KEY": "none"}
        process = await asyncio.create_subprocess_exec(*sys.argv[1:], env=environment)
        return await process.wait()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
