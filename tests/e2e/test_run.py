"""``stockade run`` with the real Claude Code in a real sandbox, and a scripted model."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from .conftest import LIMIT, CommandLine, Terminal, events, read_until, wait_for

pytestmark = [pytest.mark.needs("claude"), pytest.mark.needs("namespaces")]

MAIN_JOB = (
    "run", "--rehearse", "hello", "--workspace", "./demo", "--file-access", "workspace-write", "Create hello.txt",
)  # fmt: skip

BUSY = """
    - shell: "setsid sleep 600 & (sleep 601 &) ; echo busy > busy.txt; sleep 602"
    - text: "Never said."
"""


def busy(stockade: CommandLine, *more: str) -> tuple[str, ...]:
    """A turn that runs until it is stopped, with children that hide."""
    script = stockade.script(BUSY)
    return ("run", "--rehearse", script, "--workspace", "./demo", "--file-access", "full", *more, "Work")


def is_busy(stockade: CommandLine) -> None:
    wait_for(lambda: (stockade.folder / "demo/busy.txt").exists(), LIMIT)


@dataclass(frozen=True)
class MainJob:
    """The README's first command, run once into a pipe and once with ``--json``."""

    line: CommandLine
    plain: subprocess.CompletedProcess[bytes]
    json: subprocess.CompletedProcess[bytes]


@pytest.fixture(scope="module")
def main_job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MainJob]:
    line = CommandLine(tmp_path_factory.mktemp("main-job"))
    plain = line(*MAIN_JOB)
    yield MainJob(line, plain, line(*MAIN_JOB[:-1], "--json", MAIN_JOB[-1]))
    line.kill()


@pytest.mark.requirement("L25", "L30")
def test_the_first_command_of_the_readme_leaves_hello_txt(main_job: MainJob) -> None:
    assert main_job.plain.returncode == 0, main_job.plain.stderr
    assert (main_job.line.folder / "demo/hello.txt").is_file()
    main_job.line.assert_nothing_left()


@pytest.mark.requirement("L21")
@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
def test_a_proxy_that_is_passed_in_does_not_get_the_model_calls(stockade: CommandLine, name: str) -> None:
    done = stockade("run", "--rehearse", "hello", "--env-pass", name, "Hello", env={name: "http://127.0.0.1:9"})
    assert done.returncode == 0, done.stderr


def test_a_pipe_gets_plain_text_and_the_rest_is_on_stderr(main_job: MainJob) -> None:
    done = main_job.plain
    assert done.stdout.strip()
    assert b"\x1b" not in done.stdout + done.stderr
    assert "→" not in done.stdout.decode()
    lines = done.stderr.decode().splitlines()
    assert "→ Write hello.txt" in lines
    assert re.fullmatch(r"✓ completed in [\d.]+ s, \d+ tokens in, \d+ out", lines[-1])


def test_json_is_one_event_a_line_and_the_last_is_the_outcome(main_job: MainJob) -> None:
    assert main_job.json.returncode == 0, main_job.json.stderr
    lines = events(main_job.json.stdout)
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert lines[0]["kind"] == "started"
    assert {"text", "tool_start", "tool_end"} <= {line["kind"] for line in lines}
    assert [line["kind"] for line in lines].count("ended") == 1
    outcome = lines[-1]["outcome"]
    assert (lines[-1]["kind"], outcome["status"], outcome["code"]) == ("ended", "completed", "")
    assert outcome["seconds"] > 0
    assert outcome["usage"]["output_tokens"] > 0


def test_tool_calls_and_their_ends_match_by_id(main_job: MainJob) -> None:
    lines = events(main_job.json.stdout)
    starts = [line["id"] for line in lines if line["kind"] == "tool_start"]
    ends = [line["id"] for line in lines if line["kind"] == "tool_end"]
    assert starts
    assert sorted(starts) == sorted(ends)


def test_a_terminal_gets_live_text_tool_lines_progress_and_a_last_line(
    stockade: CommandLine, terminal: Callable[..., Terminal]
) -> None:
    script = stockade.script("""
        - write: {path: hello.txt, content: "hi"}
        - delay: 1.5
        - text: "Bad \\e[2J\\e]0;title\\a words."
    """)
    screen = terminal(
        "run", "--rehearse", script, "--workspace", "./demo", "--file-access", "workspace-write", "Create hello.txt"
    )
    assert screen.end() == 0, screen.shown
    shown = screen.shown.decode()
    assert "starting the sandbox, " in shown
    assert "→ Write " in shown
    lines = [line for line in re.sub(r"\x1b\[[0-9;]*[mK]|\r", "", shown).splitlines() if line]
    assert re.fullmatch(r"✓ completed in [\d.]+ s, \d+ tokens in, \d+ out", lines[-1])
    assert "\x1b[2J" not in shown
    assert "\x1b]" not in shown
    assert "\x07" not in shown


@pytest.mark.requirement("L88")
def test_without_asking_for_more_nothing_is_written(stockade: CommandLine) -> None:
    done = stockade("run", "--rehearse", "hello", "--workspace", "./demo", "Create hello.txt")
    assert done.returncode == 0, done.stderr
    assert not (stockade.folder / "demo/hello.txt").exists()


def test_two_mib_of_standard_input_arrive_byte_for_byte(stockade: CommandLine) -> None:
    script = stockade.script('- text: "Read."')
    message = ("Zeile ä\t  \r\n" * 200_000).encode()[: 2 * 1024 * 1024 - 2] + b"\n\n"
    message = message.decode("utf-8", "ignore").encode()
    done = stockade("run", "--rehearse", script, "--session", "long", "-", input=message)
    assert done.returncode == 0, done.stderr
    texts = [text for path in stockade.home.rglob("projects/*/*.jsonl") for text in _user_texts(path)]
    assert message.decode() in texts


def _user_texts(transcript: Path) -> list[str]:
    found = []
    for line in transcript.read_text().splitlines():
        entry = json.loads(line)
        if entry.get("type") == "user":
            content = entry["message"]["content"]
            found += [content] if isinstance(content, str) else [part.get("text", "") for part in content]
    return found


@pytest.mark.requirement("F85")
def test_a_session_goes_on_in_another_process(stockade: CommandLine) -> None:
    script = stockade.script('- text: "Yes."')
    turns = [
        events(stockade("run", "--rehearse", script, "--session", "talk", "--json", message).stdout)[-1]["outcome"]
        for message in ("The word is plum.", "Which word?")
    ]
    assert [turn["status"] for turn in turns] == ["completed", "completed"]
    assert turns[0]["native_session"] == turns[1]["native_session"] != ""
    transcripts = list(stockade.home.rglob(f"projects/*/{turns[0]['native_session']}.jsonl"))
    assert len(transcripts) == 1
    assert {"The word is plum.", "Which word?"} <= set(_user_texts(transcripts[0]))


@pytest.mark.requirement("L74", "F2", "F5")
@pytest.mark.parametrize(("signum", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_cancels_the_turn_and_nothing_is_left(
    stockade: CommandLine, signum: signal.Signals, status: int
) -> None:
    process = stockade.start(*busy(stockade, "--json"))
    is_busy(stockade)
    process.send_signal(signum)
    out, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == status
    last = events(out)[-1]
    assert (last["kind"], last["outcome"]["status"]) == ("ended", "cancelled")
    stockade.assert_nothing_left()


def test_ctrl_c_on_the_terminal_reaches_no_process_of_the_sandbox_first(
    stockade: CommandLine, terminal: Callable[..., Terminal]
) -> None:
    screen = terminal(*busy(stockade))
    screen.until("→ ".encode())
    is_busy(stockade)
    screen.type(b"\x03")
    assert screen.end() == 130
    assert "■ cancelled in ".encode() in screen.shown
    assert b"Traceback" not in screen.shown
    stockade.assert_nothing_left()


def test_ctrl_c_while_the_sandbox_is_being_made_leaves_nothing(
    stockade: CommandLine, terminal: Callable[..., Terminal]
) -> None:
    screen = terminal(*busy(stockade))
    screen.until(b"starting the sandbox")
    screen.type(b"\x03")
    assert screen.end() == 130
    stockade.assert_nothing_left()


@pytest.mark.requirement("F17")
def test_a_second_ctrl_c_ends_it_at_once_and_the_sandbox_follows(
    stockade: CommandLine, terminal: Callable[..., Terminal]
) -> None:
    screen = terminal(*busy(stockade))
    is_busy(stockade)
    screen.type(b"\x03")
    screen.until(b"Once more to leave at once")
    screen.type(b"\x03")
    assert screen.end() == 130
    wait_for(lambda: not stockade.processes(), 5.0)
    assert stockade("sandboxes", "reap").returncode == 0
    stockade.assert_nothing_left()


@pytest.mark.requirement("F17")
def test_sigkill_of_the_command_ends_everything_and_one_reap_clears_the_registry(stockade: CommandLine) -> None:
    process = stockade.start(*busy(stockade))
    is_busy(stockade)
    process.kill()
    process.wait()
    wait_for(lambda: not stockade.processes(), 5.0)
    assert stockade("sandboxes", "reap").returncode == 0
    assert stockade.registered() == []


def test_a_reader_that_went_away_ends_the_turn(stockade: CommandLine) -> None:
    process = stockade.start(*busy(stockade, "--json"))
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(LIMIT) == 128 + signal.SIGPIPE
    stockade.assert_nothing_left()


def test_without_a_key_both_ways_on_are_shown(stockade: CommandLine) -> None:
    done = stockade("run", "--workspace", "./demo", "Hello")
    assert done.returncode == 2
    text = done.stderr.decode()
    assert "ANTHROPIC_API_KEY" in text
    assert "--rehearse" in text
    assert done.stdout == b""
    assert not (stockade.folder / "demo").exists()
    stockade.assert_nothing_left()


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["--engin", "claude", "Hello"], "Did you mean --engine?"),
        (["--file-access", "everything", "Hello"], "read-only"),
        (["--file-access", "full", "Hello"], "--workspace DIR"),
        (["--ttl", "soon", "Hello"], "write 90s"),
        ([], "no message"),
        (["Create", "hello.txt"], "quotes"),
        (["--env-pass", "KEY=sk-canary", "Hello"], "export it"),
    ],
)
def test_what_cannot_be_asked_for_is_2_and_says_what_to_do(stockade: CommandLine, argv: list[str], told: str) -> None:
    done = stockade("run", "--rehearse", "hello", *argv)
    assert done.returncode == 2
    assert told in done.stderr.decode()
    assert b"sk-canary" not in done.stderr
    assert done.stdout == b""
    assert not stockade.home.exists()


def test_an_engine_that_is_not_installed_is_typed(stockade: CommandLine) -> None:
    done = stockade("run", "--rehearse", "hello", "--engine", "nobody", "Hello")
    assert done.returncode == 1
    assert b"stockade: plugin_not_found: " in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.requirement("L35")
def test_a_key_that_the_vendor_refuses_is_a_typed_failure(stockade: CommandLine) -> None:
    done = stockade("run", "--rehearse", "refused", "--json", "Hello")
    assert done.returncode == 1
    assert events(done.stdout)[-1]["outcome"]["code"] == "auth"
    assert b"stockade: auth: " in done.stderr


def test_a_time_limit_is_a_typed_failure(stockade: CommandLine) -> None:
    done = stockade(*busy(stockade, "--timeout", "4"))
    assert done.returncode == 1
    assert b"stockade: stalled: " in done.stderr
    stockade.assert_nothing_left()


def test_the_same_sandbox_in_a_second_terminal_is_in_use(stockade: CommandLine) -> None:
    first = stockade.start(*busy(stockade, "--sandbox", "shared"))
    is_busy(stockade)
    second = stockade("run", "--rehearse", "hello", "--sandbox", "shared", "--json", "Hello")
    assert second.returncode == 1
    assert b"in_use" in second.stderr
    assert first.poll() is None
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=LIMIT)
    stockade.assert_nothing_left()


def test_a_sandbox_is_listed_and_destroyed_from_another_process(stockade: CommandLine) -> None:
    first = stockade.start(*busy(stockade, "--sandbox", "shared", "--json"))
    is_busy(stockade)
    (row,) = stockade.registered()
    assert (row["key"], row["state"], row["owner"]) == ("shared", "live", first.pid)
    done = stockade("sandboxes", "destroy", "shared")
    assert done.returncode == 0, done.stderr
    out, _ = first.communicate(timeout=LIMIT)
    assert first.returncode == 1
    assert events(out)[-1]["outcome"]["status"] in ("failed", "cancelled")
    stockade.assert_nothing_left()


@pytest.mark.requirement("F33")
def test_no_host_secret_is_inside_or_printed(stockade: CommandLine) -> None:
    script = stockade.script('- shell: "env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline"\n- text: "Done."\n')
    env = {"MY_TOKEN": "canary-a", "ANTHROPIC_API_KEY": "canary-b"}
    done = stockade(
        "run", "--rehearse", script, "--workspace", "./demo", "--file-access", "full", "--json", "Look", env=env
    )
    assert done.returncode == 0, done.stderr
    assert [line for line in events(done.stdout) if line["kind"] == "tool_end" and "STOCKADE_SANDBOX" in line["output"]]
    assert b"canary" not in done.stdout + done.stderr
    kept = [path for path in stockade.home.rglob("*") if path.is_file() and b"canary" in path.read_bytes()]
    assert kept == []


@pytest.mark.requirement("F31")
def test_an_open_standard_input_does_not_hang_the_agent(stockade: CommandLine) -> None:
    read, write = os.pipe()
    process = stockade.start("run", "--rehearse", "hello", "Hello", stdin=read, stderr=subprocess.DEVNULL)
    os.close(read)
    assert process.stdout is not None
    read_until(process.stdout, b"")
    assert process.wait(LIMIT) == 0
    os.close(write)
