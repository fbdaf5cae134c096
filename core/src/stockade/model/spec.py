"""What the kernel asks a driver for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """One sandbox to be made.

    ``id`` is unique for ever, ``key`` names what may be reused. ``state_dir`` is the one directory that
    the sandbox may write besides ``workspace`` (L22) and outlives it; ``run_dir`` is gone with it.
    ``environment`` is final (L38): the driver adds only what its own mechanism needs. ``deadline`` is
    in seconds since the epoch (``time.time``), ``lease`` in seconds: the longest silence of the kernel
    that the inside program survives. ``inside_args`` are the arguments for ``python -m stockade.inside``
    besides the channel's; ``add_dirs`` are further directories that the agent may use.
    """

    id: str
    key: str
    state_dir: Path
    run_dir: Path
    workspace: Path
    environment: Mapping[str, str]
    deadline: float
    lease: float
    add_dirs: tuple[Path, ...] = ()
    preload: str = ""
    provider_keys: tuple[str, ...] = ()
    options: Mapping[str, object] = field(default_factory=dict)

    def inside_args(self, *, tier: int, state_dir: str = "", workspace: str = "") -> list[str]:
        """Arguments of the inside program; a driver that mounts elsewhere names its own paths (L24)."""
        args = [
            "--id", self.id,
            "--state-dir", state_dir or str(self.state_dir),
            "--workspace", workspace or str(self.workspace),
            "--deadline", repr(self.deadline),
            "--lease", repr(self.lease),
            "--tier", str(tier),
        ]  # fmt: skip
        return [*args, "--preload", self.preload] if self.preload else args
