"""What may look on while an answer passes: a meter, a recorder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping


class Tap(ABC):
    """Sees one answer of an upstream. Called in the event loop for every chunk: be quick, never raise, change nothing.

    ``head`` once, ``data`` any number of times, ``end`` once. None of them when the upstream was not
    reached, or answered with what is not passed on. Of a rehearsal only what is streamed is shown, without an end.
    """

    @abstractmethod
    def head(self, status: int, headers: Mapping[str, str]) -> None:
        """The upstream has answered; ``headers`` are those that the caller gets."""

    @abstractmethod
    def data(self, chunk: bytes) -> None:
        """Bytes as they came, before they are passed on."""

    @abstractmethod
    def end(self, whole: bool) -> None:
        """There is no more. ``whole`` is false when the upstream broke off, or the caller left."""
