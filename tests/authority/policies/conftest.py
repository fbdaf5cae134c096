"""Kernels on the in-memory driver with the authority's hooks, and lease servers on loopback."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from stockade import Kernel
from stockade.settings import Settings
from stockade.testing.fakes import FakeTurn, MemoryDriver
from stockade_authority.keys import Keyring
from stockade_authority.policies.config import LeaseOptions
from stockade_authority.policies.lease.grants import Grants
from stockade_authority.policies.lease.server import LeaseServer

ENTRY_POINTS = """\
[stockade.drivers]
memory = stockade.testing.fakes:MemoryDriver
[stockade.engines]
null = stockade.testing.fakes:NullEngine
[stockade.plugins]
authority = stockade_authority.plugin
"""

Opened = Callable[..., contextlib.AbstractAsyncContextManager[Kernel]]


@pytest.fixture
def only_authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing but the authority's hooks, a driver in memory and an engine; gives the state root."""
    info = tmp_path / "site" / "authority_bench-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: authority-bench\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setenv("STOCKADE_PLUGINS", "authority-bench")
    monkeypatch.setenv("STOCKADE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def open_kernel(only_authority: Path) -> Opened:
    """Opens a kernel with these options in ``[plugin.authority]``."""

    @contextlib.asynccontextmanager
    async def opened(behaviour: Callable[[FakeTurn], Any] | None = None, **authority: Any) -> AsyncIterator[Kernel]:
        settings = Settings.load(plugin={"authority": authority}, driver="memory", engine="null")
        async with Kernel.open(settings) as kernel:
            if behaviour is not None:
                memory(kernel).behaviour = behaviour
            yield kernel

    return opened


def memory(kernel: Kernel) -> MemoryDriver:
    """The kernel's driver in memory."""
    driver = kernel._catalog.driver("memory")
    assert isinstance(driver, MemoryDriver)
    return driver


class Fleet:
    """A lease server's state root, and what a client of it is configured with."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.grants = Grants(root)
        self.keyring = Keyring(root / "keys")
        self.keyring.generate()
        self.jwks = root.parent / "jwks.json"
        self.publish()

    def publish(self) -> None:
        """Write the public keys where clients look."""
        self.jwks.write_text(json.dumps(self.keyring.jwks()))

    def options(self, **changes: Any) -> LeaseOptions:
        """Those of a client of the grant ``fleet``."""
        return LeaseOptions.model_validate({"name": "fleet", "keys": str(self.jwks), **changes})

    @contextlib.asynccontextmanager
    async def serving(self, token: str = "", port: int = 0) -> AsyncIterator[str]:
        """The URL of the lease ``fleet``, while it is served."""
        async with LeaseServer(self.root, token).listening("127.0.0.1", port) as url:
            yield f"{url}/leases/fleet"


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """A lease server of one's own, with a key and no grant yet."""
    return Fleet(tmp_path / "server")
