"""A scripted model that speaks Anthropic Messages with streaming: exact answers for the engine's tests.

A script is a list of replies. A reply is a list of blocks (``text``, ``thinking``, ``tool``), or a mapping with
``error`` (an HTTP status), ``hang`` or ``broken`` (a stream that ends after one delta). The last reply repeats.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

Block = dict[str, Any]
Reply = list[Block] | dict[str, Any]


def text(*pieces: str) -> Block:
    return {"type": "text", "pieces": pieces}


def thinking(*pieces: str) -> Block:
    return {"type": "thinking", "pieces": pieces}


def tool(name: str, **arguments: Any) -> Block:
    return {"type": "tool", "name": name, "input": arguments}


class ScriptedModel:
    """Serves one script at `url`; ``requests`` has the bodies that came, ``headers`` theirs."""

    def __init__(self) -> None:
        self.script: list[Reply] = []
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.hanging = asyncio.Event()
        self.url = ""
        self._calls = 0

    def play(self, *replies: Reply) -> None:
        """Start a new script."""
        self.script = list(replies)
        self.requests.clear()
        self.headers.clear()
        self.hanging.clear()

    @property
    def prompts(self) -> list[str]:
        """The user's texts in the last request."""
        return [
            part if isinstance(part, str) else part.get("text", "")
            for message in self.requests[-1]["messages"]
            if message["role"] == "user"
            for part in (message["content"] if isinstance(message["content"], list) else [message["content"]])
        ]

    @property
    def tools(self) -> set[str]:
        """The names of the tools that the last request offered."""
        return {offered["name"] for offered in self.requests[-1].get("tools", ())}

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if not request.path.endswith("/v1/messages"):
            return web.json_response({"input_tokens": 10})
        self.requests.append(body := await request.json())
        self.headers.append(dict(request.headers))
        reply = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(reply, dict) and "error" in reply:
            error = {"type": reply.get("type", "api_error"), "message": reply["message"]}
            return web.json_response({"type": "error", "error": error}, status=reply["error"])
        if not body.get("stream"):
            assert isinstance(reply, list)
            return web.json_response(self._whole(reply))
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        blocks = reply if isinstance(reply, list) else [reply.get("broken", text("partial"))]
        for event in self._events(blocks):
            await response.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
            if "broken" in reply and event["type"] == "content_block_delta":
                await response.write(
                    b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error"}}\n\n'
                )
                break
            if "hang" in reply and event["type"] == "content_block_delta":
                self.hanging.set()
                await asyncio.Future()
        return response

    def _whole(self, blocks: list[Block]) -> dict[str, Any]:
        self._calls += 1
        content = [{"type": "text", "text": "".join(block["pieces"])} for block in blocks]
        message = {"id": f"msg_{self._calls}", "type": "message", "role": "assistant", "model": "claude-test"}
        usage = {"input_tokens": 7, "output_tokens": 5}
        return message | {"content": content, "stop_reason": "end_turn", "stop_sequence": None, "usage": usage}

    def _events(self, blocks: list[Block]) -> list[dict[str, Any]]:
        self._calls += 1
        usage = {"input_tokens": 7, "output_tokens": 1, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 2}
        message = {"id": f"msg_{self._calls}", "type": "message", "role": "assistant", "model": "claude-test"}
        events: list[dict[str, Any]] = [
            {"type": "message_start", "message": message | {"content": [], "stop_reason": None, "usage": usage}}
        ]
        for index, block in enumerate(blocks):
            start, deltas = _block(block, f"toolu_{self._calls}_{index}")
            events.append({"type": "content_block_start", "index": index, "content_block": start})
            events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
            events.append({"type": "content_block_stop", "index": index})
        reason = "tool_use" if any(block["type"] == "tool" for block in blocks) else "end_turn"
        events.append({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 5}})
        return [*events, {"type": "message_stop"}]


def _block(block: Block, identity: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    match block["type"]:
        case "text":
            return {"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in block["pieces"]]
        case "thinking":
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in block["pieces"]]
            signature = {"type": "signature_delta", "signature": "c2ln"}
            return {"type": "thinking", "thinking": "", "signature": ""}, [*deltas, signature]
        case _:
            start = {"type": "tool_use", "id": identity, "name": block["name"], "input": {}}
            return start, [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]


@asynccontextmanager
async def scripted_model() -> AsyncIterator[ScriptedModel]:
    """A model on a free loopback port, until the end of the block."""
    model = ScriptedModel()
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_route("*", "/{path:.*}", model.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    model.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield model
    finally:
        await runner.cleanup()
