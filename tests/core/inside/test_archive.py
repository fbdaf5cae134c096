"""Packing and unpacking: what comes back is what went in, and nothing hostile gets anywhere."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import shutil
import socket
import stat
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stockade.archive import beneath
from stockade.archive.pack import pack
from stockade.archive.rules import STAGING, Limits, Tally
from stockade.errors import FileError, FileExists, FileLimit, FileRefused
from tests.support import trees
from tests.support.trees import Tree, packed, snapshot, unpacked

FAST = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])

# -- what comes back ----------------------------------------------------------------------------------

_names = st.one_of(
    st.binary(min_size=1, max_size=20),
    st.sampled_from(
        [b"caf\xc3\xa9", b"cafe\xcc\x81", b"\xff\xfe", b" ", b"new\nline", b"-rf", b"a" * 255, b"\x1b[31m"]
    ),
).filter(lambda n: b"/" not in n and b"\0" not in n and n not in (b".", b"..") and not n.startswith(STAGING))
_files = st.tuples(
    st.integers(0, 0o777).map(lambda mode: mode | 0o400), st.one_of(st.binary(max_size=2000), st.just(9000).map(bytes))
)
_links = st.sampled_from([b"x", b"./x/y", b"x//y/", b"dangling/" + b"n" * 200])
_trees: st.SearchStrategy[Tree] = st.recursive(
    st.dictionaries(_names, st.one_of(_files, _links), max_size=4),
    lambda below: st.dictionaries(
        _names,
        st.one_of(_files, _links, st.tuples(st.integers(0, 0o777).map(lambda mode: mode | 0o500), below)),
        max_size=4,
    ),
    max_leaves=12,
)


@FAST
@given(_trees)
@pytest.mark.requirement("S69")
def test_what_was_copied_out_can_be_copied_in_and_is_the_same(tree: Tree) -> None:
    with tempfile.TemporaryDirectory() as folder:
        one, other, third = (Path(folder, name) for name in ("one", "other", "third"))
        trees.make(one, tree)
        try:
            first = packed(one)
            unpacked(first, other)
            assert snapshot(other) == snapshot(one)
            second = packed(other)
            assert second == first
            unpacked(second, third, piece=1_000_000)
            assert snapshot(third) == snapshot(one)
        finally:
            trees.opened([one, other, third])


@FAST
@given(_trees)
def test_the_archive_is_one_that_others_can_read(tree: Tree) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "one")
        trees.make(root, tree)
        try:
            with tarfile.open(fileobj=io.BytesIO(packed(root))) as archive:
                found = {os.path.relpath(m.name, "data").encode("utf-8", "surrogateescape"): m for m in archive}
                assert found.keys() == snapshot(root).keys()
        finally:
            trees.opened([root])


def test_modes_are_kept_but_for_the_bits_that_change_the_user(tmp_path: Path) -> None:
    trees.make(
        tmp_path / "one", {b"run": (0o755, b"#!"), b"closed": (0o555, {b"in": (0o640, b"x")}), b"e": (0o700, {})}
    )
    (tmp_path / "one/run").chmod(0o6755)
    (tmp_path / "one/e").chmod(0o3771)
    unpacked(packed(tmp_path / "one"), tmp_path / "two")
    modes = {name: mode for name, (_, mode, _) in snapshot(tmp_path / "two").items()}
    trees.opened([tmp_path])
    assert modes == {b".": 0o755, b"run": 0o755, b"closed": 0o555, b"closed/in": 0o640, b"e": 0o771}


def test_one_file_is_copied_too_and_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"")
    unpacked(packed(tmp_path / "one"), tmp_path / "two")
    assert (tmp_path / "two").read_bytes() == b""


def test_hard_links_become_files_of_their_own(tmp_path: Path) -> None:
    trees.make(tmp_path / "one", {b"a": (0o644, b"same")})
    os.link(tmp_path / "one/a", tmp_path / "one/b")
    unpacked(packed(tmp_path / "one"), tmp_path / "two")
    assert (tmp_path / "two/b").read_bytes() == b"same"
    assert (tmp_path / "two/b").stat().st_nlink == 1


def test_holes_stay_holes(tmp_path: Path) -> None:
    with (tmp_path / "one").open("wb") as file:
        file.truncate(64 * 1024 * 1024)
        file.seek(32 * 1024 * 1024)
        file.write(b"data")
    unpacked(packed(tmp_path / "one"), tmp_path / "two", piece=256 * 1024)
    assert (tmp_path / "two").read_bytes() == (tmp_path / "one").read_bytes()
    assert (tmp_path / "two").stat().st_blocks * 512 < 4 * 1024 * 1024


def _fifo(root: Path) -> None:
    os.mkfifo(root / "odd")


def _socket(root: Path) -> None:
    here = os.getcwd()
    os.chdir(root)  # the address of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind("odd")
    finally:
        os.chdir(here)


def _link(target: str) -> Callable[[Path], None]:
    return lambda root: (root / "sub/odd").symlink_to(target.format(root=root))


def _deep(root: Path) -> None:
    for _ in range(110):
        root = root / "odd"
        root.mkdir()


@pytest.mark.parametrize(
    "spoil",
    [
        _fifo, _socket, _deep, _link("/etc/passwd"), _link("{root}/sub/in"), _link("../../x"), _link("in/../../../x"),
    ],
    ids=["fifo", "socket", "too-deep", "link-out", "absolute-link-in", "link-above", "link-through-a-name"],
)  # fmt: skip
@pytest.mark.requirement("S69", "F96")
def test_what_could_not_be_restored_is_refused_when_it_is_saved(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    trees.make(tmp_path / "one", {b"sub": (0o755, {b"in": (0o644, b"x")})})
    spoil(tmp_path / "one")
    with pytest.raises(FileRefused, match="odd"):
        packed(tmp_path / "one")


@pytest.mark.slow
@pytest.mark.requirement("S69")
def test_a_virtual_environment_is_refused_at_its_link_or_comes_back_whole(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "one"], check=True)
    with pytest.raises(FileRefused, match=r"bin/python.*: a link to '/"):
        packed(tmp_path / "one")
    unpacked(packed(tmp_path / "one", exclude=["bin/python*"]), tmp_path / "two")
    for path in [*tmp_path.glob("one/bin/python*")]:
        path.unlink()
    assert snapshot(tmp_path / "one") == snapshot(tmp_path / "two")


def test_what_is_excluded_is_left_out_with_all_below_it(tmp_path: Path) -> None:
    sub: Tree = {b".venv": (0o755, {b"l": b"/etc/passwd"}), b"a.pyc": (0o644, b""), b"a.py": (0o644, b"")}
    trees.make(tmp_path / "one", {**sub, b"sub": (0o755, {**sub, b"deep": (0o755, sub)})})
    unpacked(packed(tmp_path / "one", exclude=[".venv", "*.pyc", "sub/d*"]), tmp_path / "two")
    assert snapshot(tmp_path / "two").keys() == {b".", b"a.py", b"sub", b"sub/a.py"}


def test_a_file_that_shrinks_meanwhile_is_an_error_and_not_a_damaged_archive(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(bytes(1_000_000))
    descriptor = os.open(tmp_path / "one", os.O_RDONLY)
    pieces = pack(descriptor, Tally(trees.ROOMY))
    next(pieces)
    os.truncate(tmp_path / "one", 10)
    with pytest.raises(FileError, match="shorter"):
        list(pieces)
    os.close(descriptor)


def test_a_name_that_vanishes_meanwhile_is_left_out(tmp_path: Path) -> None:
    trees.make(tmp_path / "one", {b"a": (0o644, b"1"), b"b": (0o644, b"2")})
    descriptor = os.open(tmp_path / "one", os.O_RDONLY)
    pieces = pack(descriptor, Tally(trees.ROOMY))
    got = [next(pieces) for _ in range(3)]  # the folder, and a's header and content
    (tmp_path / "one/b").unlink()
    unpacked(b"".join([*got, *pieces]), tmp_path / "two")
    os.close(descriptor)
    assert {p.name for p in (tmp_path / "two").iterdir()} == {"a"}


# -- what must not get in -----------------------------------------------------------------------------

Member = tuple[str, bytes, object]
D, F, L = tarfile.DIRTYPE, tarfile.REGTYPE, tarfile.SYMTYPE
TOP: Member = ("data", D, None)


def archive(*members: Member, format: int = tarfile.PAX_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as tar:
        for name, type_, more in members:
            info = tarfile.TarInfo(name)
            info.type, info.mode = type_, 0o755
            if isinstance(more, bytes):
                info.size = len(more)
            elif isinstance(more, str):
                info.linkname = more
            elif isinstance(more, dict):
                info.pax_headers = more
            tar.addfile(info, io.BytesIO(more) if isinstance(more, bytes) else None)
    return out.getvalue()


def header(**fields: object) -> bytes:
    """One header block as it is said to be, with a right sum."""
    info = tarfile.TarInfo("data")
    for name, value in fields.items():
        setattr(info, name, value)
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


END = bytes(1024)
HOSTILE: dict[str, tuple[bytes, str]] = {
    "traversal": (archive(TOP, ("data/../../escaped", F, b"x")), r"empty parts, \. or \.\."),
    "traversal-at-once": (archive(("../escaped", F, b"x")), "leads out"),
    "absolute": (archive(("/tmp/escaped", F, b"x")), "absolute"),
    "another-name": (archive(TOP, ("escaped", F, b"x")), "leads out"),
    "empty-part": (archive(TOP, ("data//x", F, b"x")), "empty parts"),
    "dot": (archive(TOP, ("data/./x", F, b"x")), "empty parts"),
    "absolute-link": (archive(TOP, ("data/l", L, "/etc/passwd")), "absolute"),
    "link-out": (archive(TOP, ("data/l", L, "../escaped")), "leads out"),
    "link-out-deep": (archive(TOP, ("data/a", D, None), ("data/a/l", L, "../../escaped")), "leads out"),
    "link-through-a-link": (
        archive(TOP, ("data/a", D, None), ("data/a/b", D, None), ("data/k", L, "a/b"), ("data/l", L, "k/../../..")),
        r"\.\. may lead anywhere",
    ),
    "empty-link": (archive(TOP, ("data/l", L, "")), "empty"),
    "link-then-through": (archive(TOP, ("data/l", L, "."), ("data/l/x", F, b"x")), "link or a file"),
    "link-then-over": (archive(TOP, ("data/l", L, "x"), ("data/l", F, b"x")), "twice"),
    "only-a-link": (archive(("data", L, "x")), "only a link"),
    "hard-link": (archive(TOP, ("data/a", F, b"x"), ("data/b", tarfile.LNKTYPE, "data/a")), "a hard link"),
    "hard-link-out": (archive(TOP, ("data/b", tarfile.LNKTYPE, "/etc/passwd")), "a hard link"),
    "device": (archive(TOP, ("data/sda", tarfile.BLKTYPE, None)), "a device"),
    "character-device": (archive(TOP, ("data/mem", tarfile.CHRTYPE, None)), "a device"),
    "pipe": (archive(TOP, ("data/p", tarfile.FIFOTYPE, None)), "a named pipe"),
    "contiguous": (archive(TOP, ("data/c", tarfile.CONTTYPE, b"")), "unknown kind"),
    "gnu-sparse": (archive(TOP) [:512] + header(name="data/s", type=tarfile.GNUTYPE_SPARSE) + END, "unknown kind"),
    "duplicate": (archive(TOP, ("data/a", F, b"1"), ("data/a", F, b"2")), "twice"),
    "duplicate-folder": (archive(TOP, ("data/a", D, None), ("data/a", D, None)), "twice"),
    "duplicate-top": (archive(TOP, TOP), "two things"),
    "two-files": (archive(("data", F, b"1"), ("data", F, b"2")), "two things"),
    "below-a-file": (archive(TOP, ("data/a", F, b"1"), ("data/a/b", F, b"2")), "link or a file"),
    "below-nothing": (archive(TOP, ("data/a/b", F, b"2")), "not in the archive"),
    "top-is-missing": (archive(("data/b", F, b"2")), "not in the archive"),
    "long-part": (archive(TOP, ("data/" + "n" * 256, F, b"")), "too long"),
    "long-path": (archive(TOP, ("data/" + "/".join(["n" * 200] * 21), F, b"")), "longer than"),
    "too-deep": (archive(TOP, ("data" + "/n" * 101, D, None)), "too deep"),
    "nul": (archive(TOP, ("x", F, {"path": "data/a\0b"})), "NUL"),
    "pax-sparse": (archive(TOP, ("data/s", F, {"GNU.sparse.major": "1"})), "unknown"),
    "pax-huge": (archive(TOP, ("data/s", F, {"comment": "c" * 100_000})), "extended header of"),
    "pax-global": (header(type=tarfile.XGLTYPE, size=0) + END, "unknown kind"),
    "pax-twice": (
        header(type=tarfile.XHDTYPE, size=12) + b"12 path=dat\n".ljust(512, b"\0")
        + header(type=tarfile.XHDTYPE, size=12) + b"12 path=dat\n".ljust(512, b"\0") + END, "two in a row"),
    "pax-torn": (header(type=tarfile.XHDTYPE, size=12) + b"99 path=dat\n".ljust(512, b"\0") + END, "malformed"),
    "pax-without-a-member": (header(type=tarfile.XHDTYPE, size=13) + b"13 path=data\n".ljust(512, b"\0") + END, "end"),
    "pax-negative": (archive(TOP, ("data/s", F, {"size": "-5"})), "of -1 bytes"),
    "negative": (archive(TOP)[:512] + header(name="data/n", size=-512) + END, "bytes"),
    "folder-with-content": (header(type=D, size=512) + END, "a folder of 512 bytes"),
    "gnu-long-name": (archive(TOP, ("data/" + "n" * 150, F, b""), format=tarfile.GNU_FORMAT), "unknown kind"),
    "compressed": (gzip.compress(archive(("data", F, os.urandom(2000)))), "no tar archive"),
    "garbage": (bytes(range(256)) * 8, "no tar archive"),
    "empty": (END, "empty"),
    "nothing": (b"", "cut off"),
    "one-zero-block": (archive(TOP)[:512] + bytes(512), "cut off"),
    "half-an-end": (archive(TOP)[:512] + bytes(512) + b"x" * 512, "end is damaged"),
    "something-follows": (archive(TOP) + b"x", "follows"),
    "zeros-for-ever": (archive(TOP) + bytes(1_000_000), "follows"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.requirement("F96")
def test_a_hostile_archive_is_refused_and_leaves_nothing(name: str, tmp_path: Path) -> None:
    data, why = HOSTILE[name]
    (tmp_path / "inner").mkdir()
    with pytest.raises(FileRefused, match=why):
        unpacked(data, tmp_path / "inner" / "target")
    assert os.listdir(tmp_path) == ["inner"]
    assert os.listdir(tmp_path / "inner") == []
    assert not Path("/tmp/escaped").exists()


@pytest.mark.parametrize(
    ("limits", "why"),
    [(Limits(2500, 100), "'b': with its 2000 bytes it is more than 2500"), (Limits(10**6, 2), "'b': .*than 2 members")],
)
def test_limits_are_of_the_whole_copy_at_both_ends(limits: Limits, why: str, tmp_path: Path) -> None:
    trees.make(tmp_path / "one", {b"a": (0o644, bytes(2000)), b"b": (0o644, bytes(2000))})
    with pytest.raises(FileLimit, match=why):
        packed(tmp_path / "one", limits)
    with pytest.raises(FileLimit, match=why):
        unpacked(packed(tmp_path / "one"), tmp_path / "two", limits=limits)
    assert os.listdir(tmp_path) == ["one"]


def test_a_size_that_is_only_said_is_refused_before_a_byte_of_it_came(tmp_path: Path) -> None:
    def endless() -> Iterator[bytes]:
        yield header(size=10**12)
        pytest.fail("it asked for the content")

    with pytest.raises(FileLimit):
        unpacked(endless(), tmp_path / "two")


def test_an_archive_that_is_cut_off_anywhere_leaves_nothing(tmp_path: Path) -> None:
    trees.make(tmp_path / "one", {b"a": (0o644, bytes(range(256)) * 5), "ü".encode() * 90: (0o755, {b"l": b"x"})})
    whole = packed(tmp_path / "one")
    for cut in range(0, len(whole), 97):
        with pytest.raises(FileRefused, match="cut off"):
            unpacked(whole[:cut], tmp_path / "two")
        assert os.listdir(tmp_path) == ["one"]


@FAST
@given(st.data())
@pytest.mark.requirement("F96")
def test_a_damaged_archive_ends_in_a_typed_error_or_within_its_place(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        one, two = Path(folder, "one"), Path(folder, "two")
        trees.make(one, {b"a": (0o644, b"x" * 600), b"\xff" * 150: (0o755, {b"l": b"x"}), b"s": b"a"})
        damaged = bytearray(packed(one))
        before = snapshot(one)
        for at, value in data.draw(
            st.lists(st.tuples(st.integers(0, len(damaged) - 1), st.integers(0, 255)), min_size=1, max_size=4)
        ):
            block = at - at % 512
            damaged[at] = value
            if data.draw(st.booleans()):  # with a right sum, so that the rest is read too
                damaged[block + 148 : block + 156] = b" " * 8
                total = sum(damaged[block : block + 512])
                damaged[block + 148 : block + 156] = b"%06o\0 " % total
        try:
            unpacked(bytes(damaged), two)
        except FileError:
            assert not os.path.lexists(two)
        trees.opened([two] if two.is_dir() else [])
        assert set(os.listdir(folder)) <= {"one", "two"}
        assert snapshot(one) == before


# -- what is there already ----------------------------------------------------------------------------


def test_an_existing_file_is_kept_unless_it_is_to_be_replaced(tmp_path: Path) -> None:
    trees.make(tmp_path / "one", {b"a": (0o644, b"new"), b"Z-first": (0o644, b"new")})
    trees.make(tmp_path / "two", {b"a": (0o600, b"old"), b"other": (0o644, b"other")})
    before = snapshot(tmp_path / "two")
    with pytest.raises(FileExists, match="two/a"):
        unpacked(packed(tmp_path / "one"), tmp_path / "two")
    assert snapshot(tmp_path / "two") == before, "nothing was moved, not even what was missing"
    unpacked(packed(tmp_path / "one"), tmp_path / "two", overwrite=True)
    found = {path.name: path.read_text() for path in (tmp_path / "two").iterdir()}
    assert found == {"a": "new", "Z-first": "new", "other": "other"}


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_never_takes_the_place_of_a_file_nor_a_file_of_a_folder(tmp_path: Path, overwrite: bool) -> None:
    trees.make(tmp_path / "one", {b"a": (0o755, {}), b"b": (0o644, b"")})
    trees.make(tmp_path / "two", {b"a": (0o644, b""), b"c": (0o755, {})})
    trees.make(tmp_path / "three", {b"b": (0o755, {b"full": (0o644, b"")})})
    for target in ("two", "three"):
        with pytest.raises(FileExists):
            unpacked(packed(tmp_path / "one"), tmp_path / target, overwrite=overwrite)
    with pytest.raises(FileExists):
        unpacked(packed(tmp_path / "one"), tmp_path / "two/a", overwrite=overwrite)


@pytest.mark.requirement("F96")
def test_a_link_at_the_destination_is_replaced_and_never_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    trees.make(outside, {b"f": (0o644, b"mine")})
    trees.make(tmp_path / "one", {b"d": (0o755, {b"f": (0o644, b"hostile")}), b"f": (0o644, b"hostile")})
    trees.make(tmp_path / "two", {b"d": os.fsencode(outside), b"f": os.fsencode(outside / "f")})
    with pytest.raises(FileExists):
        unpacked(packed(tmp_path / "one"), tmp_path / "two", overwrite=True)
    (tmp_path / "two/d").unlink()
    unpacked(packed(tmp_path / "one"), tmp_path / "two", overwrite=True)
    assert not (tmp_path / "two/f").is_symlink()
    assert (outside / "f").read_bytes() == b"mine"


# -- what changes meanwhile ---------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["the destination", "its staging", "a folder in staging"])
@pytest.mark.requirement("F96")
def test_a_folder_that_becomes_a_link_while_it_is_filled_leads_nowhere(what: str, tmp_path: Path) -> None:
    outside, place = tmp_path / "outside", tmp_path / "place"
    trees.make(outside, {b"f": (0o644, b"mine"), b"data": (0o755, {}), b"d": (0o755, {})})
    before = snapshot(outside)
    trees.make(place, {b"sub": (0o755, {})})
    trees.make(
        tmp_path / "one", {b"a": (0o644, bytes(5000)), b"d": (0o755, {b"f": (0o644, b"x")}), b"f": (0o644, b"x")}
    )

    def swap() -> None:
        victim = place / "sub"
        if what != "the destination":
            [name] = [n for n in os.listdir(place) if os.fsencode(n).startswith(STAGING)]
            victim = place / name
            if what == "a folder in staging":
                victim /= "data"
        victim.rename(tmp_path / "taken")
        victim.symlink_to(outside)

    whole = packed(tmp_path / "one")

    def arriving() -> Iterator[bytes]:
        yield whole[:3000]
        swap()
        yield whole[3000:]

    try:
        unpacked(arriving(), place / "sub", overwrite=True)
    except FileError:
        pass  # noticed; else it went where the folder was
    assert snapshot(outside) == before


@pytest.mark.requirement("F96")
def test_a_folder_that_becomes_a_link_after_the_last_look_leads_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside, place = tmp_path / "outside", tmp_path / "place"
    trees.make(outside, {b"mine": (0o644, b"")})
    trees.make(place, {b"sub": (0o755, {})})
    trees.make(tmp_path / "one", {b"sub": (0o755, {b"f": (0o644, b"x")})})
    before = snapshot(outside)
    look = beneath.kind

    def look_and_swap(folder: int, name: bytes) -> object:
        found = look(folder, name)
        if name == b"sub" and os.path.samestat(os.fstat(folder), place.stat()):
            (place / "sub").rename(tmp_path / "taken")
            (place / "sub").symlink_to(outside)
        return found

    monkeypatch.setattr(beneath, "kind", look_and_swap)
    with pytest.raises(FileRefused, match="link"):
        unpacked(packed(tmp_path / "one"), place)
    assert snapshot(outside) == before


@pytest.mark.slow
@pytest.mark.requirement("F96")
def test_nobody_wins_a_race_of_links(tmp_path: Path) -> None:
    outside, place = tmp_path / "outside", tmp_path / "place"
    trees.make(outside, {b"secret": (0o644, b"the secret")})
    before = snapshot(outside)
    trees.make(place, {b"sub": (0o755, {b"deep": (0o755, {})})})
    trees.make(tmp_path / "one", {b"sub": (0o755, {b"deep": (0o755, {b"f": (0o644, b"x")})})})
    whole = packed(tmp_path / "one")
    over = threading.Event()

    sub, real = place / "sub", place / "real"
    steps: list[Callable[[], object]] = [
        lambda: shutil.rmtree(real, ignore_errors=True),
        lambda: os.rename(sub, real),
        lambda: os.symlink(outside, sub),
        lambda: os.unlink(sub),
        lambda: os.rename(real, sub),
    ]

    def exchange() -> None:
        while not over.is_set():
            for step in steps:
                with contextlib.suppress(OSError):  # the copy has made a folder where the link should be
                    step()

    racing = threading.Thread(target=exchange)
    racing.start()
    try:
        for _ in range(300):
            try:
                unpacked(whole, place, overwrite=True)
                assert b"the secret" not in packed(place)
            except FileError:
                continue  # it met the link, or a moment without either
    finally:
        over.set()
        racing.join()
    assert snapshot(outside) == before


def test_a_source_that_becomes_a_link_is_not_followed(tmp_path: Path) -> None:
    trees.make(tmp_path / "outside", {b"f": (0o644, b"secret")})
    trees.make(tmp_path / "one", {b"a": (0o644, b"1"), b"d": (0o755, {b"f": (0o644, b"2")})})
    descriptor = os.open(tmp_path / "one", os.O_RDONLY)
    pieces = pack(descriptor, Tally(trees.ROOMY))
    next(pieces)
    (tmp_path / "one/d").rename(tmp_path / "d")
    (tmp_path / "one/d").symlink_to(tmp_path / "outside")
    with pytest.raises(FileRefused):
        list(pieces)
    os.close(descriptor)


def test_what_a_killed_process_left_is_removed_and_what_lives_is_not(tmp_path: Path) -> None:
    place = os.open(tmp_path, os.O_RDONLY)
    dead = tmp_path / (os.fsdecode(STAGING) + "dead")
    dead.mkdir()
    (dead / "data").write_bytes(b"")
    with beneath.Staging(place):
        [alive] = set(tmp_path.iterdir()) - {dead}
        for path in (dead, alive):
            os.utime(path, (0, 0))
        with beneath.Staging(place):
            assert not dead.exists()
            assert alive.exists()
    os.close(place)
    assert os.listdir(tmp_path) == []


def test_an_unfinished_copy_is_no_part_of_a_tree(tmp_path: Path) -> None:
    trees.make(tmp_path / "one", {STAGING + b"x": (0o700, {b"data": (0o600, b"half")}), b"a": (0o644, b"")})
    unpacked(packed(tmp_path / "one"), tmp_path / "two")
    assert os.listdir(tmp_path / "two") == ["a"]


FULL = """
import os, sys
from pathlib import Path
from stockade.errors import FileError
from tests.support.trees import packed, unpacked
source, disk = map(Path, sys.argv[1:])
try:
    unpacked(packed(source), disk / "target")
except FileError as error:
    print(error.code, error.message, os.listdir(disk))
"""


@pytest.mark.needs("namespaces")
def test_a_full_disk_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    trees.make(tmp_path / "one", {b"a": (0o644, b"x" * 3_000_000)})
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c",
         'mount -t tmpfs -o size=1m none "$3" && exec "$0" -c "$1" "$2" "$3"',
         sys.executable, FULL, tmp_path / "one", disk],
        cwd=Path(__file__).parents[3], capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout == "file 'a': No space left on device []\n", done.stderr


def test_a_device_in_a_tree_is_refused(tmp_path: Path) -> None:
    found = os.stat("/dev/null")
    assert stat.S_ISCHR(found.st_mode)
    descriptor = os.open("/dev", os.O_RDONLY)
    with pytest.raises(FileRefused, match=r"device|link|pipe"):
        list(pack(descriptor, Tally(trees.ROOMY)))
    os.close(descriptor)
