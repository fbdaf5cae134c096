"""The route ``cursor``: HTTP from the bridge inside to its vendor's hosts over TLS, and to nothing else.

It is an HTTP proxy and not a pump of bytes, because each request on a connection needs its own path and ``Host``,
and because one pool of TLS connections serves all sandboxes: a handshake a request would double Cursor's latency.

The bridge cannot present a credential of the route's besides the vendor's. It keeps the path of its base URL, so
the placeholder key is the first segment of every path (L70); the rest of the path is the vendor's.
"""

from __future__ import annotations

import hmac
import io
import ipaddress
import logging
from urllib.parse import urlsplit

import aiohttp
from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy
from pydantic import BaseModel, ConfigDict, ValidationError, field_validator
from yarl import URL

from stockade import Route, Settings
from stockade.contracts.route import Origin, Stream
from stockade.errors import SettingsError
from stockade_gateway.transport import StreamTransport, break_off

log = logging.getLogger("stockade.cursor")

# The server's own complaints quote what it cannot parse, keys included; failures are logged here.
_http_log = logging.getLogger("stockade.cursor.http")
_http_log.disabled = True

BACKEND = "https://api2.cursor.sh"
CATALOG = "https://api.cursor.com"
"""Where the SDK itself goes without ``CURSOR_BACKEND_URL``: ``/v1/…`` to `CATALOG`, everything else to `BACKEND`."""

CONNECT_TIME = 15.0
"""Seconds to reach the vendor. Its silence has no limit: a turn has one (F13)."""
MAX_BODY = 64 * 1024 * 1024
"""Bytes of one request's body."""

_HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers of one connection (RFC 9110, 7.6.1), which a proxy does not pass on."""
_NO_DEFAULTS = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")


class Options(BaseModel):
    """The table ``[plugin.cursor]``. ``upstream`` replaces the vendor's hosts, for a proxy of one's own or a test."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    upstream: str | None = None

    @field_validator("upstream")
    @classmethod
    def _url(cls, value: str | None) -> str | None:
        """Only TLS, or this machine: the key of the account crosses no network in clear."""
        if value is None:
            return None
        wanted = "give https://HOST[:PORT][/PATH], or http:// for an address of this machine"
        try:
            parts = urlsplit(value)
            parts.port  # noqa: B018 - read for its check
        except ValueError:
            raise ValueError(wanted) from None
        clean = value.isascii() and value.isprintable() and not any(mark in value for mark in " @?#\\")
        secure = parts.scheme == "https" or (parts.scheme == "http" and _is_here(parts.hostname))
        if not (clean and secure and parts.hostname) or ".." in parts.path.split("/"):
            raise ValueError(wanted)
        return value.rstrip("/")


class CursorRoute(Route):
    """Forwards for all sandboxes of a kernel. ``upstream`` instead of the vendor's hosts when it is given."""

    def __init__(self, upstream: str | None = None) -> None:
        self._upstream = upstream
        self._server: web.Server | None = None
        self._client: aiohttp.ClientSession | None = None

    @classmethod
    def from_settings(cls, settings: Settings) -> CursorRoute:
        """As the table ``[plugin.cursor]`` says. Raises `SettingsError`, which never repeats a value."""
        try:
            options = Options.model_validate(settings.options("cursor"))
        except ValidationError as error:
            said = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_input=False))
            raise SettingsError(
                f"the route to Cursor is configured wrongly: {said}",
                hint="See the table [plugin.cursor] of stockade.toml; without it the vendor's own hosts are used.",
            ) from None
        if options.upstream is not None:
            log.warning("Cursor's traffic, with the account's key, goes to %s instead of its vendor", options.upstream)
        return cls(options.upstream)

    async def serve(self, stream: Stream, origin: Origin) -> None:
        if self._server is None:
            # A caller that leaves must not leave its run going upstream: somebody pays for it.
            self._server = web.Server(self._handle, access_log=None, handler_cancellation=True, logger=_http_log)
        await StreamTransport(stream, origin).run(self._server())

    async def aclose(self) -> None:
        server, self._server = self._server, None
        client, self._client = self._client, None
        if server is not None:
            await server.shutdown(timeout=1.0)
        if client is not None:
            await client.close()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        origin: Origin = request.transport.get_extra_info("origin")
        target = _target(request, origin.key)
        if target is None:
            return web.Response(status=401, text="this is not the way of this session to Cursor's backend\n")
        if origin.warranted and origin.token is None:
            return web.Response(status=401, text="no turn runs in this session, or its token was revoked\n")
        try:
            body = await _body(request)
        except (web.RequestPayloadError, aiohttp.ClientPayloadError):
            return web.Response(status=400, text="the request's body is broken off\n")
        if body is None:
            return web.Response(status=413, text=f"the request is over {MAX_BODY} bytes\n")
        try:
            return await self._forward(request, target, body)
        except ConnectionError:
            raise  # the caller has gone
        except Exception:
            log.exception("%s: a request to Cursor's backend failed in the route", origin.sandbox)
            return web.Response(status=500, text="the route failed; the kernel's log says why\n")

    async def _forward(self, request: web.BaseRequest, target: str, body: bytes) -> web.StreamResponse:
        base = self._upstream or (CATALOG if target.startswith("/v1/") else BACKEND)
        try:
            answer = await self._session().request(
                request.method,
                URL(base + target, encoded=True),
                data=io.BytesIO(body) if body else None,
                headers=_kept(request.headers, "host", "content-length"),
                skip_auto_headers=_NO_DEFAULTS,
                allow_redirects=False,
            )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            log.warning("Cursor's backend cannot be reached: %s", type(error).__name__)
            return web.Response(status=502, text=f"the backend cannot be reached: {type(error).__name__}\n")
        try:
            if 300 <= answer.status < 400:
                return web.Response(status=502, text="the backend answered with a redirect, which is not followed\n")
            response = web.StreamResponse(status=answer.status, headers=_kept(answer.headers))
            await response.prepare(request)
            while True:
                try:
                    chunk = await answer.content.readany()
                except (aiohttp.ClientError, TimeoutError, OSError) as error:
                    # Headers are out: the only honest ending is a broken connection, not a clean end.
                    log.warning("Cursor's backend broke off: %s", type(error).__name__)
                    break_off(request)
                    return response
                if not chunk:
                    await response.write_eof()
                    return response
                await response.write(chunk)
        finally:
            answer.close()

    def _session(self) -> aiohttp.ClientSession:
        if self._client is None:
            self._client = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT_TIME),
                connector=aiohttp.TCPConnector(limit=0),
                auto_decompress=False,
                trust_env=False,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._client


def _is_here(host: str | None) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


def _target(request: web.BaseRequest, key: str) -> str | None:
    """Path and query without the key; ``None`` for a caller who does not present it, or wants another host."""
    empty, _, rest = request.raw_path.partition("/")
    shown, slash, path = rest.partition("/")
    # A path may hold any bytes; those that are no text are surrogates in it.
    fits = hmac.compare_digest(shown.encode(errors="surrogateescape"), key.encode())
    host = request.headers.get("Host", "").partition(":")[0]
    if not key or not fits or empty or not slash or host not in ("127.0.0.1", "localhost"):
        return None
    return f"/{path}"


def _kept(headers: CIMultiDictProxy[str], *dropped: str) -> CIMultiDict[str]:
    """The headers without those of the connection, those that ``Connection`` names, and ``dropped``."""
    named = {name.strip().lower() for value in headers.getall("Connection", []) for name in value.split(",")}
    unwanted = _HOP_BY_HOP | named | set(dropped)
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in unwanted)


async def _body(request: web.BaseRequest) -> bytes | None:
    """The body; ``None`` when it is, or says that it is, over the cap."""
    if (request.content_length or 0) > MAX_BODY:
        return None
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.content.iter_any():
        size += len(chunk)
        if size > MAX_BODY:
            return None
        chunks.append(chunk)
    return b"".join(chunks)
