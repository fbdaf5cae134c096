"""Messages that are deltas from one bridge and cumulative snapshots from another, made deltas (L60)."""

from __future__ import annotations


class Deltas:
    """The text of one turn. Which of the two the bridge sends is decided once, by its first two or three messages.

    A second message that begins with all of the first may be a snapshot, or a delta that happens to ("1", "10"):
    it is held back until the next one, or the end, decides.
    """

    def __init__(self) -> None:
        self._snapshots: bool | None = None
        self._seen = ""
        self._held = ""

    def add(self, text: str) -> str:
        """What is new in the next message; empty while it is held back."""
        if self._held:
            held, self._held = self._held, ""
            self._snapshots = text.startswith(held)
            return self._new(held) + self._new(text)
        if self._snapshots is None and self._seen:
            if text.startswith(self._seen):
                self._held = text
                return ""
            self._snapshots = False
        return self._new(text)

    def end(self, whole: str = "") -> str:
        """What was held back, at the end of a part of the answer. ``whole`` is the final text, where it is known."""
        held, self._held = self._held, ""
        if held:
            self._snapshots = whole == held
        rest = self._new(held)
        self._seen = ""
        return rest

    def _new(self, text: str) -> str:
        if self._snapshots and text.startswith(self._seen):
            new, self._seen = text[len(self._seen) :], text
            return new
        self._seen = text if self._snapshots else self._seen + text
        return text
