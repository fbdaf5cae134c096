"""Reads a call's body: one JSON object that everybody understands alike, with nothing in it to be fetched."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

_FETCHED = ("image_url", "file_url", "video_url", "audio_url")
"""Members of a part that vendors and their look-alikes fetch, as an address or as an object with one."""
_INNER = ("content", "source", "output")
"""Members of an item that hold further parts. A tool call's arguments are data, and not among them."""


class BadBody(Exception):
    """What is wrong with a body; the message is for the caller, and repeats nothing of it."""


def read(data: bytes) -> dict[str, Any]:
    """The object in ``data``. Raises `BadBody`.

    A member that is there twice is refused: what was checked might not be what the upstream takes. So is
    another encoding than UTF-8, which Python would guess.
    """
    try:
        parsed = _DECODER.decode(data.decode())
    except (ValueError, RecursionError):
        raise BadBody("the request's body is not a JSON object") from None
    if not isinstance(parsed, dict):
        raise BadBody("the request's body is not a JSON object")
    return parsed


def model_of(body: dict[str, Any]) -> str:
    """The model that is asked for. Raises `BadBody`."""
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise BadBody("the request names no model")
    return model


def refuse_remote(data: bytes, body: dict[str, Any]) -> None:
    """Raises `BadBody` when the upstream would fetch something: a way out of the sandbox that nobody opened.

    An upstream on the host's own network could even be sent to its neighbours.
    """
    if b"url" in data or b"\\u00" in data:  # else no member can have such a name
        for name in _remote(body):
            raise BadBody(
                f"the request names an address to be fetched ({name}), which is not passed on: send the content "
                "itself (base64, or a data: URL); the setting remote_content of the upstream would allow it"
            )


def _remote(body: dict[str, Any]) -> Iterator[str]:
    waiting: list[Any] = [body.get("messages"), body.get("input"), body.get("system")]
    while waiting:  # without recursion: how deep a body nests, its sender decides
        item = waiting.pop()
        if isinstance(item, list):
            waiting.extend(item)
        elif isinstance(item, dict):
            yield from (name for name in _FETCHED if _is_remote(item.get(name)))
            if item.get("type") == "url" and "url" in item:
                yield "source.url"
            waiting.extend(item[name] for name in _INNER if isinstance(item.get(name), (list, dict)))
    for name, address in (("tools", "server_url"), ("mcp_servers", "url")):
        members = body.get(name)
        yield from (
            f"{name}.{address}"
            for member in (members if isinstance(members, list) else ())
            if isinstance(member, dict) and member.get(address)
        )


def _is_remote(value: Any) -> bool:
    if isinstance(value, dict):
        value = value.get("url")
    return isinstance(value, str) and bool(value) and not value.lstrip().lower().startswith("data:")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a member is there twice")
    return made


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_no_number)
