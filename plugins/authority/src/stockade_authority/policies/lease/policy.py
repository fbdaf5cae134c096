"""The policy ``lease``: no sandbox without a valid lease."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING

from stockade import AdmissionPolicy
from stockade.errors import StockadeError
from stockade.model.authority import SandboxRequest, Verdict
from stockade_authority.policies.lease.errors import LeaseExpired, LeaseRevoked
from stockade_authority.policies.lease.permit import Permit, clock

if TYPE_CHECKING:
    from stockade_authority.policies.config import LeaseOptions

SETTING = "plugin.authority.lease"
RETRY = 1.0
"""Seconds between two looks for a lease that is not valid, however many ask."""


class LeasePolicy(AdmissionPolicy):
    """Looks at the source when it is first asked, and every ``refresh`` seconds while a kernel runs."""

    name = "lease"

    def __init__(self, home: Path, options: LeaseOptions) -> None:
        self._options = options
        self._permit = Permit(home, options)
        self._looked = -float("inf")
        self._looking = asyncio.Lock()
        self._told = ("", 0)

    async def review(self, request: SandboxRequest) -> Verdict:
        await self._look(RETRY if self._problem() or self._options.file else self._options.refresh)
        try:
            lease = self._permit.check(time.time())
        except StockadeError as error:
            return Verdict.deny(error.message, error.code, setting=SETTING)
        if lease.max_ttl and request.ttl > lease.max_ttl:
            reason = f"the lease allows a time to live of {lease.max_ttl} s, not of {request.ttl:g} s"
            return Verdict.deny(reason, "lease_ttl", setting=SETTING)
        trouble = f"; {self._permit.trouble.message}" if self._permit.trouble else ""
        return Verdict.allow(f"lease {lease.name!r} until {clock(lease.expires)}{trouble}", setting=SETTING)

    async def withdrawn(self) -> str:
        while True:
            await self._look(min(self._options.refresh, RETRY))
            lease, problem, pause = self._permit.lease, self._problem(), self._options.refresh
            if lease is not None and problem is None:
                pause = min(pause, max(lease.expires - time.time(), 0.0) + 0.01)
            elif lease is not None and lease.stop == "now" and isinstance(problem, (LeaseRevoked, LeaseExpired)):
                told, self._told = self._told, (problem.code, lease.issued)
                if told != self._told:
                    return problem.message
            await asyncio.sleep(pause)

    def _problem(self) -> StockadeError | None:
        try:
            self._permit.check(time.time())
        except StockadeError as error:
            return error
        return None

    async def _look(self, age: float) -> None:
        """Look unless somebody looked within the last ``age`` seconds. All who ask meanwhile share one look."""
        async with self._looking:
            now = asyncio.get_running_loop().time
            if now() - self._looked >= age:
                try:
                    await asyncio.to_thread(self._permit.look)
                finally:
                    self._looked = now()
