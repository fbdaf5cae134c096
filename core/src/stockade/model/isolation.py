"""What a driver attests about a sandbox. Never stated by a caller or by the sandbox itself (L37)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Tier = Literal[0, 1, 2]


@dataclass(frozen=True, slots=True)
class Isolation:
    """An attestation: each field says what the code does, not what it intends (L81).

    ``tier``: 0 no boundary, 1 contained with a stated weakness, 2 contained.
    ``processes``: how the process tree is held (``"pid-namespace"``, ``"subreaper"``, ``"container"`` …).
    ``filesystem``, ``network``, ``user``, ``resources``: short words a person can read in a table.
    ``nested``: whether a further user namespace can be made inside (L41).
    ``provider_key``: names of the model providers' variables that are inside (L44, L80).
    ``image``: what the sandbox was made from, by digest; empty where there is no image.
    """

    tier: Tier
    processes: str
    filesystem: str
    network: str
    user: str
    resources: str
    nested: bool
    provider_key: tuple[str, ...] = ()
    image: str = ""
