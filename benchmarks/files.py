"""A gibibyte and many small files into and out of a sandbox, beside plain ``tar``; and the memory of both ends."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Awaitable
from pathlib import Path

from benchmarks.report import Bound, row
from stockade import Kernel

GIB = 1024**3
MIB = 1024 * 1024
SMALL = 5000


def main() -> list[Bound]:
    """The rows, and the bounds."""
    with tempfile.TemporaryDirectory(prefix="stockade-bench-") as folder:
        return asyncio.run(_measure(Path(folder)))


async def _measure(folder: Path) -> list[Bound]:
    one, many = folder / "one", folder / "many"
    one.mkdir()
    many.mkdir()
    with (one / "file").open("wb") as file:
        for _ in range(GIB // MIB):
            file.write(os.urandom(MIB))
    for number in range(SMALL):
        (many / f"{number}").write_bytes(os.urandom(2048))
    bounds = []
    async with Kernel.open(home=folder / "home", driver="process") as kernel:
        async with await kernel.files(sandbox="bench") as files:
            await files.upload(many, "warm")
            for name, source, limit in (("1 GiB", one, 5), (f"{SMALL} files", many, 6)):
                # Each its own run of tar: what the disk does meanwhile is part of both.
                plain = _tar(source, folder / "plain")
                ours = os.getpid()
                before = _peak(ours)
                inward = await _timed(files.upload(source, "in"))
                outward = await _timed(files.download("in", folder / "out"))
                growth = _peak(ours) - before
                shutil.rmtree(folder / "out")
                shutil.rmtree(folder / "plain")
                row(f"{name} with tar | tar", f"{plain:9.2f} s")
                row("  into a sandbox", f"{inward:9.2f} s")
                row("  out of it", f"{outward:9.2f} s")
                row("  growth of the kernel's peak memory", f"{growth / MIB:9.1f} MiB")
                bounds += [
                    Bound(f"{name} in, beside tar", inward / plain, limit),
                    Bound(f"{name} out, beside tar", outward / plain, limit),
                    Bound(f"{name}: the kernel's growth", growth / MIB, 32, "MiB"),
                ]
                shutil.rmtree(folder / "home" / "state" / "bench" / "workspace" / "in")
            inside = int((await _output(kernel, "sh", "-c", "grep VmHWM /proc/$PPID/status")).split()[1]) / 1024
            row("peak memory of the inside program", f"{inside:9.1f} MiB")
            bounds.append(Bound("peak memory of the inside program", inside, 128, "MiB"))
    return bounds


async def _timed(copy: Awaitable[object]) -> float:
    started = time.perf_counter()
    await copy
    return time.perf_counter() - started


async def _output(kernel: Kernel, *argv: str) -> str:
    async with await kernel.exec(argv, sandbox="bench") as process:
        return b"".join([data async for stream, data in process if stream == 1]).decode()


def _tar(source: Path, target: Path) -> float:
    target.mkdir()
    started = time.perf_counter()
    packing = subprocess.Popen(["tar", "-C", str(source), "-cf", "-", "."], stdout=subprocess.PIPE)
    subprocess.run(["tar", "-C", str(target), "-xf", "-"], stdin=packing.stdout, check=True)
    packing.wait()
    return time.perf_counter() - started


def _peak(pid: int) -> int:
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024
