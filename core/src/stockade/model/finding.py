"""One thing that ``stockade doctor`` found out about this host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Finding:
    """``fail`` is for what nothing works without, ``warn`` for what some things need.

    ``detail`` says what was found, ``fix`` what to do about it (empty for ``ok``). Never a secret's value.
    """

    name: str
    status: Literal["ok", "warn", "fail"]
    detail: str
    fix: str = ""
