"""The route over loopback, and a fake vendor that records what reaches it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web
from pydantic import SecretStr

from stockade.contracts.route import Origin
from stockade_gateway.config import Upstream
from stockade_gateway.rehearsal.script import load, parse
from stockade_gateway.route import ModelRoute
from stockade_gateway.testing import serve_tcp

if TYPE_CHECKING:
    from .warranted import Authority

KEY = "placeholder-of-this-session"
CANARY = "canary-host-secret-7391"
ORIGIN = Origin(sandbox="sb-1", session="s", route="model", key=KEY)
BASH = {"name": "Bash", "input_schema": {"type": "object"}}
WRITE = {"name": "Write", "input_schema": {"type": "object"}}

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Vendor:
    """A real HTTP server on loopback. ``answer`` decides what it says."""

    answer: Answer | None = None
    url: str = ""
    seen: list[web.Request] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request)
        self.bodies.append(await request.read())
        assert self.answer is not None
        try:
            return await self.answer(request)
        except asyncio.CancelledError:
            self.gone.set()
            raise


@pytest.fixture
async def vendor() -> AsyncIterator[Vendor]:
    fake = Vendor()
    app = web.Application(client_max_size=2**30)
    app.router.add_route("*", "/{path:.*}", fake.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield fake
    await runner.cleanup()


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(headers={"x-api-key": KEY}, auto_decompress=False) as session:
        yield session


@pytest.fixture
async def forwarding(vendor: Vendor) -> AsyncIterator[str]:
    """The URL of a route whose both upstreams are the fake vendor."""
    secret = SecretStr(CANARY)
    upstreams = {
        "anthropic": Upstream(base_url=vendor.url, key=secret),
        "openai": Upstream(base_url=vendor.url + "/v1", key=secret, bearer=True),
    }
    async with serve_tcp(ModelRoute(upstreams), ORIGIN) as url:
        yield url


@pytest.fixture
def rehearse() -> Callable[[str], contextlib.AbstractAsyncContextManager[str]]:
    """Serve a script: a shipped one by name, or YAML text."""

    def opened(script: str) -> contextlib.AbstractAsyncContextManager[str]:
        made = parse("test", script) if script.startswith("-") else load(script)
        return serve_tcp(ModelRoute({}, made), ORIGIN)

    return opened


def ask(*tools: dict[str, Any], stream: bool = False, **more: Any) -> dict[str, Any]:
    """The body of a Messages request."""
    message = {"role": "user", "content": "go"}
    return {"model": "m", "max_tokens": 10, "messages": [message], "tools": list(tools), "stream": stream, **more}


@pytest.fixture
async def authority(tmp_path: Path) -> AsyncIterator[Authority]:
    """Real warrants. Skipped where the gateway is installed without what mints and checks them."""
    pytest.importorskip("stockade_authority")
    from .warranted import Authority

    made = Authority(tmp_path / "home")
    yield made
    await made.minter.aclose()
