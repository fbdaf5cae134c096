"""What the container is: by the engine's word, and seen from inside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiodocker import Docker

from stockade.errors import CreateFailed, SettingsError
from stockade.testing.driver.box import World
from stockade.testing.driver.isolation import IsolationTests
from stockade_docker import check, engine
from stockade_docker.driver import DockerDriver
from stockade_docker.errors import EngineUnreachable, ImageMissing, ImageRefused, IsolationMismatch
from tests.docker.conftest import Make, containers

pytestmark = pytest.mark.needs("docker")

SECRET = "secret-of-the-test-4711"


async def test_the_engine_says_that_it_is_hardened(make: Make, docker: Docker) -> None:
    box = await make()
    [id] = await containers(docker, box)
    found = await engine.inspect(docker, id)
    assert found is not None
    host = found["HostConfig"]
    assert (host["NetworkMode"], host["ReadonlyRootfs"], host["CapDrop"]) == ("none", True, ["ALL"])
    assert host["Memory"] == host["MemorySwap"] > 0
    assert host["PidsLimit"] > 0 and host["NanoCpus"] > 0
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert (host["IpcMode"], host["CgroupnsMode"], host["LogConfig"]["Type"]) == ("private", "private", "none")
    assert not host["Privileged"] and not host["Devices"] and not host["PortBindings"]


@pytest.mark.requirement("F34")
async def test_no_secret_is_in_the_configuration(make: Make, docker: Docker) -> None:
    box = await make(extra={"MODEL_TOKEN": SECRET}, key="somebody@example.org")
    assert await box.sh("echo $MODEL_TOKEN") == SECRET
    [id] = await containers(docker, box)
    told = json.dumps(dict(await engine.inspect(docker, id) or {}))
    assert SECRET not in told
    assert "somebody@example.org" not in told, "a key may be a person's name"
    assert box.spec.id in told


@pytest.mark.requirement("L42")
async def test_the_user_inside_has_a_name_and_is_not_root(make: Make) -> None:
    box = await make()
    assert await box.sh("whoami") == "agent"
    assert await box.sh("id -u") != "0"


@pytest.mark.requirement("L29", "F67")
async def test_both_sides_own_the_files_and_nothing_is_chowned(make: Make, world: World) -> None:
    workspace = world.root / "private"
    workspace.mkdir(mode=0o700)
    (workspace / "mine").write_text("from outside")
    (workspace / "mine").chmod(0o600)
    before = (workspace / "mine").stat()
    box = await make(workspace=workspace)
    assert await box.sh("cat mine; echo changed > mine; mkdir -m 700 sub; echo x > sub/made; umask 077; echo y > yours")
    for name in ("mine", "sub/made", "yours"):
        assert (workspace / name).stat().st_uid == os.getuid(), name
    assert (workspace / "mine").read_text() == "changed\n"
    assert (workspace / "mine").stat().st_ino == before.st_ino
    assert (workspace / "mine").stat().st_mode == before.st_mode
    (workspace / "sub/later").write_text("again")
    assert await box.sh("cat sub/later && rm sub/later && echo gone") == "againgone"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.requirement("L29", "F67")
def test_an_ordinary_user_owns_the_files_too(host: str, plain: str, tmp_path: Path) -> None:
    place = Path("/tmp") / f"stockade-{os.getpid()}-ordinary"
    place.mkdir(mode=0o700)
    os.chown(place, 1234, 1234)
    socket = Path(host.removeprefix("unix://"))
    if not socket.is_socket():
        pytest.skip("the engine has no socket file")
    mode = socket.stat().st_mode
    socket.chmod(0o666)
    try:
        done = subprocess.run(
            [sys.executable, "-c", _ORDINARY, json.dumps(sys.path), host, plain, str(place)],
            cwd="/", capture_output=True, text=True, timeout=60, env={"PATH": os.environ["PATH"], "HOME": str(place)},
        )  # fmt: skip
    finally:
        socket.chmod(mode)
        subprocess.run(["rm", "-rf", str(place)], check=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"inside": "1234", "read": "from outside", "made": [1234, "made inside\n"]}


_ORDINARY = """
import asyncio, concurrent.futures.thread, encodings.idna, json, os, sys
sys.path[:] = json.loads(sys.argv[1])
from pathlib import Path
from stockade.testing.driver.box import Box, World
from stockade_docker.driver import DockerDriver

async def main(host, image, place):
    spec = World(place).spec()
    spec.workspace.chmod(0o700)
    (spec.workspace / "mine").write_text("from outside")
    box = Box(spec, await DockerDriver({"host": host, "image": image}).create(spec))
    try:
        await box.greet(30)
        inside, read = await box.sh("id -u"), await box.sh("cat mine")
        await box.sh("umask 077; echo made inside > made")
    finally:
        await box.clean(30)
    made = spec.workspace / "made"
    print(json.dumps({"inside": inside, "read": read, "made": [made.stat().st_uid, made.read_text()]}))

# Only now: this user may not be able to read the interpreter's own folder.
os.setgroups([])
os.setgid(1234)
os.setuid(1234)
asyncio.run(main(sys.argv[2], sys.argv[3], Path(sys.argv[4])))
"""


async def test_mounts_for_root_are_gone_once_the_container_runs(make: Make) -> None:
    box = await make()
    assert box.spec.id not in Path("/proc/self/mounts").read_text()
    assert not Path("/run/stockade-docker", box.spec.id).exists()


async def test_a_directory_of_the_system_is_refused(make: Make) -> None:
    for path in ("/", "/etc", "/usr/local/src", "/tmp"):
        with pytest.raises(CreateFailed, match=r"container|wide"):
            await make(workspace=Path(path))


# -- images ---------------------------------------------------------------------------------------------


async def test_the_image_is_attested_and_recorded_by_digest(make: Make, plain: str) -> None:
    box = await make({"image": "stockade-tests:plain"})
    assert box.sandbox.isolation.image == box.sandbox.handle["image"] == plain
    assert plain.startswith("sha256:")


async def test_a_missing_image_is_an_error_with_the_two_ways(make: Make) -> None:
    with pytest.raises(ImageMissing, match="stockade image build") as caught:
        await make({"image": "stockade-tests:nowhere"})
    assert "docker pull stockade-tests:nowhere" in caught.value.hint


async def test_a_tag_is_refused_where_digests_are_required(make: Make, plain: str) -> None:
    with pytest.raises(ImageRefused, match="require_digest"):
        await make({"image": "stockade-tests:plain", "require_digest": True})
    await make({"image": plain, "require_digest": True})


async def test_an_image_without_stockade_is_an_error_that_says_so(make: Make, docker: Docker) -> None:
    with pytest.raises(CreateFailed, match="no stockade") as caught:
        await make({"image": "stockade-tests:base"})
    assert "stockade image build" in caught.value.hint


async def test_an_engine_that_does_not_answer_is_typed(make: Make, tmp_path: Path) -> None:
    with pytest.raises(EngineUnreachable) as caught:
        await make({"host": f"unix://{tmp_path}/none"})
    assert "DOCKER_HOST" in caught.value.hint


# -- weakenings, and the check --------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"seccomp": "unconfined"}, {"user": "root"}])
@pytest.mark.requirement("L37", "L81")
async def test_what_weakens_it_lowers_the_tier_and_is_logged(
    make: Make, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    box = await make(options)
    assert box.sandbox.isolation.tier == 1
    assert await box.sh("echo $STOCKADE_TIER") == "1"
    assert f"{next(iter(options))} = " in caplog.text


class TestUnconfined(IsolationTests):
    """A weakened container's attestation is as true as the other's."""

    own_variables = frozenset({"PATH"})

    @pytest.fixture
    def driver(self, driver_of: Callable[..., DockerDriver]) -> DockerDriver:
        return driver_of(seccomp="unconfined", user="root")


@pytest.mark.parametrize(
    "options",
    [
        {"memory": "1"},
        {"memory": True},
        {"cpus": 0},
        {"pids": -1},
        {"user": "me"},
        {"network": ""},
        {"images": "x"},
        {"require_digest": "yes"},
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=next(iter(options))):
        DockerDriver(options)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"uids": ["0"] * 4}, "the user"),
        ({"capabilities": {"CapEff": "0000000000000400"}}, "CapEff"),
        ({"no_new_privs": "0"}, "privileges"),
        ({"seccomp": "0"}, "seccomp"),
        ({"interfaces": ["lo", "eth0"]}, "eth0"),
        ({"mounts": [["/data", "ext4", True]]}, "/data"),
        ({"pid": 7}, "PID namespace"),
        ({"groups": ["0"]}, "groups"),
        ({"mounts": 5}, "report"),
    ],
)
async def test_a_container_that_is_not_as_asked_is_destroyed(
    make: Make, docker: Docker, world: World, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], said: str
) -> None:
    """The report is the one thing that is changed here; whoever wrote it would have to be inside."""
    real = check.mismatches

    def lie(wanted: Any, found: Any, report: Any, *rest: Any) -> list[str]:
        return real(wanted, found, {**report, **change}, *rest)

    monkeypatch.setattr(check, "mismatches", lie)
    with pytest.raises(IsolationMismatch, match=said):
        await make(id="sb-mismatch")
    assert await containers(docker, "sb-mismatch") == []


async def test_an_image_with_a_volume_is_refused(make: Make, docker: Docker) -> None:
    from tests.docker import images

    await images.ensure(docker, "stockade-tests:volume", lines=["VOLUME /data"])
    with pytest.raises(IsolationMismatch, match="/data"):
        await make({"image": "stockade-tests:volume"})
    assert not (await docker.volumes.list())["Volumes"]
