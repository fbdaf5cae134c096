"""Values that must not be seen again: removed from events, also when split over several (F35)."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

from stockade.model.events import Event, Text, Thinking

MASK = "[redacted]"
SHORTEST = 8
"""Characters; shorter values would mask ordinary text."""


class Redactor:
    """For one turn. ``feed`` every event in order, then ``flush`` before the last."""

    def __init__(self, secrets: Collection[str]) -> None:
        self._secrets = sorted((s for s in secrets if len(s) >= SHORTEST), key=len, reverse=True)
        self._held: Text | Thinking | None = None

    def feed(self, event: Event) -> list[Event]:
        """The events that may be shown now; the end of a delta that might begin a secret is held back."""
        if not self._secrets:
            return [event]
        if not isinstance(event, (Text, Thinking)):
            return [*self.flush(), self._clean_event(event)]
        ready: list[Event] = []
        text = event.text
        if self._held is not None:
            if type(self._held) is type(event):
                text, self._held = self._held.text + text, None
            else:
                ready = self.flush()
        text = self._clean(text)
        keep = self._possible_start(text)
        if keep:
            self._held = dataclasses.replace(event, text=text[-keep:])
            text = text[:-keep]
        return [*ready, dataclasses.replace(event, text=text)] if text else ready

    def flush(self) -> list[Event]:
        """What was held back."""
        held, self._held = self._held, None
        return [held] if held is not None else []

    def clean(self, value: Any) -> Any:
        """``value`` (JSON) with every secret masked, at any depth, in keys too."""
        if isinstance(value, str):
            return self._clean(value)
        if isinstance(value, dict):
            return {self.clean(k): self.clean(v) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.clean(v) for v in value]
        return value

    def _clean(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return text

    def _clean_event(self, event: Event) -> Event:
        changes: dict[str, Any] = {}
        for name in event.__slots__:
            value = getattr(event, name)
            if dataclasses.is_dataclass(value) and not isinstance(value, type):
                texts = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
                changes[name] = dataclasses.replace(
                    value, **{n: self._clean(v) for n, v in texts.items() if isinstance(v, str)}
                )
            elif name != "kind":
                changes[name] = self.clean(value)
        return dataclasses.replace(event, **changes)

    def _possible_start(self, text: str) -> int:
        longest = 0
        for secret in self._secrets:
            for size in range(min(len(secret) - 1, len(text)), longest, -1):
                if text.endswith(secret[:size]):
                    longest = size
                    break
        return longest
