"""What several faulty drivers are made of."""

from __future__ import annotations

import dataclasses
from typing import Any

from stockade.contracts.channel import Channel
from stockade.model.spec import SandboxSpec
from tests.core.testing.forking_driver import ForkingDriver, ForkingSandbox


class Relay(Channel):
    """A channel that passes everything on."""

    def __init__(self, channel: Channel) -> None:
        self.inner = channel

    async def read(self, limit: int) -> bytes:
        return await self.inner.read(limit)

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        await self.inner.write(data)

    async def aclose(self) -> None:
        await self.inner.aclose()


class Changed(ForkingDriver):
    """Runs another spec than it was given."""

    def changes(self, spec: SandboxSpec) -> dict[str, Any]:
        raise NotImplementedError

    async def create(self, spec: SandboxSpec) -> ForkingSandbox:
        return await super().create(dataclasses.replace(spec, **self.changes(spec)))
