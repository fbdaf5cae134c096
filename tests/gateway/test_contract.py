"""The gateway passes the contract kits: of routes, forwarding to a vendor that echoes, and of hook modules."""

from __future__ import annotations

import io
import json
from http.client import HTTPException, HTTPResponse
from types import ModuleType

import pytest
from aiohttp import web

from stockade.contracts.route import Route
from stockade.testing import HookContract, RouteContract
from stockade.testing.route import Dialogue
from stockade_gateway import plugin
from stockade_gateway.config import Upstream
from stockade_gateway.route import ModelRoute
from stockade_gateway.warrants import Warrants
from tests.gateway.conftest import Vendor


class Received:
    """What came back, as a socket to read from."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, mode: str) -> io.BytesIO:
        return io.BytesIO(self._data)


class Messages:
    """A call of Anthropic's Messages API on a connection of its own."""

    def request(self, key: str, payload: str) -> bytes:
        body = json.dumps({"model": "m", "messages": [], "metadata": payload}).encode()
        head = f"POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nx-api-key: {key}\r\nContent-Length: {len(body)}"
        return head.encode() + b"\r\n\r\n" + body

    def answers(self, payload: str, answer: bytes) -> bool:
        response = HTTPResponse(Received(answer))  # type: ignore[arg-type]  # all that it asks of a socket
        try:
            response.begin()
            return response.status == 200 and json.loads(response.read())["metadata"] == payload
        except (HTTPException, ValueError):
            return False


class TestModelRoute(RouteContract):
    dialect = "anthropic"

    @pytest.fixture
    async def route(self, vendor: Vendor) -> Route:
        async def echo(request: web.Request) -> web.StreamResponse:
            return web.json_response(await request.json())

        vendor.answer = echo
        return ModelRoute({"anthropic": Upstream(base_url=vendor.url)}, warrants=Warrants(checked=False))

    @pytest.fixture
    def unconfigured(self) -> Route:
        return ModelRoute({})

    @pytest.fixture
    def dialogue(self) -> Dialogue:
        return Messages()


class TestHooks(HookContract):
    @pytest.fixture
    def module(self) -> ModuleType:
        return plugin
