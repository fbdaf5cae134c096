"""Takes secrets out of what is recorded, also where a stream has them in pieces."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from stockade.contracts.route import Origin

MASK = "[redacted]"
SHORTEST = 8
"""Characters; shorter values would mask ordinary text."""

_NAME = re.compile(r"(?:^|_)(?:API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|AUTH)(?:_|$)", re.I)
_DELTA = re.compile(r"^data:[ ]?(.*)$", re.MULTILINE)


def of_environment(host: Mapping[str, str]) -> set[str]:
    """The values of variables whose names say that they are secret."""
    return {value for name, value in host.items() if _NAME.search(name)}


def of_origin(origin: Origin) -> set[str]:
    """What its caller holds, and what the kernel holds for it."""
    return {origin.key} | ({origin.token.value} if origin.token is not None else set())


class Mask:
    """Removes these values from texts, as they are and as JSON writes them."""

    def __init__(self, secrets: Collection[str]) -> None:
        forms: set[str] = set()
        for secret in secrets:
            if len(secret) >= SHORTEST:
                once = json.dumps(secret)[1:-1]
                forms |= {secret, once, json.dumps(once)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
        ordered = sorted(forms, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def text(self, text: str) -> str:
        """``text`` without them."""
        return self._pattern.sub(MASK, text) if self._pattern else text

    def value(self, value: Any) -> Any:
        """JSON without them, at any depth."""
        try:
            return json.loads(self.text(json.dumps(value)))
        except (ValueError, RecursionError):  # a secret that looks like JSON; a value too deep to be written
            return MASK

    def events(self, events: list[str]) -> list[str]:
        """The events of a stream without them, also where several deltas in a row make up a secret."""
        if self._pattern is None:
            return events
        events = [self.text(event) for event in events]
        pieces: dict[str, list[tuple[int, list[Any], str]]] = {}
        parsed: dict[int, Any] = {}
        for number, event in enumerate(events):
            data = _data(event)
            for path, text in _deltas(data):
                parsed[number] = data
                pieces.setdefault(_stream_of(data, path), []).append((number, path, text))
        for found in pieces.values():
            whole = "".join(text for _, _, text in found)
            if not self._pattern.search(whole):
                continue
            first = True
            for number, path, _ in found:  # the masked text goes into the first piece
                _put(parsed[number], path, self.text(whole) if first else "")
                events[number] = _with_data(events[number], parsed[number])
                first = False
        return events


def _data(event: str) -> Any:
    """What an event carries; ``None`` when that is no JSON object."""
    try:
        data = json.loads("\n".join(_DELTA.findall(event)))
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _with_data(event: str, data: Any) -> str:
    head = "".join(line for line in event.splitlines(keepends=True) if line.startswith(("event:", "id:")))
    return f"{head}data: {json.dumps(data, ensure_ascii=False)}\n\n"


def _deltas(data: Any) -> list[tuple[list[Any], str]]:
    """The places of a piece of text in an event of any of the dialects, and the texts."""
    if not isinstance(data, dict):
        return []
    roots: list[list[Any]] = [["delta"]]
    choices = data.get("choices")
    roots += [["choices", place, "delta"] for place in range(len(choices))] if isinstance(choices, list) else []
    found: list[tuple[list[Any], str]] = []
    for root in roots:
        waiting = [root]
        while waiting:
            path = waiting.pop()
            value = _get(data, path)
            if isinstance(value, str) and path[-1] not in ("type", "role", "id", "name", "signature"):
                found.append((path, value))
            elif isinstance(value, dict):
                waiting += [[*path, key] for key in value]
            elif isinstance(value, list):
                waiting += [[*path, place] for place in range(len(value))]
    return found


def _stream_of(data: dict[str, Any], path: list[Any]) -> str:
    """Which text a piece belongs to."""
    names = [data.get(name) for name in ("type", "index", "output_index", "item_id", "content_index")]
    return json.dumps([names, path])


def _get(value: Any, path: list[Any]) -> Any:
    for key in path:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def _put(value: Any, path: list[Any], text: str) -> None:
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = text
