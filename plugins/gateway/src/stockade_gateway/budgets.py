"""What turns may use up: reserved before a call, settled after it. State changes without a wait in between.

A budget is the turn's, not the warrant's: a renewed warrant goes on with what is left. It is kept in memory, for
as long as the turn runs in this process; each gateway that serves a turn keeps its own account of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from stockade.contracts.route import Caller
from stockade.errors import BudgetExceeded
from stockade_gateway.refusals import Refused

if TYPE_CHECKING:
    from stockade_authority.verify import Budget

SILENCE = 7 * 86400.0
"""Seconds without a call after which a turn counts as over, where nobody says so."""
_HINT = "The budget of a turn is narrowed by plugins (hook token_claims); raise it there, or ask for less."


@dataclass(frozen=True, slots=True)
class Amount:
    """What is used, or reserved. ``input_tokens`` are all that the model reads, from a cache or not."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_microdollars: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Amount)))

    def __sub__(self, other: Amount) -> Amount:
        return Amount(*(getattr(self, f.name) - getattr(other, f.name) for f in fields(Amount)))


class _Account:
    """Of one turn. ``caller`` tells when the turn is over."""

    def __init__(self) -> None:
        self.used = Amount()
        self.held = Amount()
        self.caller = Caller()
        self.last = 0.0


class Hold:
    """A reservation. `settle` it whatever happens."""

    def __init__(self, account: _Account, amount: Amount) -> None:
        self.amount = amount
        self._account: _Account | None = account

    def settle(self, used: Amount) -> None:
        """Give back what was reserved, and take what was ``used``. Only the first call counts."""
        account, self._account = self._account, None
        if account is not None:
            account.held -= self.amount
            account.used += used


class Budgets:
    """The accounts of all turns of a route."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._accounts: dict[str, _Account] = {}
        self._look_at = 256

    def reserve(self, turn: str, caller: Caller, limits: Budget, amount: Amount) -> Hold:
        """Set ``amount`` aside. Raises `Refused` when that much is not left of one of the ``limits``."""
        account = self._accounts.get(turn)
        if account is None:
            self._forget()
            account = self._accounts[turn] = _Account()
        account.caller, account.last = caller, self._clock()
        for field in fields(Amount):
            limit, wanted = getattr(limits, field.name), getattr(amount, field.name)
            if limit is None:
                continue
            held = getattr(account.held, field.name)
            left = limit - getattr(account.used, field.name) - held
            if wanted > left:
                raise Refused(429, _exceeded(field.name, limit, left, held, wanted))
        account.held += amount
        return Hold(account, amount)

    def _forget(self) -> None:
        """Drop the accounts of turns that are over, now and then."""
        if len(self._accounts) < self._look_at:
            return
        before = self._clock() - SILENCE
        self._accounts = {
            turn: account
            for turn, account in self._accounts.items()
            if account.held != Amount() or (account.caller.turn == turn and account.last >= before)
        }
        self._look_at = 2 * len(self._accounts) + 256


def _exceeded(name: str, limit: int, left: int, held: int, wanted: int) -> BudgetExceeded:
    unit = "micro-dollars" if name == "cost_microdollars" else name.replace("_", " ")
    said = f"the turn's budget of {limit} {unit} is used up"
    if left > 0:
        said = f"the turn's budget has {left} of {limit} {unit} left; this call may need {wanted}"
    under_way = f" ({held} are set aside for calls under way)" if held else ""
    return BudgetExceeded(said + under_way, hint=_HINT)
