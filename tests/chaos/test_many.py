"""Fifty turns at once, on real sandboxes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stockade import Kernel
from stockade.settings import Settings
from tests.chaos.test_killed import ENTRY_POINTS


@pytest.fixture
async def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Kernel]:
    """A kernel with the process driver and an engine that completes at once."""
    info = tmp_path / "site" / "stockade_null-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stockade-null\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(info.parent))
    settings = Settings.load(
        home=tmp_path / "home", plugins=("process", "null"), plugin={"process": {"namespaces": "require"}}
    )
    async with Kernel.open(settings) as opened:
        yield opened


async def statuses(kernel: Kernel, keys: list[str]) -> set[str]:
    """The outcomes of one turn a key, all at once."""
    turns = [
        await kernel.turn("hi", engine="null", driver="process", sandbox=key, session=f"s{i}")
        for i, key in enumerate(keys)
    ]
    return {(o.status + o.message) for o in await asyncio.gather(*(t.outcome() for t in turns))}


@pytest.mark.needs("namespaces")
@pytest.mark.requirement("L1", "L2")
async def test_fifty_turns_for_one_new_key_share_one_real_sandbox(kernel: Kernel) -> None:
    assert await statuses(kernel, ["k"] * 50) == {"completed"}
    assert len(kernel.sandboxes()) == 1


@pytest.mark.needs("namespaces")
@pytest.mark.requirement("L1", "L75")
async def test_fifty_turns_for_fifty_keys_have_fifty_real_sandboxes_and_none_is_lost(kernel: Kernel) -> None:
    keys = [f"k{i}" for i in range(50)]
    assert await statuses(kernel, keys) == {"completed"}
    assert sorted(row.key for row in kernel.sandboxes()) == sorted(keys)
    await asyncio.gather(*(kernel.destroy(key) for key in keys))
    assert kernel.sandboxes() == []
