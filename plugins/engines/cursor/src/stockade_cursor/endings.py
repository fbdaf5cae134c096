"""The typed ending of a turn that did not complete. Standard library only."""

from __future__ import annotations

import re

from stockade.errors import AuthFailed, BudgetExceeded, EngineFailed, TurnFailed
from stockade_cursor.command import KEY

_AUTH = frozenset({"unauthenticated", "unauthorized", "api_key_not_found", "permission_denied", "role_forbidden"})
_BUDGET = frozenset({"usage_limit_exceeded"})
_RATE = frozenset({"rate_limit_exceeded", "rate_limited", "resource_exhausted"})


_BRACKETED = re.compile(r"\[([a-z_]+)\] ")


def code_in(message: str) -> str:
    """The code of a Connect error that was made text, ``[unauthenticated] …``: a failed run may carry it only so."""
    found = _BRACKETED.match(message)
    return found[1] if found else ""


def failure(code: str, message: str, stderr: str = "") -> TurnFailed:
    """The typed ending by the stable code of Cursor's error (L85), in any of the spellings that its parts use."""
    plain = code.removeprefix("SDK_ERROR_CODE_").lower()
    if plain in _AUTH:
        return AuthFailed(message, hint=f"Check {KEY} on the host.")
    if plain in _BUDGET:
        return BudgetExceeded(message, hint="Raise the account's limit, or wait until it is renewed.")
    if plain in _RATE:
        return EngineFailed(message, hint="Cursor limits the rate: try again later.")
    return EngineFailed(message, hint=f"The last lines of the bridge's standard error:\n{stderr}" if stderr else "")
