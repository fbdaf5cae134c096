"""``stockade lease``: a small lease server that a fleet can run on, from the command line."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stockade.cli.app import main
from stockade_authority.policies.lease import document

from .conftest import Fleet

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(only_authority: Path, capsys: Any) -> Run:
    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["lease", *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def fleet(only_authority: Path) -> Fleet:
    """The server whose state root the commands have."""
    return Fleet(only_authority)


def opened(fleet: Fleet, text: str, name: str = "fleet") -> document.Lease:
    return document.unseal(text, name, fleet.keyring, time.time())


def test_issue_shows_a_lease_that_verifies(run: Run, fleet: Fleet) -> None:
    code, text, _ = run("issue", "fleet", "--valid", "90s", "--stop", "now", "--max-ttl", "1h")
    lease = opened(fleet, text)
    assert code == 0
    assert (lease.expires - lease.issued, lease.stop, lease.max_ttl, lease.status) == (90, "now", 3600, "active")
    assert abs(lease.issued - time.time()) < 30


def test_until_bounds_every_lease(run: Run, fleet: Fleet) -> None:
    lease = opened(fleet, run("issue", "fleet", "--valid", "2h", "--until", "60s")[1])
    assert lease.expires - lease.issued <= 60


def test_out_writes_a_file_for_its_owner_only(run: Run, fleet: Fleet, tmp_path: Path) -> None:
    out = tmp_path / "lease.jwt"
    assert run("issue", "fleet", "--out", str(out))[0] == 0
    assert out.stat().st_mode & 0o777 == 0o600
    assert opened(fleet, out.read_text()).status == "active"
    assert run("revoke", "fleet", "--now", "--out", str(out))[0] == 0
    lease = opened(fleet, out.read_text())
    assert (lease.status, lease.stop) == ("revoked", "now")


@pytest.mark.requirement("L58")
@pytest.mark.parametrize("name", ["../fleet", "A", "", "a/b", "a\n", ".x", "x" * 65])
def test_a_name_that_cannot_be_a_file_is_refused(run: Run, only_authority: Path, name: str) -> None:
    code, out, err = run("issue", name)
    assert (code, out) == (2, "")
    assert "a lease cannot be called" in err
    assert not (only_authority / "leases").exists()


def test_what_was_never_issued_cannot_be_revoked(run: Run) -> None:
    code, _, err = run("revoke", "fleet")
    assert (code, "lease_missing" in err, "stockade lease issue fleet" in err) == (1, True, True)


def test_a_server_for_others_needs_a_token(run: Run) -> None:
    code, _, err = run("serve", "--host", "0.0.0.0")
    assert (code, "--token-file" in err) == (2, True)


def test_show_without_anything_says_so(run: Run) -> None:
    assert run("show")[:2] == (
        0,
        "no lease is needed here (setting plugin.authority.lease), and none was granted here\n",
    )


@pytest.mark.slow
def test_a_fleet_from_issue_to_revocation(
    run: Run, fleet: Fleet, only_authority: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    token.write_text("canary-lease-command-token\n")
    run("issue", "fleet", "--valid", "60s")
    command = [sys.executable, "-m", "stockade", "lease", "serve", "--port", "0", "--token-file", str(token)]
    path = os.pathsep.join(filter(None, [str(tmp_path / "site"), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert server.stdout is not None
        match = re.fullmatch(r"serving (http://127\.0\.0\.1:\d+/leases/)NAME\n", server.stdout.readline())
        assert match
        lease = {"name": "fleet", "keys": str(fleet.jwks), "url": f"{match[1]}fleet", "token_file": str(token)}
        monkeypatch.setenv("STOCKADE_PLUGIN__AUTHORITY__LEASE", json.dumps(lease))
        monkeypatch.setenv("STOCKADE_HOME", str(tmp_path / "client"))
        code, out, _ = run("show", "--json")
        assert (code, json.loads(out)["lease"]["state"]) == (0, "valid")
        assert main(["admit"]) == 0
        monkeypatch.setenv("STOCKADE_HOME", str(only_authority))
        run("revoke", "fleet")
        monkeypatch.setenv("STOCKADE_HOME", str(tmp_path / "client"))
        code, out, _ = run("show")
        assert (code, "state=lease_revoked" in out) == (1, True)
        assert main(["admit"]) == 1
    finally:
        server.send_signal(signal.SIGTERM)
        out, err = server.communicate(timeout=30)
    assert server.returncode == 128 + signal.SIGTERM
    assert "canary" not in out + err
