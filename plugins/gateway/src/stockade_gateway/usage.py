"""How many tokens a call used: as its answer reports it, and before, as far as its body tells."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

MAX_REPORT = 4 * 1024 * 1024
"""Bytes of one event, or of one whole answer, in which a usage is looked for."""
UNSTATED = 16_384
"""Tokens of output that a call which sets no limit is taken to want."""
MEDIA = 2_000
"""Tokens that an image or a document is taken for; as text it would be hundreds of times as long."""
_MOST = 10**9
_LIMITS = ("max_tokens", "max_output_tokens", "max_completion_tokens")


@dataclass(frozen=True, slots=True)
class Tokens:
    """Of one call. ``input`` are those that no cache was involved in; ``cache_write`` includes ``cache_write_1h``."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cache_write_1h: int = 0

    @property
    def prompt(self) -> int:
        """All that the model read, from a cache or not."""
        return self.input + self.cache_read + self.cache_write


def expected(body: Mapping[str, Any], size: int) -> Tokens:
    """What a call may use: the prompt at four bytes a token, and the output it asks for. ``size`` is in bytes."""
    media = [len(data) for data in _media(body)]
    limit = next((n for name in _LIMITS if (n := _count(body.get(name))) is not None), UNSTATED)
    choices = max(1, _count(body.get("n")) or 1)
    return Tokens(input=(size - sum(media)) // 4 + MEDIA * len(media), output=min(limit * choices, _MOST))


def models(body: Mapping[str, Any]) -> set[str]:
    """Every model that a call names: its own, and those that its tools or fallbacks would ask.

    In whatever case the member is written: some upstreams read it in any.
    """
    named = [body]
    for name in ("tools", "fallbacks"):
        items = body.get(name)
        named += [item for item in items if isinstance(item, Mapping)] if isinstance(items, list) else []
    return {
        value for part in named for name, value in part.items() if name.lower() == "model" and isinstance(value, str)
    }


class Report:
    """Reads the usage out of an answer while it passes, whole or streamed, in whatever dialect."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._whole: bool | None = None
        self._skipping = False
        self._found: dict[str, Any] = {}
        self._final = False

    def feed(self, chunk: bytes) -> None:
        """The next bytes of the answer."""
        if self._whole is None and chunk.strip():
            self._whole = chunk.lstrip()[:1] == b"{"
        if self._whole:
            if len(self._rest) <= MAX_REPORT:
                self._rest += chunk
            return
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            if not self._skipping:
                self._line(bytes(self._rest + line))
            self._rest.clear()
            self._skipping = False
        if not self._skipping:
            self._rest += rest
            self._skipping = len(self._rest) > MAX_REPORT

    def tokens(self) -> Tokens | None:
        """As reported at the end of the answer; ``None`` when the report did not come."""
        if self._whole and len(self._rest) <= MAX_REPORT:
            self._take(bytes(self._rest))
        return _tokens(self._found) if self._final else None

    def _line(self, line: bytes) -> None:
        if line.startswith(b"data:") and b'"usage"' in line:
            self._take(line[5:])

    def _take(self, data: bytes) -> None:
        try:
            event = json.loads(data)
        except (ValueError, RecursionError):
            return
        if not isinstance(event, dict):
            return
        for holder in (event.get("message"), event.get("response"), event):
            usage = holder.get("usage") if isinstance(holder, dict) else None
            if isinstance(usage, dict):
                self._found |= {name: value for name, value in usage.items() if value is not None}
                # Anthropic's first event has the prompt, and of the output only the beginning.
                self._final = event.get("type") != "message_start"


def _tokens(usage: Mapping[str, Any]) -> Tokens:
    """Of a report in Anthropic's, OpenAI's or OpenAI's older words. OpenAI counts what was cached into the prompt."""
    prompt = _count(usage.get("input_tokens", usage.get("prompt_tokens"))) or 0
    output = _count(usage.get("output_tokens", usage.get("completion_tokens"))) or 0
    details = usage.get("input_tokens_details", usage.get("prompt_tokens_details"))
    if isinstance(details, dict) or "prompt_tokens" in usage:
        details = details if isinstance(details, dict) else {}
        read = min(prompt, _count(details.get("cached_tokens")) or 0)
        written = min(prompt - read, _count(details.get("cache_write_tokens")) or 0)
        return Tokens(prompt - read - written, output, read, written)
    written = _count(usage.get("cache_creation_input_tokens")) or 0
    lasting = usage.get("cache_creation")
    hour = _count(lasting.get("ephemeral_1h_input_tokens")) or 0 if isinstance(lasting, dict) else 0
    read = _count(usage.get("cache_read_input_tokens")) or 0
    return Tokens(prompt, output, read, written, min(hour, written))


def _count(value: object) -> int | None:
    return min(value, _MOST) if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _media(body: Mapping[str, Any]) -> Iterator[str]:
    """Everything in a body that is data in base64."""
    stack: list[Any] = [body]
    while stack:
        part = stack.pop()
        if isinstance(part, dict):
            if part.get("type") == "base64" and isinstance(part.get("data"), str):
                yield part["data"]
            for name, value in part.items():
                if name in ("url", "image_url", "file_data") and isinstance(value, str) and value.startswith("data:"):
                    yield value
                elif isinstance(value, (dict, list)):
                    stack.append(value)
        elif isinstance(part, list):
            stack += [item for item in part if isinstance(item, (dict, list))]
