"""A small stand-in for Cursor's backend, for the real bridge: what it needs for turns of text and calls of tools.

The messages are protobuf, written by hand; the numbers of their fields are in the comments. A script is a list of
steps, one list a run: `text`, `thinking`, `command`, `write`, `read`, `HANG`, `BREAK`.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from aiohttp import web

HANG, BREAK = b"hang", b"break"
SHELL, WRITE = 14, 3
"""Fields of ExecServerMessage and of ExecClientMessage."""

MODELS: dict[str, Any] = {
    "items": [
        {
            "id": name,
            "displayName": name,
            "parameters": [],
            "variants": [{"params": [], "displayName": name, "isDefault": True}],
        }
        for name in ("first-model", "other-model")
    ]
}


def _varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def field(number: int, value: bytes | str | int) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        number, shift, at = number | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            return number, at


def first(data: bytes, wanted: int, *deeper: int) -> bytes:
    """The first bytes or string field with this number, then one in it, and so on; empty when there is none."""
    found = _first(data, wanted)
    return first(found, *deeper) if deeper else found


def _first(data: bytes, wanted: int) -> bytes:
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        size, at = _read_varint(data, at)
        if tag & 7 == 2:
            if tag >> 3 == wanted:
                return data[at : at + size]
            at += size
    return b""


def frame(data: bytes, flags: int = 0) -> bytes:
    return bytes([flags]) + len(data).to_bytes(4, "big") + data


def update(number: int, message: bytes) -> bytes:
    """AgentServerMessage 1: interaction_update."""
    return field(1, field(number, message))


def text(delta: str) -> bytes:
    """InteractionUpdate 1: text_delta."""
    return update(1, field(1, delta))


def thinking(delta: str) -> bytes:
    """InteractionUpdate 4: thinking_delta."""
    return update(4, field(1, delta))


def tool_call(number: int, identity: str, shell: bool, arguments: bytes, result: bytes) -> bytes:
    """InteractionUpdate 2: tool_call_started, 3: tool_call_completed. ToolCall 1: a shell's, 12: an edit's."""
    call = field(1 if shell else 12, field(1, arguments) + (field(2, result) if result else b""))
    return update(number, field(1, identity) + field(2, call))


def turn_ended(used: int, written: int) -> bytes:
    """InteractionUpdate 14: turn_ended."""
    return update(14, field(1, used) + field(2, written))


@dataclass(frozen=True)
class Exec:
    """Something for the bridge to do: a field of ExecServerMessage, and its message."""

    number: int
    message: bytes

    def encode(self, identity: int) -> bytes:
        """AgentServerMessage 2: exec_server_message."""
        return field(2, field(1, identity) + field(15, f"exec-{identity}") + field(self.number, self.message))


def command(line: str, *, unconfined: bool = False) -> Exec:
    """ExecServerMessage 14: shell_stream_args. ``unconfined`` asks to leave the sandbox, as a model may."""
    policy = field(9, field(1, 1)) if unconfined else b""
    shell = field(1, line) + field(3, 20_000) + field(4, "call-shell") + field(5, "true") + field(17, 1)  # close_stdin
    return Exec(SHELL, shell + policy)


def write(path: Any, content: str = "written") -> Exec:
    """ExecServerMessage 3: write_args."""
    return Exec(WRITE, field(1, str(path)) + field(2, content) + field(3, "call-write"))


def mcp(server: str, tool: str, **arguments: str) -> Exec:
    """ExecServerMessage 11: mcp_args. An argument is an entry of a map whose value is a protobuf ``Value``."""
    named = field(1, f"{server}-{tool}") + field(3, "call-mcp") + field(4, server) + field(5, tool)
    given = (field(2, field(1, name) + field(2, field(3, value))) for name, value in arguments.items())
    return Exec(11, named + b"".join(given))


def context() -> Exec:
    """ExecServerMessage 10: request_context_args; the answer has what the bridge tells about the project."""
    return Exec(10, b"")


Step = bytes | Exec
B = TypeVar("B", bound="Backend")


class Backend:
    """Serves at `url`; ``seen`` has method, path and headers of every request, ``said`` what the bridge sent in runs.

    ``refusals`` are HTTP statuses by the last part of a path.
    """

    def __init__(self) -> None:
        self.url = ""
        self.scripts: list[list[Step]] = []
        self.seen: list[tuple[str, str, dict[str, str]]] = []
        self.said: list[bytes] = []
        self.hanging = asyncio.Event()
        self.refusals: dict[str, int] = {}
        self.heard = asyncio.Condition()
        self.next_exec = 1
        self._taken = 0

    def play(self, *scripts: list[Step]) -> None:
        """One script a run; the last one repeats."""
        self.scripts = list(scripts)

    @property
    def paths(self) -> list[str]:
        return [path for _, path, _ in self.seen]

    def headers(self, ending: str) -> dict[str, str]:
        """Of the last request for a path with this ending."""
        return next(headers for _, path, headers in reversed(self.seen) if path.endswith(ending))

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.content.read()  # whatever its size
        self.seen.append((request.method, request.raw_path, {k.lower(): v for k, v in request.headers.items()}))
        name = request.path.rpartition("/")[2]
        if name in self.refusals:
            refusal = {"code": "unauthenticated", "message": "no such key"}
            return web.json_response({**refusal, "error": refusal}, status=self.refusals[name])
        match name:
            case "exchange_user_api_key":
                return web.json_response({"accessToken": _token(), "refreshToken": _token()})
            case "models":
                return web.json_response(MODELS)
            case "BootstrapStatsig":
                return web.json_response({})
            case "BidiAppend":
                async with self.heard:
                    self.said.append(bytes.fromhex(first(body, 1).decode()))
                    self.heard.notify_all()
            case "RunSSE":
                return await self.run(request)
        return web.Response(body=b"", content_type="application/proto")

    async def run(self, request: web.BaseRequest) -> web.StreamResponse:
        """One run of the agent."""
        await self.run_request()
        response = web.StreamResponse(headers={"content-type": "application/connect+proto"})
        await response.prepare(request)
        for step in self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]:
            if step == HANG:
                self.hanging.set()
                await asyncio.Future()
            elif step == BREAK:
                assert request.transport is not None
                request.transport.close()
                return response
            elif isinstance(step, Exec):
                await self.do(step, response)
            else:
                await self.send(response, step)
        return await self.end(response)

    async def run_request(self) -> bytes:
        """What the next run is about: the bridge sends it on another connection. AgentClientMessage 1: run_request."""
        async with self.heard:
            await self.heard.wait_for(lambda: len(self._runs()) > self._taken)
        self._taken += 1
        return self._runs()[self._taken - 1]

    def _runs(self) -> list[bytes]:
        return [found for said in self.said if (found := first(said, 1))]

    async def send(self, response: web.StreamResponse, message: bytes) -> None:
        """One AgentServerMessage."""
        await response.write(frame(message))

    async def end(self, response: web.StreamResponse) -> web.StreamResponse:
        """The end of a run that went well."""
        await response.write(frame(turn_ended(11, 7)))
        await response.write(frame(b"{}", 2))
        await response.write_eof()
        return response

    async def do(self, step: Exec, response: web.StreamResponse) -> list[bytes]:
        """Have it done, and wait for its end; what the bridge said about it.

        The end is AgentClientMessage 5 (exec_client_control_message) 1 (stream_close) with its id.
        """
        identity, self.next_exec = self.next_exec, self.next_exec + 1
        closed = field(5, field(1, field(1, identity)))
        before = len(self.said)
        await response.write(frame(step.encode(identity)))
        async with self.heard:
            await self.heard.wait_for(lambda: closed in self.said)
        return self.said[before:]

    @property
    def transcript(self) -> str:
        """All that the bridge said in runs, as text."""
        return b"\n".join(self.said).decode(errors="replace")


def _token() -> str:
    """A JWT that nobody signed."""
    parts = ({"alg": "none"}, {"exp": int(time.time()) + 3600, "sub": "test"})
    encoded = (base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts)
    return ".".join((*encoded, "signature"))


@asynccontextmanager
async def serve(backend: B) -> AsyncIterator[B]:
    """Serve a backend on a port of 127.0.0.1."""
    runner = web.ServerRunner(web.Server(backend.answer, access_log=None), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    backend.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield backend
    finally:
        await runner.cleanup()
