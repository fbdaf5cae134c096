"""The streams ``read``, ``write`` and ``archive`` of a real inside program."""

from __future__ import annotations

import asyncio
import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from stockade.archive.rules import STAGING
from stockade.wire.mux import MuxStream, StreamReset
from tests.core.inside.client import Client, until
from tests.core.inside.conftest import Inside, Start
from tests.support import trees
from tests.support.trees import packed, snapshot, unpacked

LIMITS = {"max_bytes": 10**9, "max_members": 10_000}


async def opened(client: Client, kind: str, path: str, **args: Any) -> MuxStream:
    return await client.mux.open(kind, {"path": path, **LIMITS, **args})


async def received(stream: MuxStream) -> bytes:
    data = b""
    while piece := await stream.receive():
        data += piece
    return data


async def read(client: Client, path: str, **args: Any) -> bytes:
    return await received(await opened(client, "read", path, **args))


async def download(client: Client, path: str, **args: Any) -> bytes:
    return await received(await opened(client, "archive", path, op="download", **args))


async def give(stream: MuxStream, data: bytes) -> Any:
    await stream.send(data)
    await stream.send_end()
    return json.loads(await received(stream))


async def write(client: Client, path: str, data: bytes, **args: Any) -> Any:
    return await give(await opened(client, "write", path, **{"mode": 0o644, **args}), data)


async def upload(client: Client, path: str, data: bytes, **args: Any) -> Any:
    return await give(await opened(client, "archive", path, **{"op": "upload", "into": "", **args}), data)


async def refused(stream: MuxStream) -> str:
    with pytest.raises(StreamReset) as caught:
        await received(stream)
    return caught.value.reset_code


@pytest.mark.requirement("F95")
async def test_a_file_goes_in_and_comes_out_byte_for_byte(inside: Inside) -> None:
    data = bytes(range(256)) * 20_000
    assert await write(inside.client, "f", data, mode=0o4750) == {"bytes": len(data), "members": 0}
    assert (inside.workspace / "f").stat().st_mode & 0o7777 == 0o750
    assert await read(inside.client, "f") == data
    assert await write(inside.client, str(inside.state / "empty"), b"") == {"bytes": 0, "members": 0}
    assert await read(inside.client, str(inside.state / "empty")) == b""


@pytest.mark.requirement("F95", "S69")
async def test_a_tree_goes_in_and_comes_out_the_same(inside: Inside, tmp_path: Path) -> None:
    big = os.urandom(2_000_000)
    trees.make(
        tmp_path / "one",
        {b"run": (0o755, b"#!"), b"\xff": (0o600, big), b"e": (0o750, {}), b"d": (0o755, {b"l": b"../d/x"})},
    )  # a link to where nothing is
    (tmp_path / "one/d/l").unlink()
    (tmp_path / "one/d/l").symlink_to("../run")
    answer = await upload(inside.client, "new", packed(tmp_path / "one"))
    assert answer == {"bytes": len(big) + 2, "members": 6}
    assert snapshot(inside.workspace / "new") == snapshot(tmp_path / "one")
    assert (inside.workspace / "new").stat().st_uid == os.getuid()
    unpacked(await download(inside.client, "new"), tmp_path / "two")
    assert snapshot(tmp_path / "two") == snapshot(tmp_path / "one")


async def test_where_a_copy_goes(inside: Inside, tmp_path: Path) -> None:
    trees.make(tmp_path / "one", {b"a": (0o644, b"")})
    archive = packed(tmp_path / "one")
    await upload(inside.client, "new", archive, into="one")
    await upload(inside.client, "new", archive, into="one")
    await upload(inside.client, "./", archive)
    await upload(inside.client, "", archive, into="top")
    found = sorted(str(p.relative_to(inside.workspace)) for p in inside.workspace.rglob("*"))
    assert found == ["a", "new", "new/a", "new/one", "new/one/a", "top", "top/a"]


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("../outside", "file_refused"), ("a/../../outside", "file_refused"), ("/etc/passwd", "file_refused"),
        ("link/secret", "file_refused"), ("link", "file_refused"), ("file-link", "file_refused"),
        ("file/below", "file_refused"), ("nothing", "file_missing"), ("no/thing", "file_missing"),
        ("fifo", "file_refused"), ("n" * 300, "file_refused"), ("\ud800", "file_refused"),
    ],
)  # fmt: skip
@pytest.mark.requirement("F96")
async def test_what_cannot_be_copied_out(inside: Inside, path: str, code: str) -> None:
    outside = inside.workspace.parent / "outside"
    trees.make(outside, {b"secret": (0o644, b"secret")})
    (inside.workspace / "link").symlink_to(outside)
    (inside.workspace / "file-link").symlink_to(outside / "secret")
    (inside.workspace / "file").touch()
    os.mkfifo(inside.workspace / "fifo")
    assert await refused(await opened(inside.client, "read", path)) == code
    assert await refused(await opened(inside.client, "archive", path, op="download")) == code


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("../outside/x", "file_refused"), ("/etc/x", "file_refused"), ("link/x", "file_refused"),
        ("file/x", "file_refused"), ("no/thing", "file_missing"), ("file", "file_exists"), ("link", "file_exists"),
    ],
)  # fmt: skip
@pytest.mark.requirement("F96")
async def test_where_nothing_can_be_copied_to(inside: Inside, path: str, code: str) -> None:
    outside = inside.workspace.parent / "outside"
    outside.mkdir()
    (inside.workspace / "link").symlink_to(outside)
    (inside.workspace / "file").write_text("old")
    before = snapshot(inside.workspace)
    stream = await opened(inside.client, "write", path, mode=0o644)
    await stream.send_end()
    assert await refused(stream) == code
    assert await refused(await opened(inside.client, "archive", path, op="upload", into="")) == code
    assert snapshot(inside.workspace) == before
    assert list(outside.iterdir()) == []


async def test_a_file_is_replaced_when_asked_and_a_folder_never(inside: Inside) -> None:
    (inside.workspace / "file").write_text("old")
    (inside.workspace / "folder").mkdir()
    await write(inside.client, "file", b"new", overwrite=True)
    assert (inside.workspace / "file").read_text() == "new"
    stream = await opened(inside.client, "write", "folder", mode=0o644, overwrite=True)
    await stream.send_end()
    assert await refused(stream) == "file_exists"


async def test_a_workspace_that_was_given_as_a_link_is_one(start: Start, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "given").symlink_to("real")
    inside = await start("--workspace", str(tmp_path / "given"))
    await write(inside.client, "a", b"a")
    await write(inside.client, str(tmp_path / "given" / "b"), b"b")
    await write(inside.client, str(tmp_path / "real" / "c"), b"c")
    assert sorted(os.listdir(tmp_path / "real")) == ["a", "b", "c"]


@pytest.mark.requirement("F96")
async def test_a_workspace_that_becomes_a_link_is_not_followed(inside: Inside) -> None:
    outside = inside.workspace.parent / "outside"
    trees.make(outside, {b"secret": (0o644, b"secret")})
    await inside.client.exec("sh", "-c", f"cd / && rm -r {inside.workspace} && ln -s {outside} {inside.workspace}")
    assert await refused(await opened(inside.client, "read", "secret")) == "file_refused"
    assert await refused(await opened(inside.client, "archive", ".", op="download")) == "file_refused"
    stream = await opened(inside.client, "write", "x", mode=0o644)
    await stream.send_end()
    assert await refused(stream) == "file_refused"
    assert os.listdir(outside) == ["secret"]


@pytest.mark.requirement("F96")
async def test_the_inside_refuses_a_hostile_archive_too(inside: Inside) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        folder, link, through = (tarfile.TarInfo(n) for n in ("data", "data/l", "data/l/x"))
        folder.type, link.type, link.linkname = tarfile.DIRTYPE, tarfile.SYMTYPE, ".."
        for member in (folder, link, through):
            tar.addfile(member)
    stream = await opened(inside.client, "archive", "new", op="upload", into="")
    await stream.send(out.getvalue())
    assert await refused(stream) == "file_refused"
    assert list(inside.workspace.iterdir()) == []


async def test_limits_hold_both_ways(inside: Inside, tmp_path: Path) -> None:
    trees.make(tmp_path / "one", {b"a": (0o644, bytes(3000))})
    trees.make(inside.workspace / "one", {b"a": (0o644, bytes(3000))})
    archive = packed(tmp_path / "one")
    for small in ({"max_bytes": 2999}, {"max_members": 1}):
        assert await refused(await opened(inside.client, "archive", "one", op="download", **small)) == "file_limit"
        stream = await opened(inside.client, "archive", "two", op="upload", into="", **small)
        await stream.send(archive)
        assert await refused(stream) == "file_limit"
    assert await refused(await opened(inside.client, "read", "one/a", max_bytes=2999)) == "file_limit"
    stream = await opened(inside.client, "write", "two", mode=0o644, max_bytes=2999)
    await stream.send(bytes(3000))
    assert await refused(stream) == "file_limit"
    assert os.listdir(inside.workspace) == ["one"]


@pytest.mark.parametrize("kind", ["archive", "write"])
async def test_a_copy_that_is_dropped_in_the_middle_leaves_nothing(inside: Inside, tmp_path: Path, kind: str) -> None:
    (tmp_path / "one").write_bytes(os.urandom(1_000_000))
    stream = await opened(inside.client, kind, "new", op="upload", into="", mode=0o644)
    await stream.send(packed(tmp_path / "one")[:700_000])
    await until(lambda: os.listdir(inside.workspace), "it has begun")
    assert os.fsencode(os.listdir(inside.workspace)[0]).startswith(STAGING)
    meanwhile = await download(inside.client, ".")
    assert len(meanwhile) == 512 + 1024, "a folder with nothing in it: what is not finished is nobody's"
    await stream.reset("cancelled")
    await until(lambda: not os.listdir(inside.workspace), "it is gone")


async def test_an_end_in_the_middle_is_an_archive_that_is_cut_off(inside: Inside, tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(bytes(100_000))
    stream = await opened(inside.client, "archive", "new", op="upload", into="")
    await stream.send(packed(tmp_path / "one")[:50_000])
    await stream.send_end()
    assert await refused(stream) == "file_refused"
    assert os.listdir(inside.workspace) == []


async def test_copies_that_stall_hold_up_nobody(inside: Inside) -> None:
    (inside.workspace / "big").write_bytes(bytes(3_000_000))
    stalled = [await opened(inside.client, "archive", f"new{n}", op="upload", into="") for n in range(20)]
    stalled += [await opened(inside.client, "read", "big") for _ in range(20)]
    async with asyncio.timeout(30):
        assert await inside.client.text("echo", "on") == "on\n"
        await write(inside.client, "other", b"x" * 1_000_000)
        assert len(await read(inside.client, "other")) == 1_000_000
    for stream in stalled:
        await stream.reset("cancelled")
    await until(lambda: sorted(os.listdir(inside.workspace)) == ["big", "other"], "nothing of them is left")


@pytest.mark.slow
async def test_a_big_copy_takes_no_memory(inside: Inside) -> None:
    before = (await inside.client.control("stats"))["rss"]
    with (inside.workspace / "big").open("wb") as file:
        file.truncate(300_000_000)
    stream, size = await opened(inside.client, "archive", "big", op="download"), 0
    while piece := await stream.receive():
        size += len(piece)
    assert size > 300_000_000
    assert (await inside.client.control("stats"))["rss"] - before < 32 * 1024 * 1024


@pytest.mark.parametrize(
    ("kind", "args"),
    [
        ("archive", {}), ("archive", {"op": "explode"}), ("archive", {"op": "upload"}),
        ("archive", {"op": "download", "exclude": [1]}), ("write", {}),
        ("write", {"mode": -1}), ("read", {"path": 7}), ("read", {"path": "a\0b"}), ("read", {"max_bytes": "all"}),
    ],
)  # fmt: skip
async def test_a_malformed_request_is_refused(client: Client, kind: str, args: dict[str, Any]) -> None:
    assert await refused(await client.mux.open(kind, {"path": "x", **LIMITS, **args})) == "protocol"


async def test_what_is_excluded_stays_in(inside: Inside, tmp_path: Path) -> None:
    trees.make(inside.workspace / "one", {b".venv": (0o755, {b"l": b"/etc"}), b"a": (0o644, b"")})
    unpacked(await download(inside.client, "one", exclude=[".venv"]), tmp_path / "two")
    assert os.listdir(tmp_path / "two") == ["a"]


async def test_a_name_for_a_folder_is_one_name(client: Client) -> None:
    assert await refused(await opened(client, "archive", ".", op="upload", into="../x")) == "file_refused"


async def test_the_streams_are_announced(inside: Inside) -> None:
    assert {"read", "write", "archive"} <= set((await inside.client.mux._peer).capabilities)  # type: ignore[misc]
