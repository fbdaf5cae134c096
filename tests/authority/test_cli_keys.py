"""``stockade keys``, as a person types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stockade.cli.app import main
from stockade_authority.keys import Keyring


@pytest.fixture(autouse=True)
def home_of_the_command(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOCKADE_HOME", str(home))
    monkeypatch.setenv("STOCKADE_PLUGINS", "authority")


def keys(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["keys", *words]) == 0
    return capsys.readouterr().out


def test_a_rotation_from_beginning_to_end(capsys: pytest.CaptureFixture[str]) -> None:
    assert "no keys" in keys(capsys, "list")
    first = keys(capsys, "generate").split()
    assert first[1] == "signing"
    assert keys(capsys, "generate", "--kid", "next").split() == ["next", "verifying"]
    assert keys(capsys, "rotate", "next").split() == ["next", "signing"]
    listed = [line.split() for line in keys(capsys, "list").splitlines()]
    assert sorted((line[0], line[-1]) for line in listed) == sorted([(first[0], "verifying"), ("next", "signing")])
    assert keys(capsys, "retire", first[0]).split() == [first[0], "deleted"]
    assert [(k["kid"], k["signing"], k["private"]) for k in json.loads(keys(capsys, "list", "--json"))] == [
        ("next", True, True)
    ]


def test_the_public_keys_are_shown_and_published(
    capsys: pytest.CaptureFixture[str], home: Path, tmp_path: Path
) -> None:
    kid = keys(capsys, "generate").split()[0]
    shown = json.loads(keys(capsys, "jwks"))
    assert [key["kid"] for key in shown["keys"]] == [kid]
    out = tmp_path / "jwks.json"
    out.write_text("the one before")
    assert str(out) in keys(capsys, "jwks", "--out", str(out))
    assert json.loads(out.read_text()) == shown
    assert [path.name for path in tmp_path.iterdir() if "jwks" in path.name] == ["jwks.json"]


def test_no_private_key_is_ever_shown(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    out = keys(capsys, "generate") + keys(capsys, "rotate") + keys(capsys, "list", "--json") + keys(capsys, "jwks")
    ring = Keyring(home / "keys")
    private = [ring.get(file.kid).as_dict(private=True)["d"] for file in ring.files()]
    pems = [path.read_text().splitlines()[1] for path in (home / "keys").glob("*.pem")]
    assert len(pems) == len(private) == 2
    assert not [secret for secret in (*private, *pems) if str(secret) in out]


@pytest.mark.requirement("L58")
@pytest.mark.parametrize("words", [["generate", "--kid", "../x"], ["retire", "../x"], ["rotate", "a/b"]])
def test_a_name_that_is_a_path_is_refused(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert main(["keys", *words]) == 2
    assert capsys.readouterr().err.startswith("stockade: usage: ")


def test_a_folder_that_others_can_open_is_refused_with_the_remedy(
    capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    keys(capsys, "generate")
    (home / "keys").chmod(0o755)
    assert main(["keys", "list"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("stockade: keys_unsafe: ")
    assert f"chmod 700 {home / 'keys'}" in said
