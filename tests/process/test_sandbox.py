"""Sandboxes of the process driver: what is in them, and that nothing of them is left."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from stockade.errors import SandboxLost, StockadeError
from stockade.model.spec import SandboxSpec
from stockade_process import reap
from stockade_process.driver import ProcessDriver
from tests.core.inside.client import Client, first, until
from tests.process.conftest import Make, Running

TREE = """
trap '' TERM
sleep 9001 &
(setsid sh -c 'trap "" TERM; (sleep 9002 &) ; exec env -i sleep 9003' &)
(setsid sh -c '(setsid sleep 9004 &)' &)
echo up
sleep 9005
"""


def sleepers() -> list[str]:
    """The sleeps of `TREE` on this host, in whatever namespace."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[0] == b"sleep" and words[1] in (b"9001", b"9002", b"9003", b"9004", b"9005"):
                found.append(entry.name)
    return found


async def plant(running: Running) -> None:
    """Start a tree that resists: ignores SIGTERM, forks twice, leaves its session, drops its environment."""
    stream = await running.client.open_exec("sh", "-c", TREE)
    assert await first(stream) == b"up\n"
    await until(lambda: len(sleepers()) == 5, "the tree is complete")


@pytest.mark.requirement("L74", "F3", "F5", "F6", "F7", "F11")
async def test_a_tree_that_resists_is_gone_after_destroy(running: Running) -> None:
    await plant(running)
    async with asyncio.timeout(5):
        ending = await running.sandbox.destroy(3)
    assert ending.reason == "destroyed"
    assert sleepers() == []
    assert reap.find(running.spec.id) == {}


@pytest.mark.requirement("L74", "F7")
async def test_a_sandbox_whose_program_hangs_is_killed_after_the_grace(running: Running) -> None:
    await plant(running)
    for process in reap.find(running.spec.id).values():
        os.kill(process.pid, signal.SIGSTOP)
    async with asyncio.timeout(8):
        assert (await running.sandbox.destroy(0.2)).reason == "destroyed"
    assert sleepers() == []
    assert reap.find(running.spec.id) == {}


async def test_destroy_may_be_called_again_and_at_the_same_time(running: Running) -> None:
    endings = await asyncio.gather(*(running.sandbox.destroy(1) for _ in range(3)))
    assert [*endings, await running.sandbox.destroy(1)] == [endings[0]] * 4
    assert await running.sandbox.wait() == endings[0]


async def test_destroy_works_before_the_inside_program_is_up(mode: str, spec: Callable[..., SandboxSpec]) -> None:
    for _ in range(5):
        sandbox = await ProcessDriver({"namespaces": mode}).create(spec())
        assert (await sandbox.destroy(1)).reason == "destroyed"
        assert reap.find(sandbox.id) == {}


async def test_its_own_end_is_told_with_the_code_and_the_log(running: Running) -> None:
    with pytest.raises(SandboxLost):
        await running.client.text("sh", "-c", "echo last words >> /proc/$PPID/fd/2; kill -9 $PPID")
    ending = await running.sandbox.wait()
    assert ending.reason == "exited"
    assert "exit code 137" in ending.evidence
    assert "last words" in ending.evidence


@pytest.mark.requirement("F8")
async def test_a_child_that_dies_at_start_is_told_at_once(mode: str, spec: Callable[..., SandboxSpec]) -> None:
    one = spec()
    one.workspace.rmdir()
    sandbox = await ProcessDriver({"namespaces": mode}).create(one)
    client = Client(sandbox.channel, one.id)
    async with asyncio.timeout(10):
        with pytest.raises(StockadeError):
            await client.start()
        ending = await sandbox.wait()
    assert "exit code 3" in ending.evidence
    assert str(one.workspace) in ending.evidence
    await sandbox.destroy(1)
    await client.mux.aclose()


@pytest.mark.requirement("L14", "F69", "F74")
async def test_the_deadline_is_an_ending_with_its_reason(make: Make) -> None:
    running = await make(deadline=time.time() + 2.5)
    await plant(running)
    ending = await running.sandbox.wait()
    assert ending.reason == "ttl"
    assert sleepers() == []


@pytest.mark.requirement("F17", "F74")
async def test_a_kernel_that_stops_pinging_is_an_ending_with_its_reason(make: Make) -> None:
    running = await make(lease=1.0)
    await plant(running)
    ending = await running.sandbox.wait()
    assert (ending.reason, "pings stopped" in ending.evidence) == ("lost", True)
    assert sleepers() == []


@pytest.mark.requirement("L4", "L82")
async def test_a_closed_channel_ends_everything(running: Running) -> None:
    await plant(running)
    await running.sandbox.channel.aclose()
    assert (await running.sandbox.wait()).reason == "lost"
    assert sleepers() == []


@pytest.mark.requirement("L20", "L38", "F33")
async def test_the_environment_is_what_the_spec_says_and_nothing_of_the_host(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY_VARIABLE", "canary-of-the-host")
    running = await make(environment={"PATH": os.environ["PATH"], "GIVEN": "yes", "STOCKADE_TIER": "2"})
    lines = (await running.client.text("env", "-0")).split("\0")
    environment = dict(line.split("=", 1) for line in lines if line)
    expected = {"PATH", "GIVEN", "HOME", "TMPDIR", "PWD", "STOCKADE_SANDBOX", "STOCKADE_TIER", "STOCKADE_SCOPE"}
    assert {name for name in environment if not name.startswith(("XDG_", "LC_"))} == expected
    assert environment["STOCKADE_TIER"] == "0"
    for process in reap.find(running.spec.id).values():
        for name in ("environ", "cmdline"):
            assert b"canary-of-the-host" not in Path(f"/proc/{process.pid}/{name}").read_bytes()
    assert "canary" not in running.log


@pytest.mark.requirement("F34")
async def test_no_value_of_the_environment_is_on_a_command_line(make: Make) -> None:
    running = await make(environment={"PATH": os.environ["PATH"], "MODEL_KEY": "canary-key"})
    for process in reap.find(running.spec.id).values():
        assert b"canary-key" not in Path(f"/proc/{process.pid}/cmdline").read_bytes()


async def test_descriptors_of_the_host_stay_outside(running: Running) -> None:
    with open("/etc/passwd") as secret:
        os.set_inheritable(secret.fileno(), True)
        links = await running.client.text("sh", "-c", "readlink /proc/self/fd/* /proc/$PPID/fd/*; true")
    assert "/etc/passwd" not in links


@pytest.mark.requirement("L40", "L41", "L81")
async def test_the_attestation_says_what_is(running: Running, mode: str) -> None:
    isolation = running.sandbox.isolation
    assert isolation.tier == 0
    assert isolation.processes == {"require": "pid-namespace", "off": "subreaper"}[mode]
    assert (isolation.filesystem, isolation.network) == ("host", "host")
    pids = await running.client.text("sh", "-c", "echo $PPID")
    assert (int(pids) < 10) == (mode == "require")


@pytest.mark.requirement("L42")
async def test_the_user_is_the_same_inside(running: Running) -> None:
    assert (await running.client.text("id", "-u")).strip() == str(os.getuid())
    assert (await running.client.exec("whoami")).result["exit_code"] == 0


@pytest.mark.needs("namespaces")
@pytest.mark.requirement("L41", "F42")
async def test_a_namespace_can_be_made_inside_where_that_is_attested(running: Running) -> None:
    assert running.sandbox.isolation.nested
    command = ["unshare", "--user", "--map-current-user", "--pid", "--fork", "--mount-proc", "sh", "-c", "echo $$"]
    assert await running.client.text(*command) == "1\n"


@pytest.mark.requirement("L44", "L81")
async def test_a_provider_key_is_attested_and_logged(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    running = await make(provider_keys=("CURSOR_API_KEY",))
    assert running.sandbox.isolation.provider_key == ("CURSOR_API_KEY",)
    assert "CURSOR_API_KEY" in caplog.text


@pytest.mark.requirement("L89")
async def test_a_thousand_short_forks_leave_no_zombie(running: Running) -> None:
    await running.client.exec("sh", "-c", "for i in $(seq 1000); do (true &) ; done")

    def zombies() -> int:
        mine = {process.pid for process in reap.find(running.spec.id).values()}
        count = 0
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
                except OSError:
                    continue
                count += fields[0] == b"Z" and int(fields[1]) in mine
        return count

    await until(lambda: zombies() == 0, "all orphans are reaped")


@pytest.mark.requirement("L77")
async def test_the_log_has_what_the_sandbox_prints_and_is_private(running: Running) -> None:
    await running.client.text("sh", "-c", "echo to the log > /proc/$PPID/fd/1")
    assert "to the log" in running.log
    assert (running.spec.run_dir / "log").stat().st_mode & 0o077 == 0
    assert running.spec.run_dir.stat().st_mode & 0o077 == 0


@pytest.mark.requirement("L39")
async def test_there_is_nothing_to_revoke_beside_the_channel(running: Running) -> None:
    await running.sandbox.revoke("model")


async def test_the_handle_is_json_that_names_the_process(running: Running) -> None:
    handle = json.loads(json.dumps(running.sandbox.handle))
    assert handle["pid"] in reap.find(running.spec.id)
    assert handle["start"] == reap.find(running.spec.id)[handle["pid"]].start


async def test_sandboxes_at_the_same_time_do_not_hold_each_other(make: Make) -> None:
    one, other = await asyncio.gather(make(), make())
    await one.sandbox.channel.aclose()
    assert (await one.sandbox.wait()).reason == "lost", "the other sandbox does not hold the channel open"
    assert await other.client.text("echo", "alive") == "alive\n"
    await one.sandbox.destroy(1)
    assert await other.client.text("echo", "alive") == "alive\n"
