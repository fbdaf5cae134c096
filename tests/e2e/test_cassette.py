"""A run of the real Claude Code against a vendor, recorded, and played back when the vendor has gone."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stockade.contracts.route import Origin
from stockade_gateway.rehearsal.script import load
from stockade_gateway.route import ModelRoute
from stockade_gateway.testing import serve_tcp

from .conftest import LIMIT, CommandLine, events

pytestmark = [pytest.mark.needs("claude"), pytest.mark.needs("namespaces"), pytest.mark.slow]

CANARY = "canary-vendor-key-8842"
JOB = (
    "--engine",
    "claude",
    "--driver",
    "process",
    "--workspace",
    "./demo",
    "--file-access",
    "workspace-write",
    "--json",
    "Create hello.txt",
)


@contextmanager
def vendor() -> Iterator[str]:
    """A vendor on loopback, in a thread of its own: the shipped script, for whoever has the key."""
    ready, loop, stop = threading.Event(), asyncio.new_event_loop(), asyncio.Event()
    url: list[str] = []

    async def serve() -> None:
        origin = Origin("vendor", "s", "model", key=CANARY)
        async with serve_tcp(ModelRoute({}, load("hello")), origin) as address:
            url.append(address)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert ready.wait(LIMIT)
    try:
        yield url[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(LIMIT)
        loop.close()


def story(out: bytes) -> list[Any]:
    """What a run was, without its ids and times."""
    told = []
    for event in events(out):
        kind = event["kind"]
        if kind == "tool_start":
            told.append([kind, event["name"], event["id"]])
        elif kind == "ended":
            outcome = event["outcome"]
            told.append([kind, outcome["status"], outcome["code"], outcome["usage"]])
        elif kind in ("text", "tool_end"):
            told.append([kind])
    return told


@pytest.mark.requirement("S16")
def test_a_recorded_run_plays_back_the_same_without_its_vendor(stockade: CommandLine) -> None:
    cassette = stockade.folder / "run.cassette"
    written = stockade.folder / "demo/hello.txt"
    with vendor() as url:
        env = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": CANARY}
        recorded = stockade("run", "--record", str(cassette), *JOB, env=env)
        assert recorded.returncode == 0, recorded.stderr
    content = written.read_text()
    text = cassette.read_text()
    assert CANARY not in text
    assert not re.search(r"stockade-[\w-]{32}", text), "the placeholder of a session"
    assert {json.loads(line)["session"] for line in text.splitlines()[1:]} == {1}
    for _ in range(2):
        written.unlink()
        played = stockade("run", "--replay", str(cassette), *JOB)  # no key, and nobody to call
        assert played.returncode == 0, played.stderr
        assert written.read_text() == content
        assert story(played.stdout) == story(recorded.stdout)
        assert b"cassette" not in played.stderr  # nothing left over
    stockade.assert_nothing_left()


def test_a_run_that_departs_from_its_cassette_fails_and_says_where(stockade: CommandLine) -> None:
    cassette = stockade.folder / "run.cassette"
    with vendor() as url:
        env = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": CANARY}
        assert stockade("run", "--record", str(cassette), *JOB, env=env).returncode == 0
    played = stockade("run", "--replay", str(cassette), *JOB[:-1], "Delete everything")
    assert played.returncode == 1
    said = (played.stdout + played.stderr).decode()
    assert "departs from the cassette run.cassette at call 1 of session 1" in said
    assert "Delete everything" in said


def test_what_cannot_be_recorded_or_played_is_refused_before_anything_starts(stockade: CommandLine) -> None:
    precious = Path(stockade.folder / "precious.txt")
    precious.write_text("mine")
    env = {"ANTHROPIC_API_KEY": CANARY, "ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}
    for argv in (("--record", str(precious)), ("--replay", str(precious)), ("--replay", "none")):
        done = stockade("run", "--engine", "claude", "--driver", "process", *argv, "Hello", env=env)
        assert done.returncode in (1, 2), done.stderr
        assert b"cassette" in done.stderr
    both = stockade(
        "run", "--record", "a", "--rehearse", "hello", "--engine", "claude", "--driver", "process", "Hello", env=env
    )
    assert b"exclude each other" in both.stderr
    assert precious.read_text() == "mine"
    assert [path.name for path in stockade.folder.glob(".*")] == []
    stockade.assert_nothing_left()
