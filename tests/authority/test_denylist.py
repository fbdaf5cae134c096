"""What is revoked is revoked everywhere, at once, and after a restart; and only for as long as it matters."""

from __future__ import annotations

import sqlite3
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stockade_authority import denylist as module
from stockade_authority.denylist import Denylist
from stockade_authority.errors import DenylistUnavailable, TokenRevoked
from stockade_authority.verify import Verifier

from .conftest import Issue


def soon() -> float:
    return time.time() + 300


def test_a_revocation_survives_a_restart(home: Path) -> None:
    first = Denylist(home)
    first.deny({"a": soon(), "b": soon()}, "the turn is over")
    first.close()
    second = Denylist(home)
    assert [second.denies(jti) for jti in ("a", "b", "c")] == [True, True, False]
    second.close()


def test_another_that_has_looked_before_sees_it(home: Path, denylist: Denylist) -> None:
    other = Denylist(home)
    assert not other.denies("a")
    for jti in ("a", "b", "a"):
        denylist.deny({jti: soon()}, "test")
        assert other.denies(jti)
    other.deny({"c": soon()}, "test")
    assert denylist.denies("c")
    other.close()


CHECKER = """\
import sys, time, pathlib
from stockade_authority.errors import TokenRevoked
from stockade_authority.verify import local
verifier, value = local(pathlib.Path(sys.argv[1])), sys.stdin.readline().strip()
verifier.verify(value, audience="model")
print("good", flush=True)
while True:
    try:
        verifier.verify(value, audience="model")
    except TokenRevoked:
        print(time.time(), flush=True)
        break
    time.sleep(0.0005)
"""


@pytest.mark.slow
@pytest.mark.requirement("F76")
def test_a_revoked_warrant_is_worth_nothing_in_another_process_within_milliseconds(
    home: Path, denylist: Denylist, issue: Issue
) -> None:
    took = []
    for number in range(5):
        process = subprocess.Popen(
            [sys.executable, "-c", CHECKER, str(home)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        with process:
            assert process.stdin and process.stdout
            process.stdin.write(issue(jti=f"id-{number}") + "\n")
            process.stdin.flush()
            assert process.stdout.readline() == "good\n"
            begun = time.time()
            denylist.deny({f"id-{number}": soon()}, "test")
            took.append(float(process.stdout.readline()) - begun)
    assert statistics.median(took) < 0.05, took


def test_here_it_is_known_before_the_disk_is(denylist: Denylist, verifier: Verifier, issue: Issue) -> None:
    denylist.deny_here({"id-1": soon()})
    with pytest.raises(TokenRevoked):
        verifier.verify(issue(), audience="model")


def test_what_has_expired_is_forgotten(home: Path, denylist: Denylist, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Denylist(home)
    denylist.deny({"old": time.time() - module.KEPT - 1, "new": soon()}, "test")
    rows = sqlite3.connect(home / "denylist.db").execute("SELECT jti FROM denied").fetchall()
    assert rows == [("new",)]
    assert other.denies("new")
    later = time.time() + 301 + module.KEPT
    monkeypatch.setattr(time, "time", lambda: later)
    denylist.deny({"newer": later + 300}, "test")
    assert sqlite3.connect(home / "denylist.db").execute("SELECT jti FROM denied").fetchall() == [("newer",)]
    assert other.denies("newer")
    assert other._denied.keys() == {"newer"}
    other.close()


def test_a_list_that_cannot_be_read_accepts_nothing(
    home: Path, denylist: Denylist, verifier: Verifier, issue: Issue
) -> None:
    value = issue()
    verifier.verify(value, audience="model")
    denylist.close()
    with pytest.raises(DenylistUnavailable) as error:
        verifier.verify(value, audience="model")
    assert "denylist.db" in error.value.message


def test_a_file_that_is_no_list_is_an_error_with_its_name(home: Path) -> None:
    home.mkdir()
    (home / "denylist.db").write_bytes(b"this is no database, and has been here before" * 100)
    with pytest.raises(DenylistUnavailable, match=r"denylist\.db"):
        Denylist(home)


def test_the_file_is_private(home: Path, denylist: Denylist) -> None:
    assert (home / "denylist.db").stat().st_mode & 0o7777 == 0o600
    assert home.stat().st_mode & 0o077 == 0
