"""What the tests of an engine are given."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from stockade.contracts.engine import Engine
from stockade.model.turn import FileAccess
from stockade.testing.capabilities import Kit
from stockade.testing.engine.session import Run, Session
from stockade.testing.rehearsal import Rehearsal, Rehearse

Open = Callable[..., Session]

ANSWER = "The answer is long enough to be sent in more than one piece: it has two lines,\nand äöü and 😀."


def completed(outcome: Any) -> bool:
    """Whether the turn ended well, with a readable reason in a test's report where it did not."""
    assert outcome is not None, "the turn did not end"
    assert (outcome.status, outcome.code) == ("completed", ""), f"{outcome.status}: {outcome.message} {outcome.hint}"
    return True


class EngineKit(Kit):
    """The fixtures of `EngineContract`, and how its tests take a turn."""

    model: str | None = None
    """The model that turns name, for an engine that does not work without one."""

    @pytest.fixture
    def engine(self) -> type[Engine]:
        """The class under test. To be given."""
        raise NotImplementedError("give a fixture `engine` that returns the engine's class")

    @pytest.fixture
    def rehearse(self) -> Rehearse:
        """Serves a script as the engine's model. To be given; see `stockade.testing.rehearsal.Rehearse`."""
        raise NotImplementedError("give a fixture `rehearse`; for a vendor's engine: stockade_gateway.testing.rehearse")

    @pytest.fixture
    def variables(self, engine: type[Engine]) -> Mapping[str, str]:
        """Variables that the engine's agent needs besides the kernel's own. Override; its keys are given."""
        return dict.fromkeys(engine.PROVIDER_KEYS, "kit-placeholder")

    @pytest_asyncio.fixture
    async def open_session(
        self, engine: type[Engine], variables: Mapping[str, str], tmp_path: Path
    ) -> AsyncIterator[Open]:
        """Makes sessions that share a home; nothing of them is left after the test."""
        sessions: list[Session] = []
        host = dict(os.environ)

        def open_one(name: str = "session") -> Session:
            sessions.append(Session(engine, tmp_path / "sandbox", name, variables, host))
            return sessions[-1]

        yield open_one
        for session in sessions:
            await session.close(self.patience)

    async def take(
        self,
        session: Session,
        rehearsal: Rehearsal,
        message: str = "go",
        *,
        file_access: FileAccess = "read-only",
        **more: Any,
    ) -> Run:
        """One turn to its end."""
        run = session.start(message, rehearsal, file_access=file_access, **({"model": self.model} | more))
        await run.task
        return run

    async def play(self, session: Session, rehearse: Rehearse, *script: Mapping[str, Any], **more: Any) -> Run:
        """One turn of its own rehearsal to its end."""
        async with rehearse(script) as rehearsal:
            return await self.take(session, rehearsal, **more)
