"""One reply of the scripted model, before it is put into a dialect."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from stockade_gateway.rehearsal.offers import ToolCall


def fresh(prefix: str) -> str:
    """An id as vendors make them."""
    return f"{prefix}_{secrets.token_hex(12)}"


@dataclass(frozen=True, slots=True)
class Answer:
    """Text, thinking and calls with ids; tokens are estimated at four characters each."""

    model: str
    text: str
    thinking: str
    calls: tuple[ToolCall, ...]
    input_tokens: int
    id: str = field(default_factory=lambda: fresh("rehearsal"))

    @property
    def output_tokens(self) -> int:
        """An estimate."""
        return 1 + (len(self.text) + len(self.thinking) + sum(len(str(c.arguments)) for c in self.calls)) // 4

    def pieces(self) -> list[str]:
        """The text in words, so that streaming can be seen."""
        return [self.text[i : i + 12] for i in range(0, len(self.text), 12)]
