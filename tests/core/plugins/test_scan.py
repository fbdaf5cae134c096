"""The scan agrees with importlib.metadata, and imports nothing."""

import importlib.metadata
import sys
from pathlib import Path

import pytest

from stockade.plugins.scan import GROUPS, of_kind, scan
from tests.support.toys import Toys


def test_an_entry_point_has_its_distribution_and_version(toys: Toys) -> None:
    toys.dist(
        "toy-driver", {"stockade.drivers": {"toy": "toy_driver:Driver"}}, version="2.1", requires="stockade<0.2,>=0.1"
    )
    (entry,) = scan()
    assert (entry.kind, entry.name, entry.value) == ("driver", "toy", "toy_driver:Driver")
    assert (entry.dist, entry.version, entry.requires) == ("toy-driver", "2.1", "<0.2,>=0.1")


def test_scanning_imports_no_plugin(toys: Toys) -> None:
    toys.dist("toy-bad", {"stockade.drivers": {"bad": "toy_bad"}}, modules={"toy_bad": "raise SystemExit('imported')"})
    assert [entry.name for entry in scan()] == ["bad"]
    assert "toy_bad" not in sys.modules


def test_groups_of_others_are_left_out(toys: Toys) -> None:
    toys.dist(
        "toy-x", {"console_scripts": {"x": "toy_x:main"}, "stockade.engines": {"x": "toy_x:Engine"}, "a": {"b": "c"}}
    )
    assert [entry.group for entry in scan()] == ["stockade.engines"]


def test_the_first_distribution_of_a_name_on_the_path_wins(toys: Toys, tmp_path: Path) -> None:
    toys.dist("toy-a", {"stockade.drivers": {"a": "new:A"}}, version="2.0")
    toys.dist("Toy.A", {"stockade.drivers": {"a": "old:A"}}, version="1.0", site=tmp_path / "later")
    sys.path.append(str(tmp_path / "later"))
    try:
        assert [entry.value for entry in scan()] == ["new:A"]
    finally:
        sys.path.remove(str(tmp_path / "later"))


def test_a_distribution_without_entry_points_hides_its_older_copy(toys: Toys, tmp_path: Path) -> None:
    toys.dist("toy-a", {}, version="2.0")
    toys.dist("toy-a", {"stockade.drivers": {"a": "old:A"}}, site=tmp_path / "later")
    assert scan([str(toys.site), str(tmp_path / "later")]) == ()


def test_a_distribution_that_appears_later_is_found(toys: Toys) -> None:
    assert scan() == ()
    toys.dist("toy-late", {"stockade.plugins": {"late": "toy_late"}})
    assert [entry.name for entry in of_kind("hooks")] == ["late"]


def test_egg_info_counts(toys: Toys) -> None:
    toys.dist("toy-egg", {"stockade.minters": {"egg": "toy_egg:M"}}, suffix="egg-info")
    (entry,) = scan()
    assert (entry.kind, entry.dist, entry.version) == ("minter", "toy-egg", "1.0")


def test_comments_extras_and_odd_spaces_are_read(toys: Toys) -> None:
    folder = toys.dist("toy-odd", {})
    (folder / "entry_points.txt").write_text(
        "# c\n\n[ stockade.drivers ]\n; c\n odd=  toy_odd : D  [extra]\n[other]\nx=y"
    )
    (entry,) = scan()
    assert (entry.name, entry.value) == ("odd", "toy_odd : D")


def test_what_cannot_be_read_is_skipped(toys: Toys, tmp_path: Path) -> None:
    (tmp_path / "archive.zip").write_bytes(b"PK")
    (toys.site / "broken-1.0.dist-info").mkdir()
    (toys.site / "old-1.0.egg-info").write_text("Name: old")
    assert scan([str(tmp_path / "archive.zip"), str(tmp_path / "missing"), str(toys.site)]) == ()


@pytest.mark.parametrize("group", GROUPS.values())
def test_the_scan_agrees_with_importlib_metadata(group: str) -> None:
    ours = {(entry.name, entry.value, entry.dist, entry.version) for entry in scan() if entry.group == group}
    theirs = {
        (entry.name, entry.value, entry.dist.name, entry.dist.version)
        for entry in importlib.metadata.entry_points(group=group)
        if entry.dist is not None
    }
    assert ours == theirs
