"""``stockade image build`` and ``stockade run --driver docker`` with real engines, agents and a scripted model."""

from __future__ import annotations

import asyncio
import os
import subprocess

import pytest

from stockade_docker import engine as client
from tests.docker import engine, images
from tests.docker.conftest import host  # noqa: F401 - a fixture

from .conftest import STOCKADE, CommandLine, events

pytestmark = [pytest.mark.needs("docker", "packages"), pytest.mark.slow, pytest.mark.timeout(600)]

ENGINES = ("claude", "codex")
TAG = "stockade-tests:engines"
IMAGE_LIMIT = 500.0


@pytest.fixture(scope="session")
def image(host: str) -> str:  # noqa: F811
    """An image with two engines, built by the command itself; its digest."""

    async def base() -> None:
        async with client.client(host) as docker:
            await images.ensure(docker, images.PLAIN)

    assert not engine.lack()
    asyncio.run(base())
    which = [word for name in ENGINES for word in ("--engine", name)]
    done = subprocess.run(
        [*STOCKADE, "image", "build", *which, "--base", images.BASE, "--tag", TAG],
        env={**os.environ, "STOCKADE_PLUGIN__DOCKER__HOST": host},
        capture_output=True, text=True, timeout=IMAGE_LIMIT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def contained(stockade: CommandLine, host: str, image: str) -> CommandLine:  # noqa: F811
    """The command line with the Docker driver's settings; only the digest will do."""
    stockade.env |= {
        "STOCKADE_DRIVER": "docker",
        "STOCKADE_PLUGIN__DOCKER__HOST": host,
        "STOCKADE_PLUGIN__DOCKER__IMAGE": image,
        "STOCKADE_PLUGIN__DOCKER__REQUIRE_DIGEST": "true",
    }
    (stockade.folder / "demo").mkdir(mode=0o700)
    return stockade


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.needs(*ENGINES)) for name in ENGINES])
@pytest.mark.requirement("L29", "L30", "L37", "F67")
def test_an_agent_works_in_a_container_without_network(contained: CommandLine, name: str) -> None:
    done = contained(
        "run", "--engine", name, "--rehearse", "hello", "--workspace", "./demo",
        "--file-access", "workspace-write", "--json", "Create hello.txt",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (contained.folder / "demo/hello.txt").read_text() == "Hello from a rehearsal.\n"
    seen = events(done.stdout)
    assert len([event for event in seen if event["kind"] == "tool_start"]) == 2
    assert seen[-1]["outcome"]["status"] == "completed"
    contained.assert_nothing_left()


@pytest.mark.needs(*ENGINES)
def test_a_command_runs_as_an_ordinary_user_of_the_image(contained: CommandLine) -> None:
    done = contained("exec", "--", "sh", "-c", "id -u; cat /proc/self/status")
    assert done.returncode == 0, done.stderr
    assert not done.stdout.startswith(b"0\n")
    assert b"CapEff:\t0000000000000000" in done.stdout


@pytest.mark.needs(*ENGINES)
def test_the_image_says_what_is_in_it(host: str, image: str) -> None:  # noqa: F811
    async def look() -> dict[str, str]:
        async with client.client(host) as docker:
            found = await docker.images.inspect(image)
            assert found["Config"]["User"] == "65532:65532"
            return dict(found["Config"]["Labels"])

    labels = asyncio.run(look())
    assert "stockade-claude=" in labels["stockade.versions"]
    assert labels["stockade.base"] == images.BASE


def test_a_base_that_is_not_there_is_an_error_with_a_way(stockade: CommandLine, host: str) -> None:  # noqa: F811
    stockade.env["STOCKADE_PLUGIN__DOCKER__HOST"] = host
    done = stockade("image", "build", "--base", "stockade-tests:nowhere", "--tag", "stockade-tests:never")
    assert done.returncode != 0
    assert b"docker pull stockade-tests:nowhere" in done.stderr


def test_an_engine_that_is_not_installed_is_named(stockade: CommandLine, host: str) -> None:  # noqa: F811
    stockade.env["STOCKADE_PLUGIN__DOCKER__HOST"] = host
    done = stockade("image", "build", "--engine", "clod")
    assert (done.returncode, b"clod" in done.stderr) == (2, True)
