"""Plays a script: keeps each conversation's place in it, and answers in the caller's dialect.

The place is kept for each sandbox and session, not read off the history: an error or a broken
connection leaves no trace there, yet has been played; and an agent may shorten its history. So a
request that is sent again gets the next item, which is what scripts of errors want. The next turn of
the session goes on where the last one ended; a session in a new sandbox starts the script anew.
Requests that offer no tools are an agent's side questions (a title, a summary), and take no item; nor
do those that count tokens or list models.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from aiohttp import web

from stockade.contracts.route import Origin
from stockade_gateway import dialects
from stockade_gateway.rehearsal import anthropic, chat, openai
from stockade_gateway.rehearsal.answer import Answer
from stockade_gateway.rehearsal.offers import choose, offered
from stockade_gateway.rehearsal.script import Reply, Script
from stockade_gateway.taps import Tap
from stockade_gateway.transport import break_off

MAX_PLACES = 4096
"""Conversations whose place is remembered."""


class Stage:
    """One script for all conversations of a kernel."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._places: OrderedDict[tuple[str, str], int] = OrderedDict()

    async def perform(
        self, request: web.BaseRequest, dialect: str, body: dict[str, Any], origin: Origin, taps: Sequence[Tap] = ()
    ) -> web.StreamResponse:
        """Answer one request. ``taps`` see what is streamed; a whole answer is in what this returns."""
        size = len(json.dumps(body)) // 4
        if request.path.endswith("/count_tokens"):
            return web.json_response({"input_tokens": size})
        if request.path == "/v1/models":
            if dialect == "openai":
                return web.json_response({"object": "list", "data": [{"id": "rehearsal", "object": "model"}]})
            return web.json_response({"data": [{"id": "rehearsal", "type": "model"}], "has_more": False})
        tools = offered(body)
        reply = self._next(origin) if tools else self._script.end
        if reply.delay:
            await asyncio.sleep(reply.delay)
        if reply.fault is not None:
            return dialects.error(dialect, reply.fault.status, reply.fault.message)
        answer = self._answer(reply, tools, body, size)
        speak: Any = anthropic if dialect == "anthropic" else openai
        if request.path == "/v1/chat/completions":
            speak = chat
        if not body.get("stream"):
            if reply.disconnect and request.transport is not None:
                request.transport.abort()
            return web.json_response(speak.whole(answer))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
        for tap in taps:
            tap.head(response.status, response.headers)
        await response.prepare(request)
        for name, data in speak.stream(answer):
            if reply.disconnect and name in speak.LAST:
                break
            if name == "usage" and not chat.wants_usage(body):
                continue
            event = f"event: {name}\n" if speak is not chat else ""
            chunk = f"{event}data: {json.dumps(data)}\n\n".encode()
            for tap in taps:
                tap.data(chunk)
            await response.write(chunk)
        if reply.disconnect:
            break_off(request)
            return response
        if speak is chat:
            await response.write(chat.DONE)
        await response.write_eof()
        return response

    def _next(self, origin: Origin) -> Reply:
        key = (origin.sandbox, origin.session)
        place = self._places.pop(key, 0)
        self._places[key] = place + 1
        if len(self._places) > MAX_PLACES:
            self._places.popitem(last=False)
        return self._script.replies[place] if place < len(self._script.replies) else self._script.end

    @staticmethod
    def _answer(reply: Reply, tools: dict[str, dict[str, Any]], body: dict[str, Any], size: int) -> Answer:
        calls = [choose(call, tools, body) for call in reply.calls]
        text = reply.text
        if None in calls:
            text = f"The rehearsal needs a tool that is not offered; there are: {', '.join(sorted(tools))}"
        return Answer(
            model=str(body.get("model", "rehearsal")),
            text=text,
            thinking=reply.thinking,
            calls=tuple(c for c in calls if c is not None),
            input_tokens=size,
        )
