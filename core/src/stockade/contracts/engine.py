"""Engines adapt one coding agent. They live inside the sandbox: standard library only at import."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from stockade.model.events import Event
from stockade.model.turn import Outcome, Turn

if TYPE_CHECKING:
    from stockade.model.finding import Finding

Emitter = Callable[[Event], Awaitable[None]]
"""Sends one event; waits while the kernel does not keep up. Never call it after the outcome."""


@dataclass(frozen=True, slots=True)
class EngineContext:
    """Where one session of an engine lives.

    ``home`` is the engine's own directory for configuration and transcripts, private to this user
    (L33) and kept between sandboxes. ``environment`` is the whole environment for child processes:
    pass it on, never change ``os.environ`` (L63). ``tier`` is the driver's attestation (L37).
    """

    session: str
    home: Path
    workspace: Path
    tier: int
    environment: Mapping[str, str]
    log: logging.Logger


class Engine(ABC):
    """One conversation with one agent. Cached by session for the sandbox's life (L78)."""

    API_VERSION: ClassVar[tuple[int, int]] = (1, 0)

    ROUTES: ClassVar[Mapping[str, str]] = {}
    """Routes the engine needs, and the dialect it speaks on each: ``{"model": "anthropic"}``."""

    PROVIDER_KEYS: ClassVar[tuple[str, ...]] = ()
    """Variables that must hold a vendor's key *inside* (only for agents that take no base URL)."""

    def __init__(self, context: EngineContext) -> None:
        self.context = context

    @classmethod
    def preload(cls) -> None:
        """Import what is slow. Called once in a thread while the sandbox is still being made."""

    @classmethod
    def diagnose(cls) -> Sequence[Finding]:
        """What the agent needs of this host, for ``stockade doctor``: its SDK, its binary. Starts nothing."""
        return ()

    @abstractmethod
    async def run_turn(self, turn: Turn, emit: Emitter) -> Outcome:
        """Run one message; return its outcome. Called for one turn at a time.

        Send only ``turn.message``, never a history (L66). Nothing may be asked of a person (L65). An
        agent that ends without a result is `EngineFailed` (F40). May raise any
        `stockade.errors.TurnFailed`; another exception becomes ``engine_failed``.
        """

    async def interrupt(self) -> None:
        """Ask the running turn to end; `run_turn` then returns soon with status ``cancelled``.

        The inside program kills the whole process tree of the session afterwards, and makes a new
        engine for the next turn. Idempotent; without a running turn it does nothing.
        """

    async def aclose(self) -> None:
        """End the agent's processes. No turn is running. Idempotent."""
