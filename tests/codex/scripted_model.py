"""A scripted model that speaks OpenAI Responses with streaming: exact answers for the engine's tests.

A script is a list of replies. A reply is a list of items (``text``, ``reasoning``, ``function``, ``custom``), or a
mapping with ``error`` (an HTTP status), ``hang`` (a stream that stays open) or ``broken`` (one that ends after a
delta). The last reply repeats.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

Item = dict[str, Any]
Reply = list[Item] | dict[str, Any]


def text(*pieces: str) -> Item:
    return {"type": "message", "pieces": pieces}


def reasoning(*pieces: str) -> Item:
    return {"type": "reasoning", "pieces": pieces}


def function(name: str, **arguments: Any) -> Item:
    return {"type": "function_call", "name": name, "arguments": json.dumps(arguments)}


def shell(command: str) -> Item:
    """A call of the shell tool that Codex offers to a model with function tools."""
    return function("exec_command", cmd=command)


def custom(name: str, text: str) -> Item:
    return {"type": "custom_tool_call", "name": name, "input": text}


class ScriptedModel:
    """Serves one script at `url`; ``requests`` has the bodies that came, ``headers`` theirs, ``paths`` all paths."""

    def __init__(self) -> None:
        self.script: list[Reply] = []
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.asked = asyncio.Event()
        self.hanging = asyncio.Event()
        self.url = ""
        self._calls = 0

    def play(self, *replies: Reply) -> None:
        """Start a new script."""
        self.script = list(replies)
        for record in (self.requests, self.headers, self.paths):
            record.clear()
        self.asked.clear()
        self.hanging.clear()

    @property
    def prompts(self) -> list[str]:
        """The user's texts in the last request."""
        return [
            part["text"]
            for item in self.requests[-1]["input"]
            if item.get("type") == "message" and item["role"] == "user"
            for part in item["content"]
            if "text" in part
        ]

    @property
    def tools(self) -> set[str]:
        """The names of the tools that the last request offered."""
        return {tool.get("name") or tool["type"] for tool in self.requests[-1].get("tools") or ()}

    @property
    def outputs(self) -> list[str]:
        """What the tools gave the model, in the last request."""
        return [str(item["output"]) for item in self.requests[-1]["input"] if item["type"].endswith("_call_output")]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.paths.append(request.path)
        if request.path != "/v1/responses":
            return web.json_response({"error": {"message": "no such path"}}, status=404)
        self.requests.append(await request.json())
        self.headers.append(dict(request.headers))
        self.asked.set()
        reply = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(reply, dict) and "error" in reply:
            error = {"message": reply["message"], "type": "error", "code": reply.get("code"), "param": None}
            return web.json_response({"error": error}, status=reply["error"])
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for event in self._events(reply if isinstance(reply, list) else [text("partial")]):
            await response.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
            if "broken" in reply and event["type"].endswith(".delta"):
                break
            if "hang" in reply and event["type"].endswith(".delta"):
                self.hanging.set()
                await asyncio.Future()
        return response

    def _events(self, items: list[Item]) -> list[dict[str, Any]]:
        self._calls += 1
        response = {"id": f"resp_{self._calls}", "object": "response", "model": "test", "output": []}
        usage = {
            "input_tokens": 10,
            "input_tokens_details": {"cached_tokens": 3},
            "output_tokens": 5,
            "output_tokens_details": {"reasoning_tokens": 1},
            "total_tokens": 15,
        }
        events: list[dict[str, Any]] = [{"type": "response.created", "response": response}]
        for index, item in enumerate(items):
            events += _item(item, index, f"{self._calls}_{index}")
        done = response | {"status": "completed", "usage": usage}
        return [*events, {"type": "response.completed", "response": done}]


def _item(item: Item, index: int, number: str) -> list[dict[str, Any]]:
    kind, identity = item["type"], f"item_{number}"
    place: dict[str, Any] = {"output_index": index, "item_id": identity}
    match kind:
        case "message":
            whole = {"type": kind, "id": identity, "role": "assistant"}
            content = [{"type": "output_text", "text": "".join(item["pieces"]), "annotations": []}]
            begun, done = whole | {"content": []}, whole | {"content": content}
            deltas = [{"type": "response.output_text.delta", "content_index": 0, "delta": p} for p in item["pieces"]]
        case "reasoning":
            whole = {"type": kind, "id": identity}
            summary = [{"type": "summary_text", "text": "".join(item["pieces"])}]
            begun, done = whole | {"summary": []}, whole | {"summary": summary}
            name = "response.reasoning_summary_text.delta"
            deltas = [{"type": name, "summary_index": 0, "delta": piece} for piece in item["pieces"]]
        case _:
            begun = done = {**item, "id": identity, "call_id": f"call_{number}"}
            deltas = []
    return [
        {"type": "response.output_item.added", "output_index": index, "item": begun},
        *({**delta, **place} for delta in deltas),
        {"type": "response.output_item.done", "output_index": index, "item": done},
    ]


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
