"""The route `cursor` and its hook module pass their contract kits, forwarding to a backend that echoes."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator
from http.client import HTTPException, HTTPResponse
from types import ModuleType

import pytest

from stockade.contracts.route import Route
from stockade.testing import Capabilities, HookContract, RouteContract
from stockade.testing.route import Dialogue
from stockade_cursor import plugin
from stockade_cursor.route import CursorRoute
from tests.cursor.test_route import echo, upstream


class Received(io.BytesIO):
    """What came back, as a socket to read from."""

    def makefile(self, mode: str) -> io.BytesIO:
        return self


class Backend:
    """A call of the bridge on a connection of its own: the session's key is the first part of the path."""

    def request(self, key: str, payload: str) -> bytes:
        head = f"POST /{key or 'none'}/agent.v1/Run HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(payload)}"
        return f"{head}\r\n\r\n{payload}".encode()

    def answers(self, payload: str, answer: bytes) -> bool:
        response = HTTPResponse(Received(answer))  # type: ignore[arg-type]  # all that it asks of a socket
        try:
            response.begin()
            return response.status == 200 and json.loads(response.read())["body"] == payload
        except (HTTPException, ValueError):
            return False


class TestCursorRoute(RouteContract):
    # It needs no configuration: the key is the sandbox's, the host is fixed.
    capabilities = Capabilities(preflight=False)

    @pytest.fixture
    async def route(self) -> AsyncIterator[Route]:
        async with upstream(echo) as url:
            yield CursorRoute(url)

    @pytest.fixture
    def dialogue(self) -> Dialogue:
        return Backend()


class TestHooks(HookContract):
    @pytest.fixture
    def module(self) -> ModuleType:
        return plugin
