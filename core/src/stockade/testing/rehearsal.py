"""A scripted model behind an engine under test. Without pytest, so that plugins can offer one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

from stockade.model.turn import Endpoint


@dataclass
class Rehearsal:
    """Where the engine finds the model, and what the model was asked.

    ``calls`` grows by one for each model call that took an item of the script, before it is answered: the
    request as the agent sent it, as JSON data. The kit counts them, and looks for texts in them.
    """

    routes: Mapping[str, Endpoint]
    calls: list[object] = field(default_factory=list)

    def mentions(self, text: str, call: int = -1) -> int:
        """How many of the strings in this call (the last one) have ``text`` in them; 0 without such a call."""
        try:
            return sum(text in said for said in texts(self.calls[call]))
        except IndexError:
            return 0


Rehearse = Callable[[Sequence[Mapping[str, Any]]], AbstractAsyncContextManager[Rehearsal]]
"""Serves a script until the context is left. An item is one reply of the model, as in a rehearsal's YAML file:

``{"text": …}``, ``{"shell": command}``, ``{"write": {"path": …, "content": …}}``, ``{"tools": [shells and writes]}``,
``{"error": {"status": 401}}``; ``{"thinking": …}`` and ``{"delay": seconds}`` belong to the item after them. After
the last item the model answers with the last text.
"""


def texts(value: object) -> Iterator[str]:
    """Every string in JSON data, names of members left out."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping):
            waiting.extend(item.values())
        elif isinstance(item, (list, tuple)):
            waiting.extend(item)
