"""Every verdict is a line of evidence, allow and deny alike; and no line holds content or secrets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stockade import Kernel
from stockade.contracts.lifecycle import Record
from stockade.model.events import Text, ToolStart
from stockade.model.turn import Outcome
from stockade.runtime.evidence import KEPT, EvidenceLog
from stockade.settings import Settings
from stockade.testing.fakes import FakeTurn
from stockade_authority.policies.evidence import line

from .conftest import Opened, memory

CANARY = "canary-5b1d-must-not-be-seen"


def lines(home: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in (home / "evidence" / "evidence.jsonl").read_text().splitlines()]


async def blab(turn: FakeTurn) -> Outcome:
    await turn.emit(Text(CANARY))
    await turn.emit(ToolStart("1", "bash", {"command": CANARY}))
    return Outcome("failed", "engine_failed", CANARY)


async def test_every_verdict_is_a_line_allow_and_deny_alike(only_authority: Path, open_kernel: Opened) -> None:
    async with open_kernel(quota={"sandboxes_per_user": 1}) as kernel:
        for key in ("a", "b"):
            await (await kernel.turn("hi", sandbox=key, user="ann")).outcome()
    found = lines(only_authority)
    assert [(f["kind"], f.get("step")) for f in found if f["kind"] in ("admitted", "denied")] == [
        ("admitted", "turn"),
        ("admitted", "review"),
        ("admitted", "turn"),
        ("denied", "review"),
    ]
    denied = next(f for f in found if f["kind"] == "denied")
    assert (denied["user"], denied["key"], denied["engine"], denied["process"]) == ("ann", "b", "null", os.getpid())
    [decision] = denied["decisions"]
    assert decision["reason"] == "user 'ann' has 1 of 1 sandboxes"
    assert decision["setting"] == "plugin.authority.quota.sandboxes_per_user"
    assert [f["kind"] for f in found].count("sandbox_created") == 1
    assert [f["seq"] for f in found] == sorted(f["seq"] for f in found)


async def test_no_line_holds_what_an_agent_said_or_was_told(
    only_authority: Path, open_kernel: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    async with open_kernel(blab) as kernel:
        await (await kernel.turn(CANARY, sandbox="k", env_pass=["OPENAI_API_KEY"])).outcome()
        await memory(kernel).sandboxes[0].crash("lost", f"its last words: {CANARY}")
        await (await kernel.turn("hi", sandbox="k")).outcome()
    text = (only_authority / "evidence" / "evidence.jsonl").read_text()
    assert CANARY not in text
    assert "OPENAI_API_KEY" in text  # the name is evidence, the value never
    assert next(f["reason"] for f in lines(only_authority) if f["kind"] == "sandbox_ended") == "lost"


def test_the_text_of_a_foreign_exception_is_left_out() -> None:
    decision = {
        "policy": "corp", "plugin": "corp", "allowed": False, "code": "error", "setting": "", "seconds": 0.1,
        "reason": f"failed with ValueError: bad password {CANARY}",
    }  # fmt: skip
    found = line(Record(1, 2.0, "denied", data={"step": "review", "decisions": [decision], "reason": CANARY}))
    assert found["decisions"][0]["reason"] == "failed with ValueError"
    assert CANARY not in json.dumps(found)


async def test_installed_alone_it_denies_nothing_and_keeps_evidence(only_authority: Path) -> None:
    async with Kernel.open(Settings.load(driver="memory", engine="null")) as kernel:
        assert (await (await kernel.turn("hi", file_access="full", sandbox="k")).outcome()).status == "completed"
        assert kernel._boot.policies == ()
    assert [f["decisions"] for f in lines(only_authority) if f["kind"] == "admitted"] == [[]]
    folder = only_authority / "evidence"
    assert (folder.stat().st_mode & 0o777, (folder / "evidence.jsonl").stat().st_mode & 0o777) == (0o700, 0o600)


def test_lines_of_several_processes_stay_whole_also_over_a_rotation(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from stockade.runtime.evidence import EvidenceLog\n"
        "log = EvidenceLog(Path(sys.argv[1]), max_file=64 * 1024)\n"
        "for n in range(200): log.append({'who': sys.argv[2], 'n': n, 'text': 'x' * (n * 7 % 900)})\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path), str(who)]) for who in range(3)]
    assert [writer.wait(50) for writer in writers] == [0, 0, 0]
    files = sorted((tmp_path / "evidence").glob("evidence*.jsonl"))
    assert len(files) > 2
    assert all(file.stat().st_size <= 64 * 1024 for file in files)
    found = [json.loads(text) for file in files for text in file.read_text().splitlines()]
    assert sorted((f["who"], f["n"]) for f in found) == sorted((str(who), n) for who in range(3) for n in range(200))


def test_the_log_has_an_upper_bound(tmp_path: Path) -> None:
    log = EvidenceLog(tmp_path, max_file=100)
    for n in range(30):
        log.append({"n": n, "text": "x" * 60})
    files = list((tmp_path / "evidence").glob("evidence*.jsonl"))
    assert len(files) == KEPT + 1
    assert json.loads(log.path.read_text())["n"] == 29
    assert json.loads((log.folder / "evidence.1.jsonl").read_text())["n"] == 28


def test_a_long_text_is_cut_and_the_line_stays_json(tmp_path: Path) -> None:
    log = EvidenceLog(tmp_path)
    log.append({"a": ["y" * 100_000, {"b": "z" * 100_000}], "c": "a\nb\ud800"})
    [text] = log.path.read_text().splitlines()
    assert len(text) < 10_000
    assert json.loads(text)["c"] == "a\nb\ud800"


def test_a_link_in_the_place_of_the_log_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "evidence").mkdir()
    target = tmp_path / "precious"
    target.write_text("keep")
    (tmp_path / "evidence" / "evidence.jsonl").symlink_to(target)
    with pytest.raises(OSError, match="symbolic link"):
        EvidenceLog(tmp_path).append({"a": 1})
    assert target.read_text() == "keep"


def test_a_line_that_does_not_fit_the_disk_leaves_no_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = EvidenceLog(tmp_path)
    log.append({"n": 1})
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:5]))
    with pytest.raises(OSError, match="only 5 of"):
        log.append({"n": 2})
    monkeypatch.undo()
    log.append({"n": 3})
    assert [f["n"] for f in lines(tmp_path)] == [1, 3]
