"""The Responses dialect: a whole response, and the events of a streamed one."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

from stockade_gateway.rehearsal.answer import Answer, fresh

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
    for call in answer.calls:
        made = {"type": "function_call", "id": fresh("fc"), "call_id": fresh("call"), "status": "completed"}
        items.append({**made, "name": call.name, "arguments": json.dumps(call.arguments)})
    return items


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


def stream(answer: Answer) -> Iterator[tuple[str, dict[str, Any]]]:
    """The events of the response, by name, numbered."""
    for number, (name, data) in enumerate(_events(answer)):
        yield name, {"type": name, "sequence_number": number, **data}


def _events(answer: Answer) -> Iterator[tuple[str, dict[str, Any]]]:
    items = _items(answer)
    yield "response.created", {"response": _response(answer, "in_progress", [])}
    for index, item in enumerate(items):
        place = {"output_index": index, "item_id": item["id"]}
        started = {**item, "status": "in_progress"}
        if item["type"] == "message":
            started["content"] = []
        yield "response.output_item.added", {"output_index": index, "item": started}
        if item["type"] == "message":
            part = {"type": "output_text", "text": "", "annotations": []}
            yield "response.content_part.added", {**place, "content_index": 0, "part": part}
            for piece in answer.pieces():
                yield "response.output_text.delta", {**place, "content_index": 0, "delta": piece}
            yield "response.output_text.done", {**place, "content_index": 0, "text": answer.text}
            yield "response.content_part.done", {**place, "content_index": 0, "part": item["content"][0]}
        elif item["type"] == "reasoning":
            yield "response.reasoning_summary_text.delta", {**place, "summary_index": 0, "delta": answer.thinking}
            yield "response.reasoning_summary_text.done", {**place, "summary_index": 0, "text": answer.thinking}
        else:
            yield "response.function_call_arguments.delta", {**place, "delta": item["arguments"]}
            yield "response.function_call_arguments.done", {**place, "arguments": item["arguments"]}
        yield "response.output_item.done", {"output_index": index, "item": item}
    yield "response.completed", {"response": _response(answer, "completed", items)}
