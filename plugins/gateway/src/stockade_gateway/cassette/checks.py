"""What a request must have in common with the recorded one, in words that people can compare.

Compared are the path, the model, whether it is streamed, the tools that are offered, and what is new in the
conversation since the model's last word: the kinds of its parts, the texts, and whether a tool failed. What differs
from run to run is left out: dates and other numbers, paths, ids, blocks that a harness puts into tags, and
what a tool printed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Any

from stockade_gateway.cassette.secrets import MASK, Mask
from stockade_gateway.rehearsal.offers import offered

Check = dict[str, Any]
"""Comparable with ``==``, and JSON."""

LONGEST = 160
"""Characters of a text that are kept; the rest is a digest."""

_TAGGED = re.compile(r"\A\s*<([A-Za-z][\w-]*)[^>]*>.*</\1>\s*\Z", re.DOTALL)
_VOLATILE = (
    (re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|\b(?=\w*\d)[0-9a-fA-F]{8,}\b"), "#"),
    (re.compile(r"(?<![\w/.])~?/[^\s\"'`<>,;:]+"), "/…"),
    (re.compile(r"\d+"), "0"),
    (re.compile(r"\s+"), " "),
)


def check(path: str, body: dict[str, Any], mask: Mask) -> Check:
    """The check of a request. Any body will do. ``mask`` comes first: half a secret is still one."""
    body = mask.value({name: body[name] for name in ("model", "stream", "tools", "messages", "input") if name in body})
    return {
        "path": path,
        "model": body.get("model"),
        "stream": bool(body.get("stream")),
        "tools": sorted(offered(body)),
        "new": list(_new(body)),
    }


def difference(recorded: Check, asked: Check) -> str:
    """The first difference, in words; empty for none."""
    for name in ("path", "model", "stream", "tools"):
        if recorded.get(name) != asked[name]:
            return f"{name}: recorded {_shown(recorded.get(name))}, asked for {_shown(asked[name])}"
    old, new = recorded.get("new", []), asked["new"]
    for place in range(max(len(old), len(new))):
        was = old[place] if place < len(old) else "nothing"
        now = new[place] if place < len(new) else "nothing"
        if was != now and not _masked(was, now):
            return f"part {place + 1} of what is new in the conversation: recorded {_shown(was)}, sent {_shown(now)}"
    return ""


def _masked(recorded: str, sent: str) -> bool:
    """Whether only what was masked is different: another machine has other secrets."""
    parts = recorded.split(MASK)
    return len(parts) > 1 and re.fullmatch(".*".join(map(re.escape, parts)), sent) is not None


def _shown(value: object) -> str:
    return value if isinstance(value, str) else repr(value)


def _new(body: dict[str, Any]) -> Iterator[str]:
    """A line for each part after the model's last one."""
    items = body.get("messages", body.get("input"))
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    items = [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
    last = max((place for place, item in enumerate(items) if _is_models(item)), default=-1)
    for item in items[last + 1 :]:
        yield from _lines(item)


def _is_models(item: dict[str, Any]) -> bool:
    kind = str(item.get("type", ""))
    return item.get("role") == "assistant" or kind == "reasoning" or kind.endswith("_call")


def _lines(item: dict[str, Any]) -> Iterator[str]:
    role = str(item.get("role") or "")
    if item.get("role") == "tool" or str(item.get("type", "")).endswith("_output"):
        yield "the result of a tool"
        return
    content = item.get("content")
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    for part in content if isinstance(content, list) else ():
        if not isinstance(part, dict):
            continue
        kind, text = str(part.get("type", "")), part.get("text")
        if kind == "tool_result":
            yield "the failure of a tool" if part.get("is_error") else "the result of a tool"
        elif isinstance(text, str):
            if not _TAGGED.match(text):
                yield f"{role} says: {_stable(text)}"
        else:
            yield f"{role} gives: {kind}"


def _stable(text: str) -> str:
    for pattern, instead in _VOLATILE:
        text = pattern.sub(instead, text)
    text = text.strip()
    if len(text) <= LONGEST:
        return text
    return (
        f"{text[:LONGEST]}… ({len(text)} characters, {hashlib.sha256(text.encode(errors='replace')).hexdigest()[:12]})"
    )
