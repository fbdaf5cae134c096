"""The Messages dialect: a whole message, and the events of a streamed one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from stockade_gateway.rehearsal.answer import Answer, fresh

LAST = ("content_block_stop", "message_delta", "message_stop")
"""Events that a broken-off reply never gets to."""


def _blocks(answer: Answer) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if answer.thinking:
        blocks.append({"type": "thinking", "thinking": answer.thinking, "signature": "rehearsal"})
    if answer.text:
        blocks.append({"type": "text", "text": answer.text})
    for call in answer.calls:
        blocks.append({"type": "tool_use", "id": fresh("toolu"), "name": call.name, "input": call.arguments})
    return blocks


def whole(answer: Answer) -> dict[str, Any]:
    """The message as one JSON object."""
    return {
        "id": answer.id.replace("rehearsal", "msg"),
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": _blocks(answer),
        "stop_reason": "tool_use" if answer.calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": answer.input_tokens, "output_tokens": answer.output_tokens},
    }


def stream(answer: Answer) -> Iterator[tuple[str, dict[str, Any]]]:
    """The events of the message, by name."""
    message = whole(answer)
    blocks, stop = message["content"], message["stop_reason"]
    usage = {"input_tokens": answer.input_tokens, "output_tokens": 1}
    yield _event("message_start", message={**message, "content": [], "stop_reason": None, "usage": usage})
    for index, block in enumerate(blocks):
        yield from _block(index, block, answer)
    delta = {"stop_reason": stop, "stop_sequence": None}
    yield _event("message_delta", delta=delta, usage={"output_tokens": answer.output_tokens})
    yield _event("message_stop")


def _block(index: int, block: dict[str, Any], answer: Answer) -> Iterator[tuple[str, dict[str, Any]]]:
    if block["type"] == "text":
        yield _event("content_block_start", index=index, content_block={"type": "text", "text": ""})
        for piece in answer.pieces():
            yield _event("content_block_delta", index=index, delta={"type": "text_delta", "text": piece})
    elif block["type"] == "thinking":
        start = {"type": "thinking", "thinking": "", "signature": ""}
        yield _event("content_block_start", index=index, content_block=start)
        for key in ("thinking", "signature"):
            yield _event("content_block_delta", index=index, delta={"type": f"{key}_delta", key: block[key]})
    else:
        yield _event("content_block_start", index=index, content_block={**block, "input": {}})
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        yield _event("content_block_delta", index=index, delta=delta)
    yield _event("content_block_stop", index=index)


def _event(name: str, **data: Any) -> tuple[str, dict[str, Any]]:
    return name, {"type": name, **data}
