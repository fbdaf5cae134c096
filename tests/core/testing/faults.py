"""Marks deliberately faulty plugins with the one test of their kit that finds them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TypeVar

T = TypeVar("T")


def fails(test: str) -> Callable[[T], T]:
    """The kit's only test that fails for this."""

    def mark(plugin: T) -> T:
        plugin.__fails__ = test  # type: ignore[attr-defined]
        return plugin

    return mark


def faulty(module: ModuleType) -> Iterator[tuple[str, type, str]]:
    """Name, class and test of each faulty plugin of a module."""
    for name, value in vars(module).items():
        if "__fails__" in vars(value) if isinstance(value, type) else False:
            yield name, value, value.__fails__
