"""The gateway on its own: an HTTP server that takes the warrant itself, where no kernel says who calls.

The warrant is the credential, as bearer or in ``x-api-key``; it is checked with the keys of a JWK set. Where a front
end that can be trusted says which sandbox a call comes from, a warrant of another sandbox is refused (L45).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiohttp import web

from stockade.contracts.route import Caller, Origin
from stockade.errors import AuthFailed
from stockade.model.authority import Token
from stockade_gateway import dialects
from stockade_gateway.refusals import Refused
from stockade_gateway.route import ModelRoute, http_log, presented

if TYPE_CHECKING:
    from stockade_authority.verify import Warrant

ROUTE = "model"
"""The audience of the warrants that are taken."""
MAX_WARRANT = 16 * 1024
"""Characters of a warrant."""


class Gateway:
    """Serves one route over TCP. ``origin_header``: the header in which the front end says the sandbox, if any."""

    def __init__(self, route: ModelRoute, *, origin_header: str = "") -> None:
        self._route = route
        self._origin_header = origin_header
        self._server = web.Server(self._handle, access_log=None, handler_cancellation=True, logger=http_log)
        self._listening: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> str:
        """Listen; gives the URL. ``port`` 0 takes any. Raises `OSError`, and `StockadeError` without trusted keys."""
        await self._route.warrants.prepare()
        self._listening = await asyncio.get_running_loop().create_server(self._server, host, port, backlog=1024)
        address = self._listening.sockets[0].getsockname()
        return f"http://{f'[{address[0]}]' if ':' in address[0] else address[0]}:{address[1]}"

    async def stop(self, grace: float) -> None:
        """Take no further call, give those that run ``grace`` seconds, then cut them off. Idempotent."""
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.close()
            self._server.pre_shutdown()
            await self._server.shutdown(grace)
            await self._route.aclose()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            origin, warrant = await self._origin(request)
        except Refused as error:
            return error.answer(dialects.dialect_for_errors(request))
        return await self._route.answer(request, origin, warrant)

    async def _origin(self, request: web.BaseRequest) -> tuple[Origin, Warrant]:
        """Who calls, as its warrant says, and the warrant. Raises `Refused`."""
        sandbox = None
        if self._origin_header:
            named = request.headers.getall(self._origin_header, [])
            if len(named) != 1 or not named[0]:
                said = "the front end does not say which sandbox this call comes from"
                raise Refused(403, AuthFailed(said, hint=f"It has to set {self._origin_header}, once."))
            sandbox = named[0]
        value = next(iter(presented(request)), "")
        if not value or len(value) > MAX_WARRANT or not value.isascii():
            raise Refused(401, AuthFailed("there is no warrant: give it as bearer, or in x-api-key"))
        warrant = await self._route.warrants.check(value, audience=ROUTE, sandbox=sandbox)
        token = Token(id=warrant.id, value=value, expires=warrant.expires)
        caller = Caller(user=warrant.user, engine=warrant.engine, turn=warrant.turn, token=token)
        origin = Origin(warrant.sandbox, warrant.session, ROUTE, key=value, warranted=True, caller=caller)
        return origin, warrant
