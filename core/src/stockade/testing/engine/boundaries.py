"""What an engine must not touch: the host's environment and files, command lines, a person, another session."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from stockade.contracts.engine import Engine
from stockade.inside.engines import load
from stockade.model.events import Notice, ToolEnd, ToolStart
from stockade.model.finding import Finding
from stockade.testing.bounds import bounded
from stockade.testing.capabilities import requires
from stockade.testing.engine.base import ANSWER, EngineKit, Open, completed
from stockade.testing.engine.turns import canary
from stockade.testing.rehearsal import Rehearse

IMPORTER = Path(__file__).parent.parent / "importer.py"


class Terminal(io.RawIOBase):
    """A standard input that somebody seems to sit at. ``asked`` counts how often it is read."""

    asked = 0

    def isatty(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        self.asked += 1
        raise EOFError("nobody is there")


class BoundaryTests(EngineKit):
    """Part of `EngineContract`."""

    # -- the class ---------------------------------------------------------------------------------------

    def test_importing_it_takes_the_standard_library_only(self, engine: type[Engine]) -> None:
        """The module is imported while the sandbox starts: what is slow or foreign waits for `Engine.preload`."""
        assert _complaint(engine.__module__) == ""

    def test_it_is_written_for_this_contract(self, engine: type[Engine]) -> None:
        """It states ``API_VERSION`` itself, and the inside program loads it."""
        stated = [cls for cls in engine.__mro__ if "API_VERSION" in vars(cls) and cls is not Engine]
        assert stated, "state API_VERSION in the class: a later kernel cannot tell otherwise what it was written for"
        assert load(f"{engine.__module__}:{engine.__qualname__}") is engine
        assert not inspect.isabstract(engine)

    def test_diagnose_answers_with_findings(self, engine: type[Engine]) -> None:
        """For ``stockade doctor``. What can be improved has a way to do so."""
        findings = engine.diagnose()
        assert isinstance(findings, Sequence)
        assert all(isinstance(finding, Finding) for finding in findings)
        assert all(finding.fix for finding in findings if finding.status != "ok")

    @bounded
    async def test_preload_works_in_a_thread(
        self, engine: type[Engine], open_session: Open, rehearse: Rehearse
    ) -> None:
        """It is called in a thread while the sandbox is still being made, and perhaps again."""
        await asyncio.gather(*(asyncio.to_thread(engine.preload) for _ in range(2)))
        assert completed((await self.play(open_session(), rehearse, {"text": "done"})).outcome)

    # -- the host ----------------------------------------------------------------------------------------

    @bounded
    async def test_the_hosts_environment_stays_as_it_is(self, open_session: Open, rehearse: Rehearse) -> None:
        """``os.environ`` belongs to all sessions: it is not changed, not even during a turn (L63)."""
        before, seen = dict(os.environ), []
        async with rehearse([{"text": ANSWER}]) as rehearsal:
            session = open_session()
            await self.take(session, rehearsal, watch=lambda: seen.append(dict(os.environ)))
            await session.engine.aclose()
        assert all(environment == before for environment in [*seen, dict(os.environ)])

    @requires("shell")
    @bounded
    async def test_commands_get_the_sessions_environment(
        self, open_session: Open, rehearse: Rehearse, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """``context.environment`` and nothing of the host's, whose variables may be secrets (L20, F33)."""
        session = open_session()
        monkeypatch.setenv("KIT_CANARY_OF_THE_HOST", "secret")
        script = ({"shell": "env > variables.txt"}, {"text": "done"})
        run = await self.play(session, rehearse, *script, file_access="full")
        assert completed(run.outcome)
        variables = (session.context.workspace / "variables.txt").read_text().splitlines()
        assert f"STOCKADE_SCOPE={session.scope}" in variables
        assert f"TMPDIR={session.context.environment['TMPDIR']}" in variables
        assert "KIT_CANARY_OF_THE_HOST=secret" not in variables

    @bounded
    async def test_the_message_is_on_no_command_line(self, open_session: Open, rehearse: Rehearse) -> None:
        """Every user of the host can read the arguments of every process (F34)."""
        secret, seen = canary("message"), list[str]()
        async with rehearse([{"text": ANSWER}]) as rehearsal:
            session = open_session()
            await self.take(session, rehearsal, f"keep {secret}", watch=lambda: seen.extend(_command_lines(secret)))
            seen.extend(_command_lines(secret))
        assert not seen

    @bounded
    async def test_it_writes_only_where_it_may(
        self, open_session: Open, rehearse: Rehearse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Under its home, the workspace, and the sandbox's HOME and TMPDIR; nothing in those of the host (L22, L23)."""
        session = open_session()
        host = tmp_path / "host"
        for variable, name in [("HOME", "home"), ("TMPDIR", "tmp"), ("XDG_CONFIG_HOME", "c"), ("XDG_CACHE_HOME", "k")]:
            (host / name).mkdir(parents=True)
            monkeypatch.setenv(variable, str(host / name))
        (host / "cwd").mkdir()
        monkeypatch.chdir(host / "cwd")
        monkeypatch.setattr(tempfile, "tempdir", None)
        run = await self.play(session, rehearse, {"text": "done"}, file_access="full")
        await session.engine.aclose()
        assert completed(run.outcome)
        assert list(host.glob("*/*")) == []
        assert sorted(os.listdir(tmp_path)) == ["host", "sandbox"]
        assert sorted(os.listdir(tmp_path / "sandbox")) == ["state", "workspace"]

    @requires("shell")
    @bounded
    async def test_nobody_is_asked(
        self, open_session: Open, rehearse: Rehearse, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Neither on a terminal, nor by a command that inherits one and waits for its input (L65, F31)."""
        terminal = Terminal()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(terminal)))
        script = ({"tools": [{"shell": "cat"}, {"shell": "echo"}]}, {"text": "done"})
        with _open_input():
            async with rehearse(script) as rehearsal:
                session = open_session()
                run = session.start("go", rehearsal, file_access="full", model=self.model)
                ended = await run.ends_within(self.patience)
                if not ended:
                    await session.end(run, self.patience)
        assert not terminal.asked, "it read from sys.stdin"
        assert ended, "the turn waited for something: does a command inherit the standard input?"
        assert completed(run.outcome)

    # -- file access -------------------------------------------------------------------------------------

    @requires("read_only")
    @bounded
    async def test_read_only_writes_nothing(self, open_session: Open, rehearse: Rehearse) -> None:
        """Whatever the model wants (L64, L88)."""
        session = open_session()
        await self.play(session, rehearse, *WRITES)
        assert list(session.context.workspace.iterdir()) == []

    @requires("read_only")
    @bounded
    async def test_read_only_refuses_aloud(self, open_session: Open, rehearse: Rehearse) -> None:
        """A call that did nothing does not look as if it had worked: its end is an error, or a notice says so (L30)."""
        run = await self.play(open_session(), rehearse, *WRITES)
        failed = {end.id for end in run.of(ToolEnd) if end.is_error}
        assert run.of(Notice) or all(start.id in failed for start in run.of(ToolStart))

    @requires("workspace_write")
    @bounded
    async def test_workspace_write_writes_in_the_workspace(self, open_session: Open, rehearse: Rehearse) -> None:
        """A relative path is one of the workspace (L25), and the file is there when the turn ends (L30)."""
        session = open_session()
        script = ({"write": {"path": "made.txt", "content": "by the agent"}}, {"text": "done"})
        run = await self.play(session, rehearse, *script, file_access="workspace-write")
        assert completed(run.outcome)
        assert (session.context.workspace / "made.txt").read_text() == "by the agent"

    # -- other sessions ----------------------------------------------------------------------------------

    @bounded
    async def test_two_sessions_do_not_mix(self, open_session: Open, rehearse: Rehearse) -> None:
        """Two objects in one process and one home, at the same time: two conversations (L33)."""
        words = [canary("one"), canary("two")]
        sessions = [open_session(word) for word in words]
        async with rehearse([{"text": f"I am {words[0]}"}]) as one, rehearse([{"text": f"I am {words[1]}"}]) as two:
            stages = (one, two)
            for message in ("first {}", "second {}"):
                runs = await asyncio.gather(
                    *(
                        self.take(session, stage, message.format(word))
                        for session, stage, word in zip(sessions, stages, words, strict=True)
                    )
                )
                for run, other in zip(runs, reversed(words), strict=True):
                    assert other not in run.text
        natives = {run.outcome.native_session for run in runs} - {""}
        assert len(natives) in (0, 2), "both have the same native session"
        for stage, other in zip(stages, reversed(words), strict=True):
            assert not any(stage.mentions(other, call) for call in range(len(stage.calls)))


WRITES: tuple[Mapping[str, object], ...] = (
    {"write": {"path": "written.txt", "content": "x"}},
    {"shell": "touch touched.txt"},
    {"text": "done"},
)


@functools.cache
def _complaint(module: str) -> str:
    """What an import of ``module`` takes that it must not; empty when it takes nothing of that."""
    command = [sys.executable, "-I", "-S", str(IMPORTER), module]
    done = subprocess.run(command, input="\n".join(sys.path), capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def _command_lines(word: str) -> list[str]:
    """Processes with ``word`` among their arguments."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            arguments = Path("/proc", name, "cmdline").read_bytes()
        except OSError:
            continue  # it has ended
        if word.encode() in arguments:
            found.append(arguments.replace(b"\0", b" ").decode(errors="replace"))
    return found


@contextlib.contextmanager
def _open_input() -> Iterator[None]:
    """While it lasts, descriptor 0 is a pipe on which nothing ever comes."""
    saved = os.dup(0)
    reading, writing = os.pipe()
    try:
        os.dup2(reading, 0)
        yield
    finally:
        os.dup2(saved, 0)
        for descriptor in (saved, reading, writing):
            os.close(descriptor)
