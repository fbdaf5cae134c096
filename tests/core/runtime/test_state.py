"""The state root: names, what is deleted and what never is, the registry, owners."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stockade.errors import SandboxInUse, UsageError
from stockade.runtime import owner
from stockade.runtime.owner import Owner
from stockade.runtime.paths import Home, slug
from stockade.runtime.registry import Registry, RegistryError, Row
from stockade.runtime.requests import sandbox_request
from stockade.settings import Settings


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.ensure()
    return made


def row(key: str, owner_id: str) -> Row:
    now = time.time()
    return Row(f"sb-{key}", key, "memory", owner_id, "live", now, now + 60, ephemeral=False)


@pytest.mark.requirement("L58")
@given(st.text(min_size=1))
def test_any_key_is_one_plain_folder_name(key: str) -> None:
    name = slug(key)
    assert "/" not in name
    assert name not in (".", "..")
    assert not name.startswith(".")
    assert len(name) <= 64
    assert name == slug(key)


def test_different_keys_have_different_folders() -> None:
    keys = ["a b", "a_b", "A b", "a/b", "../b", "a-b", "ä", "a" * 100, "a" * 101]
    assert len({slug(k) for k in keys}) == len(keys)


def test_only_marked_directories_directly_in_the_root_are_deleted(home: Home, tmp_path: Path) -> None:
    kept = tmp_path / "precious"
    kept.mkdir()
    (kept / ".stockade").touch()
    unmarked = home.root / "run" / "unmarked"
    unmarked.mkdir()
    link = home.root / "run" / "link"
    link.symlink_to(kept)
    for path in (kept, unmarked, link, home.root / "run" / ".." / ".." / "precious", home.root / "run"):
        assert not home.discard(path)
    assert kept.exists()
    assert unmarked.exists()


def test_a_directory_that_the_agent_made_unreadable_is_deleted_and_its_links_are_not_followed(
    home: Home, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o500)
    state = home.state("k")
    home.make(state)
    inner = state / "locked" / "inner"
    inner.mkdir(parents=True)
    (inner / "file").touch()
    (state / "link").symlink_to(outside)
    inner.chmod(0)
    inner.parent.chmod(0)
    assert home.discard(state)
    assert not state.exists()
    assert outside.stat().st_mode & 0o777 == 0o500


def test_everything_of_the_state_root_is_private(home: Home) -> None:
    registry = Registry(home)
    registry.intend(row("k", "o"))
    for path in (home.root, *home.root.iterdir()):
        assert path.stat().st_mode & 0o077 == 0, path
    registry.close()


@pytest.mark.parametrize("name", ["workspace", "plain"])
def test_a_state_root_below_a_folder_named_workspace_is_still_out_of_reach(tmp_path: Path, name: str) -> None:
    home = Home(tmp_path / name / "home")
    home.ensure()
    own = home.state("k") / "workspace"
    own.mkdir(parents=True)

    def ask(workspace: Path) -> None:
        sandbox_request(
            Settings.load(home=home.root), home, engine="", driver="", session=None, sandbox=None, user=None,
            workspace=workspace, file_access="read-only", ttl=None, env_pass=(), add_dirs=(),
        )  # fmt: skip

    for path in (home.root / "run", home.root, home.root.parent, home.state("k")):
        with pytest.raises(UsageError, match="own state"):
            ask(path)
    ask(own)


def test_a_key_has_one_row_and_the_owner_is_named(home: Home) -> None:
    registry, mine = Registry(home), Owner(home.owners)
    registry.intend(row("k", mine.id))
    with pytest.raises(SandboxInUse, match=str(os.getpid())):
        registry.intend(row("k", mine.id))
    registry.remove("sb-k")
    registry.intend(row("k", mine.id))
    registry.close()
    mine.release()


@pytest.mark.requirement("F64")
def test_an_orphan_is_due_at_its_second_sighting(home: Home) -> None:
    registry, mine = Registry(home), Owner(home.owners)
    registry.intend(row("live", mine.id))
    registry.intend(row("dead", "0123456789abcdef"))
    live, dead = registry.find("live"), registry.find("dead")
    assert live is not None
    assert dead is not None
    assert (registry.is_orphan(live), registry.is_orphan(dead)) == (False, True)
    assert not registry.sight(dead, apart=0)
    again = registry.find("dead")
    assert again is not None
    assert registry.sight(again, apart=0)
    assert not registry.sight(again, apart=3600)
    mine.release()
    assert registry.is_orphan(live)
    registry.close()


def test_lock_files_of_the_dead_go_and_those_of_the_living_stay(home: Home) -> None:
    alive = Owner(home.owners)
    (home.owners / "dead.lock").touch()
    (home.owners / "named.lock").touch()
    owner.forget_dead(home.owners, frozenset({"named"}))
    assert {p.stem for p in home.owners.iterdir()} == {alive.id, "named"}
    alive.release()
    alive.release()


def test_a_registry_that_cannot_be_read_says_what_to_do(home: Home) -> None:
    home.registry.write_bytes(b"this is not a database, but it is long enough to be taken for one" * 20)
    with pytest.raises(RegistryError, match=r"registry\.db") as error:
        Registry(home)
    assert "doctor" in error.value.hint
