"""The Chat Completions dialect: a whole completion, and the chunks of a streamed one."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

from stockade_gateway.rehearsal.answer import Answer, fresh
from stockade_gateway.rehearsal.offers import ToolCall

LAST = ("finish", "usage")
"""Chunks that a broken-off reply never gets to."""
DONE = b"data: [DONE]\n\n"
"""The end of a stream."""


def wants_usage(body: dict[str, Any]) -> bool:
    """Whether a streamed completion is to end with the usage."""
    options = body.get("stream_options")
    return isinstance(options, dict) and options.get("include_usage") is True


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": json.dumps(call.arguments)}
    return {"id": fresh("call"), "type": "function", "function": function}


def _usage(answer: Answer) -> dict[str, Any]:
    return {
        "prompt_tokens": answer.input_tokens,
        "completion_tokens": answer.output_tokens,
        "total_tokens": answer.input_tokens + answer.output_tokens,
    }


def _head(answer: Answer, kind: str) -> dict[str, Any]:
    created = int(time.time())
    return {"id": answer.id.replace("rehearsal", "chatcmpl"), "object": kind, "created": created, "model": answer.model}


def whole(answer: Answer) -> dict[str, Any]:
    """The completion as one JSON object."""
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or None}
    if answer.thinking:
        message["reasoning_content"] = answer.thinking
    if answer.calls:
        message["tool_calls"] = [_call(call) for call in answer.calls]
    finish = "tool_calls" if answer.calls else "stop"
    choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
    return {**_head(answer, "chat.completion"), "choices": [choice], "usage": _usage(answer)}


def stream(answer: Answer) -> Iterator[tuple[str, dict[str, Any]]]:
    """The chunks of the completion, with a name for each that is not sent."""
    head = _head(answer, "chat.completion.chunk")

    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], "usage": None}

    yield "role", chunk({"role": "assistant", "content": ""})
    if answer.thinking:
        yield "thinking", chunk({"reasoning_content": answer.thinking})
    for piece in answer.pieces():
        yield "text", chunk({"content": piece})
    for index, call in enumerate(_call(call) for call in answer.calls):
        begun = {**call, "index": index, "function": {"name": call["function"]["name"], "arguments": ""}}
        yield "call", chunk({"tool_calls": [begun]})
        rest = {"index": index, "function": {"arguments": call["function"]["arguments"]}}
        yield "call", chunk({"tool_calls": [rest]})
    yield "finish", chunk({}, "tool_calls" if answer.calls else "stop")
    yield "usage", {**head, "choices": [], "usage": _usage(answer)}
