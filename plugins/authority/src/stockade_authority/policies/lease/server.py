"""The lease server: ``GET /leases/NAME`` and ``GET /jwks.json``, for one's own fleet."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path

from aiohttp import web

from stockade.errors import StockadeError, UsageError
from stockade_authority.keys import Keyring
from stockade_authority.policies.lease.document import NAME, seal
from stockade_authority.policies.lease.errors import LeaseExpired, LeaseMissing
from stockade_authority.policies.lease.grants import Grants

log = logging.getLogger("stockade.lease")


class LeaseServer:
    """Signs a lease for each request, from the grants and the keys as they are then.

    ``token`` is what clients must present as bearer; empty: anybody who can connect gets a lease.
    """

    def __init__(self, home: Path, token: str = "") -> None:
        self._grants = Grants(home)
        self._keyring = Keyring(home / "keys")
        self._token = token
        self._app = web.Application(client_max_size=1024)
        self._app.add_routes([web.get("/leases/{name}", self._lease), web.get("/jwks.json", self._jwks)])

    @contextlib.asynccontextmanager
    async def listening(self, host: str, port: int) -> AsyncIterator[str]:
        """Serve while this is open; gives the base URL. ``port`` 0 takes a free one."""
        runner = web.AppRunner(self._app, access_log=None, handle_signals=False)
        await runner.setup()
        try:
            site = web.TCPSite(runner, host, port)
            try:
                await site.start()
            except OSError as error:
                raise UsageError(
                    f"cannot listen on {host} port {port}: {error.strerror or error}", hint="Choose another --port."
                ) from error
            address = runner.addresses[0]
            shown = f"[{address[0]}]" if ":" in address[0] else address[0]
            yield f"http://{shown}:{address[1]}"
        finally:
            await runner.cleanup()

    async def _lease(self, request: web.Request) -> web.Response:
        presented = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        if self._token and not hmac.compare_digest(presented, f"Bearer {self._token}".encode()):
            return _error(401, "unauthorized", "present the token of this server")
        name = request.match_info["name"]
        if not NAME.fullmatch(name):
            return _error(404, "lease_missing", "there is no such grant")
        try:
            text = await asyncio.to_thread(self._sign, name)
        except (LeaseMissing, LeaseExpired) as error:
            return _error(404, error.code, error.message)
        except (StockadeError, OSError, ValueError):
            log.exception("the lease %r cannot be made", name)
            return _error(503, "lease_unavailable", "the lease cannot be made; the server's log says why")
        return web.Response(text=text, content_type="application/jwt", headers={"Cache-Control": "no-store"})

    def _sign(self, name: str) -> str:
        return seal(self._grants.get(name).lease(time.time()), self._keyring.signer())

    async def _jwks(self, request: web.Request) -> web.Response:
        try:
            keys = await asyncio.to_thread(self._keyring.jwks)
        except (StockadeError, OSError):
            log.exception("the keys cannot be read")
            return _error(503, "keys_unavailable", "the keys cannot be read; the server's log says why")
        return web.json_response(keys)


def _error(status: int, code: str, message: str) -> web.Response:
    return web.Response(
        status=status, text=json.dumps({"code": code, "message": message}), content_type="application/json"
    )
