"""The Responses dialect: a whole response, and the events of a streamed one."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

from stockade_gateway.rehearsal.answer import Answer, fresh
from stockade_gateway.rehearsal.offers import ToolCall

Event = tuple[str, dict[str, Any]]

LAST = ("response.output_text.done", "response.output_item.done", "response.completed")
"""Events that a broken-off reply never gets to."""


def _items(answer: Answer) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if answer.thinking:
        summary = [{"type": "summary_text", "text": answer.thinking}]
        items.append({"type": "reasoning", "id": fresh("rs"), "summary": summary})
    if answer.text:
        content = [{"type": "output_text", "text": answer.text, "annotations": []}]
        message = {"type": "message", "id": fresh("msg"), "role": "assistant", "status": "completed"}
        items.append({**message, "content": content})
    return items + [_call(call) for call in answer.calls]


def _call(call: ToolCall) -> dict[str, Any]:
    made = {"call_id": fresh("call"), "status": "completed"}
    if call.kind == "custom":
        return {"type": "custom_tool_call", "id": fresh("ctc"), **made, "name": call.name, **call.arguments}
    if call.kind == "local_shell":
        return {"type": "local_shell_call", "id": fresh("lsh"), **made, **call.arguments}
    arguments = json.dumps(call.arguments)
    return {"type": "function_call", "id": fresh("fc"), **made, "name": call.name, "arguments": arguments}


def _response(answer: Answer, status: str, items: list[dict[str, Any]]) -> dict[str, Any]:
    usage = {
        "input_tokens": answer.input_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": answer.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": answer.input_tokens + answer.output_tokens,
    }
    return {
        "id": answer.id.replace("rehearsal", "resp"),
        "object": "response",
        "created_at": int(time.time()),
        "status": status,
        "model": answer.model,
        "output": items,
        "usage": usage if status == "completed" else None,
        "error": None,
    }


def whole(answer: Answer) -> dict[str, Any]:
    """The response as one JSON object."""
    return _response(answer, "completed", _items(answer))


def stream(answer: Answer) -> Iterator[Event]:
    """The events of the response, by name, numbered."""
    for number, (name, data) in enumerate(_events(answer)):
        yield name, {"type": name, "sequence_number": number, **data}


def _events(answer: Answer) -> Iterator[Event]:
    items = _items(answer)
    yield "response.created", {"response": _response(answer, "in_progress", [])}
    for index, item in enumerate(items):
        place = {"output_index": index, "item_id": item["id"]}
        started = {**item, "status": "in_progress", **_BEGUN.get(item["type"], {})}
        yield "response.output_item.added", {"output_index": index, "item": started}
        yield from _parts(item, place, answer)
        yield "response.output_item.done", {"output_index": index, "item": item}
    yield "response.completed", {"response": _response(answer, "completed", items)}


_BEGUN: dict[str, dict[str, Any]] = {
    "message": {"content": []},
    "reasoning": {"summary": []},
    "function_call": {"arguments": ""},
    "custom_tool_call": {"input": ""},
}
"""What of an item comes later, in its parts."""


def _parts(item: dict[str, Any], place: dict[str, Any], answer: Answer) -> Iterator[Event]:
    """What comes between an item's beginning and its end."""
    if item["type"] == "message":
        place = {**place, "content_index": 0}
        part = {"type": "output_text", "text": "", "annotations": []}
        yield "response.content_part.added", {**place, "part": part}
        for piece in answer.pieces():
            yield "response.output_text.delta", {**place, "delta": piece}
        yield "response.output_text.done", {**place, "text": answer.text}
        yield "response.content_part.done", {**place, "part": item["content"][0]}
    elif item["type"] == "reasoning":
        place = {**place, "summary_index": 0}
        yield "response.reasoning_summary_part.added", {**place, "part": {"type": "summary_text", "text": ""}}
        yield "response.reasoning_summary_text.delta", {**place, "delta": answer.thinking}
        yield "response.reasoning_summary_text.done", {**place, "text": answer.thinking}
        yield "response.reasoning_summary_part.done", {**place, "part": item["summary"][0]}
    elif item["type"] == "function_call":
        yield "response.function_call_arguments.delta", {**place, "delta": item["arguments"]}
        yield "response.function_call_arguments.done", {**place, "arguments": item["arguments"]}
    elif item["type"] == "custom_tool_call":
        yield "response.custom_tool_call_input.delta", {**place, "delta": item["input"]}
        yield "response.custom_tool_call_input.done", {**place, "input": item["input"]}
