"""What all tests share: markers, hosts' abilities, short paths, and guards against what tests leave behind."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings as hypothesis_settings

from tests.support import behaviours, guards, host, requirements

hypothesis_settings.register_profile("stockade", deadline=None, database=None)
hypothesis_settings.load_profile("stockade")

REQUIRED = frozenset(filter(None, os.environ.pop("STOCKADE_REQUIRE", "").split(",")))
FOREIGN = ("STOCKADE_", "ANTHROPIC_", "OPENAI_", "CODEX_", "CLAUDE", "CURSOR_")
SESSION_DIR = pytest.StashKey[Path]()

# ./dev leaves this driver out, and ``tox -e docker`` has it.
collect_ignore = [] if importlib.util.find_spec("stockade_docker") else ["docker", "e2e/test_docker.py"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--requirements", action="store_true", help="list the requirements with the tests that show them, and exit"
    )
    parser.addoption("--engines", action="store_true", help="print the table of what each engine does, and exit")


def pytest_configure(config: pytest.Config) -> None:
    # What the person who runs the tests has set must not reach a kernel under test.
    for name in [n for n in os.environ if n.startswith(FOREIGN)]:
        del os.environ[name]
    config.stash[SESSION_DIR] = directory = Path(tempfile.mkdtemp(prefix="sk"))
    os.environ["STOCKADE_HOME"] = str(directory / "home")
    guards.watch_event_loop()


def pytest_unconfigure(config: pytest.Config) -> None:
    shutil.rmtree(config.stash[SESSION_DIR], ignore_errors=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    requirements.check(items)
    behaviours.check(items)


def pytest_collection_finish(session: pytest.Session) -> None:
    if session.config.getoption("--requirements"):
        print(requirements.report(session.items))
        pytest.exit("", returncode=0)
    if session.config.getoption("--engines"):
        print(f"\n{behaviours.BEGIN}\n{behaviours.table(session.items)}\n{behaviours.END}")
        pytest.exit("", returncode=0)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for name in dict.fromkeys(n for marker in item.iter_markers("needs") for n in marker.args):
        lack = host.lack(name)
        if lack and name in REQUIRED:
            pytest.fail(f"STOCKADE_REQUIRE names {name!r}, but {lack}", pytrace=False)
        if lack:
            pytest.skip(f"needs {name}: {lack}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    guards.blocked.clear()
    yield
    if guards.blocked and item.get_closest_marker("blocks_loop") is None:
        pytest.fail("the event loop was blocked:\n  " + "\n  ".join(guards.blocked), pytrace=False)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """No process of a sandbox outlives the tests."""
    ours = [str(session.config.stash[SESSION_DIR])]
    with contextlib.suppress(AttributeError):
        ours.append(str(session.config._tmp_path_factory.getbasetemp()))  # type: ignore[attr-defined]
    left = guards.leftovers(ours)
    if left:
        print("\nprocesses left behind by the tests (killed now):\n  " + "\n  ".join(left), file=sys.stderr)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


_numbers = itertools.count()


@pytest.fixture
def short_tmp(request: pytest.FixtureRequest) -> Iterator[Path]:
    """An empty folder with a path short enough for a Unix socket (107 bytes); gone after the test."""
    path = request.config.stash[SESSION_DIR] / str(next(_numbers))
    path.mkdir()
    yield path
    shutil.rmtree(path, ignore_errors=True)
