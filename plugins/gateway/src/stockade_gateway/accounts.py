"""What each call may use, what it used, and its line in the meter."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from aiohttp import web

from stockade.contracts.route import Origin
from stockade.errors import Denied
from stockade_gateway import dialects, usage, warrants
from stockade_gateway.budgets import Amount, Budgets, Hold
from stockade_gateway.metering import Meter
from stockade_gateway.prices import Price, Prices, shipped
from stockade_gateway.refusals import Refused
from stockade_gateway.taps import Tap
from stockade_gateway.usage import Report, Tokens

if TYPE_CHECKING:
    from stockade_authority.verify import Warrant

FREE = ("/v1/messages/count_tokens", "/v1/models")
"""Paths that no vendor charges for: they use up no budget."""
MAX_NAME = 128
"""Characters of a model's name in a line. The agent chooses it."""


class Accounts:
    """Those of one route. Without a ``meter``, no lines are written."""

    def __init__(self, prices: Prices | None = None, meter: Meter | None = None) -> None:
        self.prices = prices or shipped()
        self.budgets = Budgets()
        self.meter = meter

    def call(self, request: web.BaseRequest, dialect: str, origin: Origin, *, rehearsed: bool) -> Call:
        """A call that begins. To be used in a ``with``."""
        return Call(self, dialects.path_of(request), dialect, origin, rehearsed)

    async def aclose(self) -> None:
        """Wait until every line is written. Idempotent."""
        if self.meter is not None:
            await self.meter.aclose()


class Call(Tap):
    """One call. On leaving the ``with``, its budget is settled and its line written, whatever happened.

    What the vendor did not report (the stream broke, the caller left) is taken to be all that was set aside.
    """

    def __init__(self, accounts: Accounts, path: str, dialect: str, origin: Origin, rehearsed: bool) -> None:
        self.warrant: Warrant | None = None
        self._accounts = accounts
        self._origin = origin
        self._began = time.monotonic()
        self._first: float | None = None
        self._status: int | None = None
        self._report = Report()
        self._free = path in FREE
        self._expected: Tokens | None = None
        self._price: Price | None = None
        self._hold: Hold | None = None
        self._line: dict[str, Any] = {
            "time": round(time.time(), 3),
            "kind": "model_call",
            "process": os.getpid(),
            "sandbox": origin.sandbox,
            "session": origin.session,
            "turn": origin.turn,
            "user": origin.user,
            "engine": origin.engine,
            "warrant": "",
            "dialect": dialect,
            "path": path,
            "model": "",
            "rehearsed": rehearsed,
            "refused": "",
        }

    def begin(self, body: Mapping[str, Any], size: int) -> None:
        """Before the call is made: is its model allowed, and what it may use still there?

        ``size`` are the bytes of ``body``. Raises `Refused`.
        """
        model = body.get("model")
        model = model if isinstance(model, str) else ""
        self._line["model"] = model[:MAX_NAME]
        warrant = self.warrant
        if warrant is not None:
            warrants.allow(warrant, usage.models(body))
        if self._free:
            return
        price = self._price = self._accounts.prices.of(model)
        if warrant is None:
            self._expected = usage.expected(body, size)
            return
        if price is None and warrant.budget.cost_microdollars is not None:
            raise Refused(403, _unpriced(model, self._origin.sandbox))
        expected = usage.expected(body, size)
        cost = price.rates(expected.prompt).at_most(expected) if price is not None else 0
        amount = Amount(1, expected.prompt, expected.output, cost)
        turn = warrant.turn or warrant.id
        self._hold = self._accounts.budgets.reserve(turn, self._origin.caller, warrant.budget, amount)
        self._expected = expected

    def refused(self, refusal: Refused) -> None:
        """The call is not made. The kernel learns why."""
        self._origin.refuse(refusal.ending)
        self._line["refused"] = refusal.ending.code

    def answered(self, response: web.StreamResponse) -> None:
        """What the caller gets, or got."""
        self._status = response.status
        if isinstance(response, web.Response) and self._first is None and isinstance(response.body, bytes):
            self.data(response.body)

    def __enter__(self) -> Call:
        return self

    def __exit__(self, *raised: object) -> None:
        tokens, estimated = self._used()
        cost = self._price.rates(tokens.prompt).cost(tokens) if self._price is not None else None
        if self._hold is not None:
            self._hold.settle(Amount(1, tokens.prompt, tokens.output, cost or 0))
        if self._accounts.meter is not None:
            self._accounts.meter.add(self._finished(tokens, cost, estimated))

    # -- Tap -------------------------------------------------------------------------------------------------

    def head(self, status: int, headers: Mapping[str, str]) -> None:
        self._status = status

    def data(self, chunk: bytes) -> None:
        if self._first is None:
            self._first = time.monotonic()
        self._report.feed(chunk)

    def end(self, whole: bool) -> None:
        """Whether the report came tells more than whether the answer did."""

    # --------------------------------------------------------------------------------------------------------

    def _used(self) -> tuple[Tokens, bool]:
        """The tokens, and whether they are only what they may have been."""
        expected = self._expected
        if expected is None or (self._status is not None and self._status >= 400 and self._status != 504):
            return Tokens(), False
        reported = self._report.tokens()
        return (expected, True) if reported is None else (reported, False)

    def _finished(self, tokens: Tokens, cost: int | None, estimated: bool) -> dict[str, Any]:
        now = time.monotonic()
        return self._line | {
            "warrant": self.warrant.id if self.warrant is not None else "",
            "status": self._status,
            "input_tokens": tokens.input,
            "output_tokens": tokens.output,
            "cache_read_tokens": tokens.cache_read,
            "cache_write_tokens": tokens.cache_write,
            "cost_microdollars": cost,
            "estimated": estimated,
            "first_byte_seconds": None if self._first is None else _seconds(self._first - self._began),
            "seconds": _seconds(now - self._began),
        }


def _seconds(value: float) -> float:
    return math.ceil(value * 1e6) / 1e6


def _unpriced(model: str, sandbox: str) -> Denied:
    return Denied(
        f"the turn has a budget of cost, and the model {model[:MAX_NAME]!r} has no price",
        sandbox=sandbox,
        hint="Add it to the file that plugin.gateway.prices names.",
    )
