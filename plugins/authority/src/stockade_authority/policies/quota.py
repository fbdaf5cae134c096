"""The policy ``quota``: so many sandboxes and turns at once, in total, for a user, in a sandbox."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from stockade import AdmissionPolicy
from stockade.errors import StockadeError
from stockade.model.authority import SandboxRequest, TurnRequest, Verdict
from stockade_authority.policies.config import QuotaOptions
from stockade_authority.policies.places import Count, Limit, Places

T = TypeVar("T")
SETTING = "plugin.authority.quota"


class QuotaPolicy(AdmissionPolicy):
    """Counts in one thread: an ask that nobody waits for any more is over before its place is given back."""

    name = "quota"

    def __init__(self, root: Path, options: QuotaOptions) -> None:
        self._options = options
        self._places = Places(root)
        self._thread = ThreadPoolExecutor(1, "stockade-quota")
        self._ended: set[str] = set()
        self._closed = False

    async def review(self, request: SandboxRequest) -> Verdict:
        limits = self._limits("sandboxes", user=request.user)
        return await self._answer(
            "sandboxes",
            limits,
            lambda: self._places.take_sandbox(request.sandbox, request.user, limits, dry=request.dry_run),
        )

    async def review_turn(self, request: TurnRequest) -> Verdict:
        user, key = request.sandbox.user, request.sandbox.key
        limits = self._limits("turns", user=user, key=key)
        dry = request.sandbox.dry_run
        return await self._answer(
            "turns", limits, lambda: self._places.take_turn(request.turn, user, key, limits, dry=dry)
        )

    async def turn_ended(self, request: TurnRequest) -> None:
        if self._limits("turns"):
            # What cannot be written now is written before the next ask of this process.
            self._ended.add(request.turn)
            await self._run(self._settle)

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            await self._run(self._places.close)
            self._thread.shutdown(wait=False)

    def _limits(self, what: str, **values: str) -> list[Limit]:
        found = []
        for name, most in self._options.model_dump(exclude_none=True).items():
            kind, _, column = name.partition("_per_")
            if kind == what:
                found.append(Limit(f"{SETTING}.{name}", most, column, values.get(column, "")))
        return found

    async def _answer(self, what: str, limits: list[Limit], take: Callable[[], list[Count]]) -> Verdict:
        if not limits:
            return Verdict.allow(f"no limit on {what}", setting=SETTING)

        def settle_and_take() -> list[Count]:
            self._settle()
            return take()

        try:
            counts = await self._run(settle_and_take)
        except (sqlite3.Error, OSError, StockadeError) as error:
            reason = f"the places cannot be counted: {getattr(error, 'message', error)}"
            return Verdict.deny(reason, "quota_unavailable", setting=SETTING)
        for count in counts:
            if count.full:
                limit = count.limit
                code = limit.setting.removeprefix("plugin.authority.").replace(".", "_")
                return Verdict.deny(f"{_said(count)} {what}", code, setting=limit.setting)
        said = f"{', '.join(map(_said, counts))} {what} besides this" if counts else "it has its place"
        return Verdict.allow(said, setting=SETTING)

    def _settle(self) -> None:
        if self._ended:
            ended = set(self._ended)
            self._places.end_turns(ended)
            self._ended -= ended

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def _said(count: Count) -> str:
    limit = count.limit
    who = {"user": f"user {limit.value!r} has", "key": f"sandbox {limit.value!r} has"}.get(limit.column, "there are")
    return f"{who} {count.taken} of {limit.most}"
