"""Commands: output, endings, trees."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest

from stockade.errors import StockadeError
from stockade.inside.execs import IDLE_DRAIN
from tests.core.inside.client import Client, collect, first, running, until
from tests.core.inside.conftest import Inside

CLEAN = {"exit_code": 0, "signal": None, "timed_out": False, "truncated": False}


async def test_stdout_stderr_and_the_exit_code_come_apart(client: Client) -> None:
    done = await client.exec("sh", "-c", "printf out; printf err >&2; exit 7")
    assert (done.stdout, done.stderr) == (b"out", b"err")
    assert done.result == {**CLEAN, "exit_code": 7}


async def test_a_command_that_is_over_is_not_waited_for(client: Client) -> None:
    taken = []
    while len(taken) < 20 and (not taken or min(taken) >= IDLE_DRAIN):
        started = time.monotonic()
        await client.exec("true")
        taken.append(time.monotonic() - started)
    assert min(taken) < IDLE_DRAIN, "only who holds a pipe open is waited for"


@pytest.mark.requirement("L25")
async def test_a_command_runs_in_the_workspace_or_below_it(inside: Inside) -> None:
    assert (await inside.client.text("pwd")).strip() == str(inside.workspace)
    (inside.workspace / "sub").mkdir()
    assert (await inside.client.text("pwd", cwd="sub")).strip() == str(inside.workspace / "sub")


@pytest.mark.requirement("L24")
async def test_a_working_directory_that_is_not_there_is_never_made(inside: Inside, tmp_path: Path) -> None:
    hosts = tmp_path / "path-of-the-host"
    done = await inside.client.exec("pwd", cwd=str(hosts))
    assert done.result["exit_code"] == 127
    assert str(hosts).encode() in done.stderr
    assert not hosts.exists()


async def test_stdin_arrives_byte_exact_and_its_end_too(client: Client) -> None:
    data = bytes(range(256)) * 20_000
    assert (await client.exec("cat", stdin=data)).stdout == data


@pytest.mark.requirement("F31")
async def test_a_command_that_reads_stdin_sees_its_end_at_once(client: Client) -> None:
    assert (await client.exec("cat")).result == CLEAN


async def test_a_command_may_ignore_its_stdin(client: Client) -> None:
    assert (await client.exec("true", stdin=b"x" * 200_000)).result == CLEAN


async def test_variables_are_added_for_one_command_only(client: Client) -> None:
    assert await client.text("sh", "-c", "echo $EXTRA", env={"EXTRA": "yes"}) == "yes\n"
    assert await client.text("sh", "-c", "echo $EXTRA") == "\n"


@pytest.mark.parametrize(("argv", "code"), [(["no-such-program"], 127), (["/"], 126)])
async def test_what_cannot_be_started_ends_as_in_a_shell(client: Client, argv: list[str], code: int) -> None:
    done = await client.exec(*argv)
    assert done.result == {**CLEAN, "exit_code": code}
    assert argv[0].encode() in done.stderr


@pytest.mark.requirement("F16")
async def test_a_death_by_signal_is_no_timeout(client: Client) -> None:
    done = await client.exec("sh", "-c", "kill -9 $$", timeout=60)
    assert done.result == {**CLEAN, "exit_code": None, "signal": 9}


@pytest.mark.requirement("F1", "F5", "F7", "F15", "F29")
async def test_a_timeout_ends_the_whole_tree_of_this_command_only_and_keeps_its_output(inside: Inside) -> None:
    other = await inside.client.open_exec("sh", "-c", "echo up; sleep 5004")
    assert await first(other) == b"up\n"
    tree = "trap '' TERM; (setsid sh -c \"trap '' TERM; sleep 5001\" &); sleep 5002 & echo partial; wait; sleep 5003"
    done = await inside.client.exec("sh", "-c", tree, timeout=0.3, grace=0.1)
    assert done.stdout == b"partial\n"
    assert done.result["timed_out"]
    assert done.result["exit_code"] is None
    assert [number for number in range(5001, 5005) if running(f"sleep\0{number}")] == [5004]
    await other.reset("enough")
    await until(lambda: not running("sleep\x005004"), "a dropped command is ended")


@pytest.mark.requirement("F2")
async def test_a_dropped_command_is_ended_although_it_prints_nothing(inside: Inside) -> None:
    stream = await inside.client.open_exec("sh", "-c", "echo $$; exec sleep 6001")
    await stream.send_end()
    pid = int(await first(stream))
    await stream.reset("interrupted")
    await until(lambda: not Path(f"/proc/{pid}/exe").exists(), "the command is gone")


@pytest.mark.requirement("F6")
async def test_a_grandchild_that_holds_stdout_does_not_hold_the_result(client: Client) -> None:
    async with asyncio.timeout(5):
        done = await client.exec("sh", "-c", "sleep 7001 & echo done")
    assert (done.stdout, done.result) == (b"done\n", CLEAN)
    assert running("sleep\x007001"), "a background process lives on with the sandbox"


@pytest.mark.slow
async def test_a_grandchild_that_prints_for_ever_is_cut_off(client: Client) -> None:
    async with asyncio.timeout(10):
        done = await client.exec("sh", "-c", "(while :; do echo more; sleep 0.02; done) & echo done")
    assert done.result == CLEAN


@pytest.mark.requirement("F26")
async def test_output_over_the_cap_is_dropped_and_says_so(client: Client) -> None:
    done = await client.exec("sh", "-c", "head -c 5000000 /dev/zero; echo end >&2", max_output=100_000)
    assert len(done.stdout) == 100_000
    assert b"truncated after 100000 bytes" in done.stderr
    assert done.result == {**CLEAN, "truncated": True}


async def test_output_at_the_cap_is_whole(client: Client) -> None:
    done = await client.exec("head", "-c", "1000", "/dev/zero", max_output=1000)
    assert (len(done.stdout), done.stderr, done.result) == (1000, b"", CLEAN)


@pytest.mark.slow
@pytest.mark.requirement("F26")
async def test_a_reader_that_is_slow_slows_the_command_and_not_the_memory(client: Client) -> None:
    before = (await client.control("stats"))["rss"]
    stream = await client.open_exec("head", "-c", "300000000", "/dev/zero")
    await stream.send_end()
    assert await client.text("echo", "others") == "others\n"
    size = 0
    while data := await stream.receive():
        size += len(data) - 1 if data[0] == 1 else 0
    assert size == 300_000_000
    assert (await client.control("stats"))["rss"] - before < 32 * 1024 * 1024


@pytest.mark.requirement("F25")
async def test_both_outputs_are_drained(client: Client) -> None:
    done = await client.exec("sh", "-c", "head -c 200000 /dev/zero >&2; head -c 200000 /dev/zero")
    assert (len(done.stdout), len(done.stderr)) == (200_000, 200_000)


@pytest.mark.slow
@pytest.mark.requirement("F27")
async def test_five_hundred_commands_all_give_their_text(client: Client) -> None:
    async def some(start: int) -> list[str]:
        return [await client.text("echo", str(number)) for number in range(start, start + 50)]

    texts = await asyncio.gather(*(some(start) for start in range(0, 500, 50)))
    assert sorted(int(text) for part in texts for text in part) == list(range(500))


@pytest.mark.requirement("F20")
async def test_bytes_are_passed_as_they_are(client: Client) -> None:
    assert (await client.exec("printf", r"caf\303\251\377")).stdout == "café".encode() + b"\xff"


@pytest.mark.parametrize("args", [{"argv": []}, {"argv": "ls"}, {"argv": ["ls"], "env": {"A": 1}}, {}])
async def test_a_malformed_command_is_refused(client: Client, args: dict[str, object]) -> None:
    stream = await client.mux.open("exec", args)
    with pytest.raises(StockadeError):
        await collect(stream)
    assert await client.text("echo", "on") == "on\n"


async def test_unknown_kinds_of_streams_and_orders_are_refused(client: Client) -> None:
    for stream in (await client.mux.open("pty", {}), await client.mux.open("control", {"op": "explode"})):
        with pytest.raises(StockadeError) as refused:
            await stream.receive()
        assert refused.value.reset_code == "unsupported"  # type: ignore[attr-defined]


async def test_statistics_count_what_runs(client: Client) -> None:
    stream = await client.open_exec("sh", "-c", "echo up; cat")
    assert await first(stream) == b"up\n"
    stats = await client.control("stats")
    assert (stats["execs"], stats["turns"], stats["sessions"]) == (1, [], 0)
    assert stats["rss"] > 0
    await stream.send_end()
    assert json.dumps((await collect(stream)).result) == json.dumps(CLEAN)
