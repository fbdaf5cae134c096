"""Serves the connections that something inside a sandbox makes to the route. Runs in the kernel's process."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Mapping
from typing import Any

from stockade import Route
from stockade.contracts.route import Origin, Stream
from stockade.errors import NotConfigured, SettingsError

LONGEST_HEAD = 64 * 1024
"""Bytes of a request before its body. What comes from a sandbox is never read without a limit."""
CHUNK = 64 * 1024


class AcmeRoute(Route):
    """Forwards HTTP to one server, one request a connection, for callers that present the session's key.

    The key goes no further than this. Option ``to`` is the server: ``"127.0.0.1:8080"``.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        to = options.get("to", "")
        host, _, port = str(to).rpartition(":")
        if set(options) - {"to"} or (to and not (host and port.isdecimal())):
            raise SettingsError(f"[plugin.acme] is {dict(options)}", hint='Its one option: to = "HOST:PORT".')
        self._host, self._port = host, int(port or 0)

    def preflight(self, dialect: str) -> None:
        """See `Route.preflight`. The server decides what it speaks; here any dialect passes."""
        if not self._host:
            raise NotConfigured(
                "the route acme leads nowhere", hint='Set to = "HOST:PORT" under [plugin.acme] in stockade.toml.'
            )

    async def serve(self, stream: Stream, origin: Origin) -> None:
        """See `Route.serve`."""
        head, body = await _read_head(stream)
        key, request = _take_key(head, f"{self._host}:{self._port}")
        if not origin.key or not hmac.compare_digest(key, origin.key.encode()):
            await _refuse(stream, "401 Unauthorized", "this is not the key of the session")
            return
        if origin.warranted and origin.token is None:
            await _refuse(stream, "403 Forbidden", "no turn of the session runs, or its token was revoked")
            return
        try:
            reader, writer = await asyncio.open_connection(self._host, self._port)
        except OSError:
            await _refuse(stream, "502 Bad Gateway", "the server of the route does not answer")
            return
        writer.write(request + body)
        sending = asyncio.create_task(_send(stream, writer))
        try:
            while data := await reader.read(CHUNK):
                await stream.send(data)
            await stream.send_end()
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            writer.transport.abort()


async def _read_head(stream: Stream) -> tuple[bytes, bytes]:
    """The request's head without the empty line after it, and what came of the body; empty for what is no request."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = await stream.receive()
        data += piece
        if not piece or len(data) > LONGEST_HEAD:
            return b"", b""
    head, _, body = data.partition(b"\r\n\r\n")
    return head, body


def _take_key(head: bytes, host: str) -> tuple[bytes, bytes]:
    """The key that the caller presents, and the head as it goes on: without it, and for one request only."""
    first, *lines = head.split(b"\r\n")
    key, kept = b"", [first, b"Host: " + host.encode(), b"Connection: close"]
    for line in lines:
        name, _, value = line.partition(b":")
        match name.strip().lower():
            case b"x-api-key":
                key = value.strip()
            case b"authorization":
                key = value.strip().removeprefix(b"Bearer ")
            case b"host" | b"connection" | b"keep-alive":
                pass
            case _:
                kept.append(line)
    return key, b"\r\n".join([*kept, b"", b""])


async def _send(stream: Stream, writer: asyncio.StreamWriter) -> None:
    """The rest of the request, as long as the server takes it. A caller that is gone is waited for no longer."""
    try:
        while data := await stream.receive():
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        writer.transport.abort()


async def _refuse(stream: Stream, status: str, reason: str) -> None:
    body = f"{reason}\n"
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    await stream.send((head + body).encode())
    await stream.send_end()
