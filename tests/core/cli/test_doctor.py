from __future__ import annotations

import argparse
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer

import pytest

from stockade.cli import checks, doctor
from stockade.model.finding import Finding

Parse = Callable[..., argparse.Namespace]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STOCKADE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    return tmp_path / "home"


def by_name(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.name: finding for finding in findings}


def test_json_is_an_array_of_findings(home: Path, parse: Parse, capsys: pytest.CaptureFixture[str]) -> None:
    doctor.run(parse(doctor, "--json"))
    findings = json.loads(capsys.readouterr().out)
    assert {"python", "settings", "state", "disk", "docker", "model keys"} <= {f["name"] for f in findings}
    assert all(f["fix"] for f in findings if f["status"] != "ok")


def test_the_table_says_how_to_fix(home: Path, parse: Parse, capsys: pytest.CaptureFixture[str]) -> None:
    doctor.run(parse(doctor))
    out = capsys.readouterr().out
    assert "ok    python" in out
    assert "fix: Only a Docker driver needs it" in out


def test_nothing_is_created(home: Path) -> None:
    found = by_name(checks.examine())
    assert "will be created" in found["state"].detail
    assert not home.exists()


def test_a_state_directory_that_others_can_open_is_a_warning(home: Path) -> None:
    home.mkdir()
    home.chmod(0o755)
    found = by_name(checks.examine())["state"]
    assert found.status == "warn"
    assert found.fix == f"chmod 700 {home}"


def test_a_state_directory_that_is_a_file_fails(home: Path, parse: Parse, capsys: pytest.CaptureFixture[str]) -> None:
    home.touch()
    assert doctor.run(parse(doctor)) == 1
    assert "fail  state" in capsys.readouterr().out


def test_wrong_settings_fail(home: Path, parse: Parse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOCKADE_TTL", "soon")
    assert by_name(checks.examine())["settings"].status == "fail"
    assert doctor.run(parse(doctor, "--json")) == 1


def test_a_key_is_named_and_never_shown(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-canary")
    found = checks.examine()
    assert "ANTHROPIC_API_KEY" in by_name(found)["model keys"].detail
    assert "sk-canary" not in repr(found)


class Daemon(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/_ping" else 404)
        self.send_header("Api-Version", "1.47")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        return None

    def address_string(self) -> str:
        return "unix"


@pytest.fixture
def daemon(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    path = home.parent / "docker.sock"
    with ThreadingUnixStreamServer(str(path), Daemon) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
        yield
        server.shutdown()


def test_a_docker_daemon_that_answers_is_told_with_its_version(daemon: None) -> None:
    found = by_name(checks.examine())["docker"]
    assert (found.status, found.detail.rpartition(", ")[2]) == ("ok", "API 1.47")


@pytest.mark.parametrize("host", ["tcp://127.0.0.1:1", "ssh://somewhere", "unix:///nowhere.sock", "tcp://"])
def test_a_docker_daemon_that_cannot_be_reached_is_a_warning(
    home: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setenv("DOCKER_HOST", host)
    assert by_name(checks.examine())["docker"].status == "warn"
