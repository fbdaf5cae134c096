"""The typed ending of a turn that did not complete. Standard library only."""

from __future__ import annotations

from stockade.errors import AuthFailed, BudgetExceeded, EngineFailed, TurnFailed


def failure(status: int | None, error: str, message: str, stderr: str = "") -> TurnFailed:
    """The typed ending of a failed turn: by the HTTP status and Claude Code's own error type (L85)."""
    if status in (401, 403) or error == "authentication_failed":
        return AuthFailed(message, hint="Check the key of the model on the host.")
    if status == 402 or error == "billing_error":
        return BudgetExceeded(message, hint="Raise the budget, or wait until it is renewed.")
    if status == 429:
        return EngineFailed(message, hint="The model's vendor limits the rate: try again later.")
    if status is not None:
        return EngineFailed(message, hint=f"The model answered with HTTP status {status}.")
    return EngineFailed(message, hint=f"The last lines of its standard error:\n{stderr}" if stderr else "")
