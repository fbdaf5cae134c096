"""``stockade run --engine codex`` with the real Codex in a real sandbox, and a scripted model."""

from __future__ import annotations

import signal
import subprocess

import pytest

from .conftest import LIMIT, STOCKADE, CommandLine, events, read_until, wait_for

pytestmark = [pytest.mark.needs("codex", "namespaces"), pytest.mark.timeout(120)]

RUN = ("run", "--engine", "codex", "--workspace", "./demo", "--json")


def run(stockade: CommandLine, script: str, access: str, *more: str) -> tuple[str, ...]:
    (stockade.folder / "demo").mkdir(exist_ok=True)
    return (*RUN, "--rehearse", script, "--file-access", access, *more, "Create hello.txt")


@pytest.mark.requirement("L25", "L30", "L41")
def test_codex_writes_hello_txt_through_its_own_sandbox_in_ours(stockade: CommandLine) -> None:
    done = stockade(*run(stockade, "hello", "workspace-write"))
    assert done.returncode == 0, done.stderr
    assert (stockade.folder / "demo/hello.txt").read_text() == "Hello from a rehearsal.\n"
    seen = events(done.stdout)
    assert [event["name"] for event in seen if event["kind"] == "tool_start"] == ["shell", "shell"]
    assert seen[-1]["outcome"]["usage"]["output_tokens"] > 0
    stockade.assert_nothing_left()


@pytest.mark.requirement("L30", "L88")
def test_read_only_writes_nothing_and_the_turn_completes(stockade: CommandLine) -> None:
    done = stockade(*run(stockade, "hello", "read-only"))
    assert done.returncode == 0, done.stderr
    assert list((stockade.folder / "demo").iterdir()) == []


@pytest.mark.requirement("L34", "F85")
def test_a_later_process_goes_on_with_the_conversation(stockade: CommandLine) -> None:
    for _ in range(2):
        done = stockade(*run(stockade, "talk", "read-only", "--session", "first"))
        assert done.returncode == 0, done.stderr
    assert len(list(stockade.home.glob("state/*/engines/codex/*/config/sessions/*/*/*/*.jsonl"))) == 1


@pytest.mark.requirement("F2", "F5")
@pytest.mark.parametrize("access", ["workspace-write", "full"])
def test_an_interrupt_ends_commands_also_those_that_hide(stockade: CommandLine, access: str) -> None:
    script = stockade.script(
        """
        - shell: "setsid sleep 600 & (sleep 601 &) ; echo busy > busy.txt; sleep 602"
        - text: "Never said."
        """
    )
    process = stockade.start(*run(stockade, script, access))
    assert process.stdout is not None
    read_until(process.stdout, b'"tool_start"')
    wait_for((stockade.folder / "demo/busy.txt").exists, LIMIT)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=LIMIT)
    assert events(out)[-1]["outcome"]["status"] == "cancelled", err
    stockade.assert_nothing_left()


@pytest.mark.requirement("F42", "L41")
def test_where_a_second_level_of_namespaces_is_refused_the_turn_fails_and_says_so(stockade: CommandLine) -> None:
    argv = run(stockade, "hello", "workspace-write")
    limit = 'echo 1 > /proc/sys/user/max_user_namespaces; exec "$@"'
    refusing = ["unshare", "--user", "--map-root-user", "sh", "-c", limit, "sh"]
    done = subprocess.run(
        [*refusing, *STOCKADE, *argv], cwd=stockade.folder, env=stockade.env, capture_output=True, timeout=LIMIT
    )
    outcome = events(done.stdout)[-1]["outcome"]
    assert (done.returncode, outcome["status"], outcome["code"]) == (1, "failed", "engine_failed"), done.stderr
    assert "Codex's sandbox for file access workspace-write does not work here" in outcome["message"]
    assert outcome["usage"]["input_tokens"] == 0
    assert list((stockade.folder / "demo").iterdir()) == []


@pytest.mark.requirement("L21")
def test_a_proxy_that_is_passed_in_does_not_get_the_model_calls(stockade: CommandLine) -> None:
    proxy = {"HTTP_PROXY": "http://127.0.0.1:9"}
    done = stockade(*run(stockade, "talk", "read-only", "--env-pass", "HTTP_PROXY"), env=proxy)
    assert done.returncode == 0, done.stderr


def test_the_doctor_says_that_codex_is_there(stockade: CommandLine) -> None:
    done = stockade("doctor")
    assert b"codex: Codex" in done.stdout + done.stderr
