"""What a benchmark measured, and whether it is within its bound."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Series:
    """Samples of one thing, in seconds."""

    samples: Sequence[float]

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def p99(self) -> float:
        return sorted(self.samples)[min(len(self.samples) - 1, int(len(self.samples) * 0.99))]

    def __str__(self) -> str:
        return f"{self.median * 1000:9.1f} ms median  {self.p99 * 1000:9.1f} ms p99  ({len(self.samples)})"


@dataclass(frozen=True)
class Bound:
    """``value`` must be at most ``limit``, or at least with ``least``. ``unit`` is for people."""

    name: str
    value: float
    limit: float
    unit: str = "x"
    least: bool = False

    @property
    def met(self) -> bool:
        return self.value >= self.limit if self.least else self.value <= self.limit

    def __str__(self) -> str:
        sign = ">=" if self.least else "<="
        return f"{'ok  ' if self.met else 'MISS'}  {self.name}: {self.value:,.2f} {self.unit} ({sign} {self.limit:,g})"


def row(name: str, value: object) -> None:
    """One line of a table, at once: some benchmarks take a while."""
    print(f"  {name:<44} {value}", flush=True)
