"""Commands that look at the host and at what is installed."""

from __future__ import annotations

import json

import pytest

from .conftest import CommandLine


@pytest.mark.needs("namespaces")
@pytest.mark.needs("claude")
def test_the_doctor_finds_nothing_that_fails_here(stockade: CommandLine) -> None:
    done = stockade("doctor", "--json")
    findings = {finding["name"]: finding for finding in json.loads(done.stdout)}
    assert done.returncode == 0, [f for f in findings.values() if f["status"] == "fail"]
    assert findings["driver process"]["status"] == "ok"
    assert findings["engine claude"]["status"] == "ok"


def test_version_lists_what_is_installed(stockade: CommandLine) -> None:
    done = stockade("--version")
    assert done.returncode == 0
    assert done.stdout.startswith(b"stockade ")


def test_every_list_takes_json_and_is_one_array(stockade: CommandLine) -> None:
    for argv in (["plugins", "list"], ["sandboxes", "list"], ["sandboxes", "reap"], ["doctor"]):
        assert isinstance(json.loads(stockade(*argv, "--json").stdout), list)


def test_an_unknown_command_is_2(stockade: CommandLine) -> None:
    done = stockade("rum")
    assert done.returncode == 2
    assert b"Did you mean 'stockade run'?" in done.stderr
