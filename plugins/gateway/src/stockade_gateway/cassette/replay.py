"""Answers from a cassette, and says where a run departs from it.

A session of the run takes the first recorded session that nobody has taken and whose first call fits. Each of its calls
takes the first recorded call of that session that was not played and that fits (`checks`): so calls that an agent makes
at the same time may come in another order, and a call that is made again gets the next answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Collection, Sequence
from typing import Any

from aiohttp import web

from stockade.contracts.route import Origin
from stockade_gateway import dialects
from stockade_gateway.cassette.checks import Check, check, difference
from stockade_gateway.cassette.secrets import Mask, of_origin
from stockade_gateway.cassette.tape import Cassette, Line
from stockade_gateway.taps import Tap
from stockade_gateway.transport import break_off

log = logging.getLogger("stockade.gateway")


class Replay:
    """One cassette for all conversations of a kernel. ``secrets`` are never shown where a run departs from it."""

    def __init__(self, cassette: Cassette, secrets: Collection[str] = ()) -> None:
        self._secrets = frozenset(secrets)
        self._name = cassette.name
        self._free: OrderedDict[int, list[Line]] = OrderedDict(
            (number, list(lines)) for number, lines in enumerate(cassette.sessions, 1)
        )
        self._taken: dict[tuple[str, str], tuple[int, list[Line]]] = {}

    async def perform(
        self, request: web.BaseRequest, dialect: str, body: dict[str, Any], origin: Origin, taps: Sequence[Tap] = ()
    ) -> web.StreamResponse:
        """Answer one request, with ``taps`` as in `Stage.perform`.

        400 when the cassette has no answer for it, which agents do not try again.
        """
        try:
            mask = Mask(self._secrets | of_origin(origin))
            line = self._next(check(dialects.path_of(request), body, mask), origin)
        except LookupError as error:
            log.error("%s", error.args[0])
            return dialects.error(dialect, 400, error.args[0])
        if line.events is None and line.whole:
            return web.Response(status=line.status, headers=line.headers, body=b"".join(line.pieces()))
        response = web.StreamResponse(status=line.status, headers=line.headers)
        for tap in taps:
            tap.head(line.status, line.headers)
        await response.prepare(request)
        for piece in line.pieces():
            for tap in taps:
                tap.data(piece)
            await response.write(piece)
            await asyncio.sleep(0)  # each event by itself, as it was
        if not line.whole:
            break_off(request)
            return response
        await response.write_eof()
        return response

    def close(self) -> None:
        """Say what was recorded and never asked for. Idempotent."""
        left = sum(map(len, self._free.values())) + sum(len(lines) for _, lines in self._taken.values())
        if left:
            log.warning("%d calls of the cassette %s were not asked for", left, self._name)
        self._free.clear()
        self._taken.clear()

    def _next(self, asked: Check, origin: Origin) -> Line:
        key = (origin.sandbox, origin.session)
        if key not in self._taken:
            self._taken[key] = self._take(asked)
        number, lines = self._taken[key]
        for line in lines:
            if not difference(line.asked, asked):
                lines.remove(line)
                return line
        if not lines:
            raise LookupError(
                f"the cassette {self._name} is at its end: session {number} makes one more call than was recorded"
            )
        nearest = next((line for line in lines if line.asked.get("path") == asked["path"]), lines[0])
        raise LookupError(
            f"the run departs from the cassette {self._name} at call {nearest.call} of session {number}: "
            f"{difference(nearest.asked, asked)}"
        )

    def _take(self, asked: Check) -> tuple[int, list[Line]]:
        for number, lines in self._free.items():
            if any(not difference(line.asked, asked) for line in lines):
                return number, self._free.pop(number)
        for number in self._free:  # none fits: the first one says why
            return number, self._free.pop(number)
        raise LookupError(f"the cassette {self._name} has no further session")
