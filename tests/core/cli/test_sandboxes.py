from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stockade.cli import sandboxes
from stockade.errors import SandboxNotFound
from stockade.runtime.owner import Owner
from stockade.runtime.registry import Registry, Row

Parse = Callable[..., argparse.Namespace]


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    monkeypatch.setenv("STOCKADE_HOME", str(tmp_path / "home"))
    registry = Registry(tmp_path / "home")
    yield registry
    registry.close()


def row(key: str, owner: str, **changes: Any) -> Row:
    now = time.time()
    values = {
        "id": f"id-{key}",
        "key": key,
        "driver": "process",
        "owner": owner,
        "state": "live",
        "created": now - 5,
        "deadline": now + 60,
        "ephemeral": False,
        "engine": "claude",
        "tier": 0,
    }
    return Row(**{**values, **changes})


def test_an_empty_registry_is_said_and_is_an_empty_array(
    registry: Registry, parse: Parse, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sandboxes.run(parse(sandboxes, "list")) == 0
    assert capsys.readouterr().out == "no sandboxes\n"
    assert sandboxes.run(parse(sandboxes, "list", "--json")) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_list_shows_sandboxes_of_other_processes_and_orphans(
    registry: Registry, parse: Parse, capsys: pytest.CaptureFixture[str]
) -> None:
    owner = Owner(registry.home.owners)
    registry.intend(row("mine", owner.id))
    registry.intend(row("left", "dead", created=time.time()))
    sandboxes.run(parse(sandboxes, "list", "--json"))
    first, second = json.loads(capsys.readouterr().out)
    assert (first["key"], first["state"], first["owner"], first["tier"]) == ("mine", "live", os.getpid(), 0)
    assert 59 < first["left"] < 60
    assert (second["key"], second["state"], second["owner"]) == ("left", "orphan", None)
    sandboxes.run(parse(sandboxes, "list"))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:3] == ["KEY", "ID", "DRIVER"]
    assert lines[1].split()[0] == "mine"
    owner.release()


def test_a_key_cannot_move_the_cursor(registry: Registry, parse: Parse, capsys: pytest.CaptureFixture[str]) -> None:
    registry.intend(row("\x1b[2J", "dead"))
    sandboxes.run(parse(sandboxes, "list"))
    assert "\x1b" not in capsys.readouterr().out


def test_destroy_asks_the_kernel(kernel: Any, parse: Parse, capsys: pytest.CaptureFixture[str]) -> None:
    assert sandboxes.run(parse(sandboxes, "destroy", "k"), kernel.open) == 0
    assert kernel.asked == {"destroy": "k"}
    assert capsys.readouterr().out == "destroyed k\n"


def test_destroying_what_is_not_there_is_typed(kernel: Any, parse: Parse) -> None:
    kernel.failure = SandboxNotFound("no sandbox 'k'")
    with pytest.raises(SandboxNotFound):
        sandboxes.run(parse(sandboxes, "destroy", "k"), kernel.open)


def test_revoke_says_how_many_connections_were_cut(
    kernel: Any, parse: Parse, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sandboxes.run(parse(sandboxes, "revoke", "k", "model"), kernel.open) == 0
    assert kernel.asked == {"revoke": ("k", "model")}
    assert capsys.readouterr().out == "revoked model of k: 3 live connection(s) cut\n"
    assert sandboxes.run(parse(sandboxes, "revoke", "k", "all", "--json"), kernel.open) == 0
    assert json.loads(capsys.readouterr().out) == [{"key": "k", "route": "all", "cut": 3}]
