"""Copies as a kernel makes them: what a sandbox sends is believed in nothing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from stockade.errors import (
    FileError,
    FileExists,
    FileLimit,
    FileMissing,
    FileRefused,
    ProtocolError,
    SandboxLost,
    StockadeError,
)
from stockade.wire import frames
from stockade.wire.hello import dump_object
from stockade.wire.mux import MuxStream
from tests.core.inside.test_archive import HOSTILE, TOP, archive
from tests.support import trees
from tests.support.trees import packed

from .test_runner import until

Serve = Callable[[MuxStream], Awaitable[None]]


async def files(bench: Any, serve: Serve, **options: Any) -> Any:
    """The files of a sandbox whose end of the wire is ``serve``."""
    found = await bench.kernel.files(driver="memory", sandbox="k", **options)
    bench.driver.sandboxes[-1].mux._accept = serve
    return found


def sends(data: bytes) -> Serve:
    async def serve(stream: MuxStream) -> None:
        await stream.send(data)
        await stream.send_end()

    return serve


def resets(code: str, message: str = "why") -> Serve:
    async def serve(stream: MuxStream) -> None:
        # As a hostile peer does it: ours would cut the message.
        await stream._mux.write(frames.encode(frames.RESET, stream.id, dump_object({"code": code, "message": message})))

    return serve


@pytest.mark.parametrize("name", ["traversal", "link-out", "hard-link", "duplicate", "compressed", "zeros-for-ever"])
@pytest.mark.requirement("F96")
async def test_a_hostile_sandbox_writes_nothing_on_the_host(bench: Any, name: str, tmp_path: Path) -> None:
    data, why = HOSTILE[name]
    (tmp_path / "place").mkdir()
    async with await files(bench, sends(data)) as copy:
        for target in (tmp_path / "place", tmp_path / "place" / "new"):
            with pytest.raises(FileRefused, match=why):
                await copy.download("x", target)
    assert os.listdir(tmp_path / "place") == []


async def test_a_download_takes_the_name_that_was_asked_for_not_one_that_was_sent(bench: Any, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    async with await files(bench, sends(archive(TOP))) as copy:
        await copy.download("some/name/", place)
        await copy.download("other", f"{place}/new/")
        await copy.download(".", place)
        with pytest.raises(FileMissing, match="missing"):
            await copy.download("name", place / "missing" / "new")
    assert sorted(os.listdir(place)) == ["name", "new"]


async def test_progress_is_told_and_the_sum_returned(bench: Any, tmp_path: Path) -> None:
    trees.make(tmp_path / "one", {b"a": (0o644, bytes(600_000)), b"b": (0o644, b"")})
    told: list[tuple[int, int]] = []
    async with await files(bench, sends(packed(tmp_path / "one"))) as copy:
        done = await copy.download("x", tmp_path / "two", moved=lambda *sums: told.append(sums))
    assert (done.bytes, done.members) == (600_000, 3)
    assert told == sorted(told)
    assert told[-1] == (600_000, 3)


@pytest.mark.parametrize("how", ["cancelled", "lost"])
async def test_a_download_that_stops_in_the_middle_leaves_nothing(bench: Any, how: str, tmp_path: Path) -> None:
    trees.make(tmp_path / "one", {b"a": (0o644, os.urandom(400_000))})
    dropped = asyncio.Event()
    place = tmp_path / "place"
    place.mkdir()

    async def half(stream: MuxStream) -> None:
        try:
            await stream.send(packed(tmp_path / "one")[:200_000])
            await stream.wait_reset()
        finally:
            dropped.set()

    async with await files(bench, half) as copy:
        copying = asyncio.create_task(copy.download("x", place / "new"))
        await until(lambda: os.listdir(place))
        if how == "cancelled":
            copying.cancel()
            with pytest.raises(asyncio.CancelledError):
                await copying
            assert os.listdir(place) == [], "at once, not some time later"
        else:
            await bench.driver.sandboxes[-1].crash()
            with pytest.raises(SandboxLost):
                await copying
        await dropped.wait()
    assert os.listdir(place) == []


async def test_a_copy_that_is_cancelled_twice_still_waits_for_its_thread(bench: Any, tmp_path: Path) -> None:
    async def silent(stream: MuxStream) -> None:
        await stream.send(archive(TOP)[:512])
        await stream.wait_reset()

    place = tmp_path / "place"
    place.mkdir()
    async with await files(bench, silent) as copy:
        copying = asyncio.create_task(copy.download("x", place / "new"))
        await until(lambda: os.listdir(place))
        copying.cancel()
        await asyncio.sleep(0)
        copying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await copying
        assert os.listdir(place) == []


async def test_the_limits_are_settings(open_bench: Any, tmp_path: Path) -> None:
    trees.make(tmp_path / "one", {b"a": (0o644, bytes(3000))})
    asked: list[Any] = []

    async def serve(stream: MuxStream) -> None:
        asked.append(stream.args)
        await stream.send(packed(tmp_path / "one"))
        await stream.send_end()

    async with open_bench(max_copy_bytes=2999, max_copy_members=7) as bench, await files(bench, serve) as copy:
        with pytest.raises(FileLimit, match="2999") as caught:
            await copy.download("x", tmp_path / "two")
        assert "max_copy_bytes" in caught.value.hint
        with pytest.raises(FileLimit):
            await copy.upload(tmp_path / "one", "two")
        with pytest.raises(FileLimit):
            async for _ in copy.read("x"):
                pass
    assert {(a["max_bytes"], a["max_members"]) for a in asked} == {(2999, 7)}
    assert os.listdir(tmp_path / "one") == ["a"]
    assert not (tmp_path / "two").exists()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("file", FileError), ("file_missing", FileMissing), ("file_exists", FileExists), ("file_limit", FileLimit),
        ("file_refused", FileRefused), ("unsupported", FileError), ("exploded", SandboxLost), ("denied", SandboxLost),
    ],
)  # fmt: skip
async def test_what_a_sandbox_says_becomes_a_typed_error_with_a_hint(
    bench: Any, code: str, kind: type[StockadeError], tmp_path: Path
) -> None:
    (tmp_path / "one").touch()
    async with await files(bench, resets(code, "m" * 200_000)) as copy:
        for work in (copy.upload(tmp_path / "one", "x"), copy.write("x", b"data"), copy.download("x", tmp_path / "y")):
            with pytest.raises(StockadeError) as caught:
                await work
            assert type(caught.value) is kind
            assert len(caught.value.message) < 5000
            assert caught.value.hint or kind is SandboxLost


@pytest.mark.parametrize("answer", [b"", b"{", b"[]", b'{"a": "%s"}' % (b"x" * 5000)])
async def test_an_answer_that_is_none_is_a_protocol_error(bench: Any, answer: bytes) -> None:
    async with await files(bench, sends(answer)) as copy:
        with pytest.raises(ProtocolError):
            await copy.write("x", b"data")


async def test_what_cannot_be_read_here_is_said_before_anything_is_sent(bench: Any, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("nowhere")

    async def serve(stream: MuxStream) -> None:
        with pytest.raises(StockadeError):
            await stream.receive()

    async with await files(bench, serve) as copy:
        with pytest.raises(FileMissing):
            await copy.upload(tmp_path / "nothing", "x")
        with pytest.raises(FileMissing):
            await copy.upload(tmp_path / "link", "x")
        with pytest.raises(FileRefused, match="pipe"):
            await copy.upload(tmp_path / "pipe", "x")


async def test_a_source_of_bytes_that_fails_ends_the_copy(bench: Any) -> None:
    seen: list[str] = []

    async def serve(stream: MuxStream) -> None:
        try:
            while await stream.receive():
                pass
        except StockadeError as error:
            seen.append(getattr(error, "reset_code", ""))

    async def broken() -> AsyncIterator[bytes]:
        yield b"some"
        raise OSError("the disk is gone")

    async with await files(bench, serve) as copy:
        with pytest.raises(OSError, match="the disk"):
            await copy.write("x", broken())
        await until(lambda: seen)
    assert seen == ["cancelled"]


async def test_a_sandbox_that_nobody_can_name_ends_with_its_files(bench: Any) -> None:
    async with await bench.kernel.files(driver="memory") as copy:
        assert [row.id for row in bench.kernel.sandboxes()] == [copy.sandbox]
        await copy.aclose()
    assert bench.kernel.sandboxes() == []
