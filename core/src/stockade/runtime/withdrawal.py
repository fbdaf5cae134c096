"""Ends what policies admitted, when one of them takes it back (L14)."""

from __future__ import annotations

import asyncio
import logging

from stockade.contracts.authority import AdmissionPolicy
from stockade.plugins.answers import Answer
from stockade.runtime.admission import answering
from stockade.runtime.runner import Runner

log = logging.getLogger("stockade.admission")

PAUSE = 1.0
"""Seconds before a policy that failed is awaited again."""


def watch(policies: tuple[Answer[AdmissionPolicy], ...], runner: Runner) -> list[asyncio.Task[None]]:
    """A task for each policy that may take back what it admitted. To be cancelled when the kernel closes."""
    return [
        asyncio.create_task(_watch(answer, runner), name=f"stockade-withdrawal-{answer.plugin}")
        for answer in answering(policies, "withdrawn")
    ]


async def _watch(answer: Answer[AdmissionPolicy], runner: Runner) -> None:
    while True:
        failed = False
        try:
            reason = await answer.value.withdrawn()
        except Exception as error:
            log.exception("plugin %r failed while it watched; its sandboxes end", answer.plugin)
            reason, failed = f"its policy failed with {type(error).__name__}", True
        log.warning("plugin %r ends all sandboxes: %s", answer.plugin, reason)
        await runner.end_all("revoked", f"plugin {answer.plugin!r}: {reason}")
        if failed:
            await asyncio.sleep(PAUSE)
