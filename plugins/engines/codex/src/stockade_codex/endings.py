"""The typed ending of a turn that did not complete. Standard library only."""

from __future__ import annotations

from typing import Any

from stockade.errors import AuthFailed, BudgetExceeded, EngineFailed, TurnFailed

_BUDGET = ("usageLimitExceeded", "sessionBudgetExceeded")
_SANDBOX_HINT = (
    "Codex needs user namespaces for its own sandbox. Allow them (`stockade doctor` says how), use a driver of tier 2, "
    "or ask for file access full, which confines nothing."
)


def failure(info: Any, message: str, stderr: str = "") -> TurnFailed:
    """The typed ending of a failed turn, by Codex's own ``codexErrorInfo`` and the HTTP status in it (L85)."""
    status = http_status(info)
    if status in (401, 403) or info == "unauthorized":
        return AuthFailed(message, hint="Check the key of the model on the host.")
    if status == 402 or info in _BUDGET:
        return BudgetExceeded(message, hint="Raise the budget, or wait until it is renewed.")
    if status == 429 or info == "rateLimitExceeded":
        return EngineFailed(message, hint="The model's vendor limits the rate: try again later.")
    if status is not None:
        return EngineFailed(message, hint=f"The model answered with HTTP status {status}.")
    return EngineFailed(message, hint=f"The last lines of its standard error:\n{stderr}" if stderr else "")


def http_status(info: Any) -> int | None:
    """The HTTP status in a ``codexErrorInfo``: ``{"httpConnectionFailed": {"httpStatusCode": 401}}``."""
    if isinstance(info, dict):
        for detail in info.values():
            status = detail.get("httpStatusCode") if isinstance(detail, dict) else None
            if isinstance(status, int):
                return status
    return None


def unconfinable(mode: str, exit_code: int, stderr: str) -> EngineFailed:
    """Codex's sandbox could not be started, or does not let the workspace be written: nothing was asked yet (F42)."""
    reason = stderr.strip()[-500:] or f"the trial command ended with status {exit_code}"
    return EngineFailed(f"Codex's sandbox for file access {mode} does not work here: {reason}", hint=_SANDBOX_HINT)
