"""``stockade run --engine cursor`` with the real bridge in a real sandbox, and a fake backend behind the real route."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.cursor.backend import HANG, Backend, serve, text
from tests.support.toys import Toys

from .conftest import LIMIT, CommandLine, events, wait_for

pytestmark = [pytest.mark.needs("cursor", "namespaces"), pytest.mark.slow]

KEY = "key_of_the_account_4711"
PASS = ("--env-pass", "CURSOR_API_KEY")

TOYS = """
    import json
    from stockade import AdmissionPolicy
    from stockade.contracts.lifecycle import Observer
    from stockade.model.authority import Verdict

    class NoKeys(AdmissionPolicy):
        name = "no-keys"

        async def review(self, request):
            if {forbids} and request.provider_keys:
                return Verdict.deny("no provider keys here")
            return Verdict.allow()

    class Notes(Observer):
        async def on_event(self, record):
            with open({records!r}, "a") as file:
                file.write(json.dumps([record.kind, dict(record.data)]) + "\\n")

    @hookimpl
    def admission_policies(settings):
        return [NoKeys()]

    @hookimpl
    def observers(settings):
        return [Notes()]
"""


class Line:
    """A command line with the cursor engine, a toy policy and a toy observer; its route goes to the fake backend."""

    def __init__(self, stockade: CommandLine, backend: Backend, forbids: bool) -> None:
        self.stockade, self.backend = stockade, backend
        self.record_file = stockade.folder / "records"
        toys = Toys(stockade.folder / "site")
        toys.hooks("watch", TOYS.format(forbids=forbids, records=str(self.record_file)))
        self.env = {
            "PYTHONPATH": str(toys.site),
            "STOCKADE_PLUGINS": "stockade-process,stockade-cursor,toy-watch",
            "STOCKADE_PLUGIN__CURSOR__UPSTREAM": backend.url,
            "CURSOR_API_KEY": KEY,
        }

    async def __call__(self, *argv: str, **env: str) -> subprocess.CompletedProcess[bytes]:
        """Run a turn to its end; the backend goes on serving meanwhile."""
        return await asyncio.to_thread(self.stockade, "run", "--engine", "cursor", *argv, env=self.env | env)

    def records(self, kind: str) -> list[dict[str, Any]]:
        lines = self.record_file.read_text().splitlines() if self.record_file.exists() else []
        return [data for name, data in map(json.loads, lines) if name == kind]


@pytest.fixture
async def backend() -> AsyncIterator[Backend]:
    async with serve(Backend()) as served:
        served.play([text("Hel"), text("lo")])
        yield served


@pytest.fixture
def line(stockade: CommandLine, backend: Backend) -> Callable[..., Line]:
    return lambda forbids=False: Line(stockade, backend, forbids)


@pytest.mark.requirement("L44")
async def test_without_passing_the_key_in_nothing_is_started(
    line: Callable[..., Line], stockade: CommandLine, backend: Backend
) -> None:
    run = line()
    done = await run("Hello")
    assert done.returncode == 2
    assert b"not_configured" in done.stderr
    assert b"--env-pass CURSOR_API_KEY" in done.stderr
    assert (backend.seen, run.records("sandbox_created"), run.records("denied")) == ([], [], [])
    assert not list(stockade.home.glob("state/*"))


@pytest.mark.requirement("L44")
async def test_a_key_that_the_host_does_not_have_is_said_before_anything_starts(line: Callable[..., Line]) -> None:
    done = await line()(*PASS, "Hello", CURSOR_API_KEY="")
    assert done.returncode == 2
    assert b"CURSOR_API_KEY, which is not set on this host" in done.stderr


@pytest.mark.requirement("L44", "L80", "L81", "F33", "F35")
async def test_a_turn_with_the_key_is_attested_and_logged_and_shows_it_nowhere(
    line: Callable[..., Line], stockade: CommandLine, backend: Backend
) -> None:
    backend.play([text("the key is "), text(KEY[:9]), text(KEY[9:])])
    run = line()
    done = await run(*PASS, "--json", "Hello")
    assert done.returncode == 0, done.stderr
    outcome = events(done.stdout)[-1]["outcome"]
    assert (outcome["status"], outcome["usage"]["input_tokens"]) == ("completed", 11)
    (isolation,) = run.records("sandbox_created")
    assert isolation["provider_key"] == ["CURSOR_API_KEY"]
    assert b"provider keys are inside the sandbox: CURSOR_API_KEY" in done.stderr
    for said in (done.stdout, done.stderr, run.record_file.read_bytes()):
        assert KEY.encode() not in said
    # The route took the placeholder off, and the vendor got its own credential.
    assert {path.split("/")[1].split(".")[0] for path in backend.paths} <= {"auth", "v1", "agent", "aiserver"}
    assert backend.headers("/v1/models")["authorization"] == f"Bearer {KEY}"
    await asyncio.to_thread(stockade.assert_nothing_left)


@pytest.mark.requirement("L44")
async def test_the_setting_passes_the_key_as_well(line: Callable[..., Line]) -> None:
    done = await line()("Hello", STOCKADE_ENV_PASS="CURSOR_API_KEY")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == b"Hello"


@pytest.mark.requirement("L44")
async def test_a_policy_that_forbids_provider_keys_refuses_it(line: Callable[..., Line], backend: Backend) -> None:
    run = line(forbids=True)
    done = await run(*PASS, "--json", "Hello")
    assert done.returncode != 0
    assert events(done.stdout)[-1]["outcome"]["code"] == "denied"
    assert b"no provider keys here" in done.stdout + done.stderr
    assert (backend.seen, run.records("sandbox_created")) == ([], [])


@pytest.mark.requirement("F34", "F2", "F5")
async def test_a_signal_ends_the_bridge_and_until_then_the_key_is_on_no_command_line_and_in_no_file(
    line: Callable[..., Line], stockade: CommandLine, backend: Backend
) -> None:
    backend.play([text("working"), HANG])
    run = line()
    process = stockade.start("run", "--engine", "cursor", *PASS, "--json", "--session", "s", "Hello", env=run.env)
    await asyncio.wait_for(backend.hanging.wait(), LIMIT)
    lines = await asyncio.to_thread(stockade.processes)
    assert any("node" in found for found in lines)
    assert not [found for found in lines if KEY in found]
    assert not [path for path in stockade.home.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]
    process.send_signal(signal.SIGINT)
    out, err = await asyncio.to_thread(process.communicate, timeout=LIMIT)
    assert process.returncode == 130
    assert events(out)[-1]["outcome"]["status"] == "cancelled"
    assert KEY.encode() not in out + err
    await asyncio.to_thread(wait_for, lambda: not stockade.processes())


@pytest.mark.requirement("F85", "L34")
async def test_a_session_goes_on_in_another_process(line: Callable[..., Line], stockade: CommandLine) -> None:
    run = line()
    natives = []
    for message in ("The word is plum.", "Which word?"):
        done = await run(*PASS, "--json", "--session", "talk", message)
        assert done.returncode == 0, done.stderr
        natives.append(events(done.stdout)[-1]["outcome"]["native_session"])
    assert natives[0] == natives[1] != ""
    stores = {path.parent.name for path in stockade.home.rglob("sdk-agent-store/*/index.db")}
    assert len(stores) == 1
