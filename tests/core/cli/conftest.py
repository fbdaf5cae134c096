"""A kernel that does nothing but answer, for the commands' own behaviour."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from stockade.cli.arguments import Parser
from stockade.errors import StockadeError
from stockade.model.events import Event
from stockade.model.turn import Outcome
from stockade.runtime.execs import ExecResult
from stockade.runtime.turns import TurnHandle


@dataclass
class FakeExec:
    output: list[tuple[int, bytes]]
    ending: ExecResult
    stdin: bytes = b""
    closed: bool = False
    waits_for_stdin: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def __aenter__(self) -> FakeExec:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.closed = True

    async def __aiter__(self) -> AsyncIterator[tuple[int, bytes]]:
        for piece in self.output:
            yield piece
        if self.waits_for_stdin:
            await self.ended.wait()

    async def send(self, data: bytes) -> None:
        self.stdin += data

    async def send_end(self) -> None:
        self.ended.set()

    async def result(self) -> ExecResult:
        return self.ending


@dataclass
class FakeFiles:
    """Notes each copy, and does what ``acts`` says."""

    copies: list[tuple[object, ...]] = field(default_factory=list)
    closed: bool = False
    content: Sequence[bytes] = ()
    acts: Callable[[], Awaitable[None]] | None = None

    async def __aenter__(self) -> FakeFiles:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.closed = True

    async def _copy(self, *what: object) -> None:
        self.copies.append(what)
        if self.acts is not None:
            await self.acts()

    async def upload(self, source: str, target: str, **options: Any) -> None:
        await self._tree("upload", source, target, **options)

    async def download(self, source: str, target: str, **options: Any) -> None:
        await self._tree("download", source, target, **options)

    async def _tree(
        self, *what: object, overwrite: bool, exclude: list[str], moved: Callable[[int, int], None]
    ) -> None:
        moved(1_500_000, 3)
        await self._copy(*what, overwrite, *exclude)

    async def read(self, path: str) -> AsyncIterator[bytes]:
        await self._copy("read", path)
        for piece in self.content:
            yield piece

    async def write(self, path: str, data: AsyncIterator[bytes], *, overwrite: bool) -> None:
        await self._copy("write", path, b"".join([piece async for piece in data]), overwrite)


@dataclass
class FakeKernel:
    """Answers every turn with ``events`` and ``outcome``; ``on_turn`` may do more, or leave it running."""

    events: Sequence[Event] = ()
    outcome: Outcome = field(default_factory=lambda: Outcome("completed"))
    failure: StockadeError | None = None
    on_turn: Callable[[TurnHandle], None] | None = None
    proc: FakeExec = field(default_factory=lambda: FakeExec([], ExecResult(0)))
    copying: FakeFiles = field(default_factory=FakeFiles)
    asked: dict[str, Any] = field(default_factory=dict)
    overrides: dict[str, Any] = field(default_factory=dict)
    closed: bool = False

    @contextlib.asynccontextmanager
    async def open(self, **overrides: Any) -> AsyncIterator[FakeKernel]:
        self.overrides = overrides
        try:
            yield self
        finally:
            self.closed = True

    async def turn(self, message: str, **options: Any) -> TurnHandle:
        self.asked = {"message": message, **options}
        if self.failure is not None:
            raise self.failure
        handle = TurnHandle(id="t", session="s", sandbox="b")
        for event in self.events:
            handle.add(event)
        if self.on_turn is None:
            handle.finish(self.outcome)
        else:
            self.on_turn(handle)
        return handle

    async def exec(self, argv: Sequence[str], **options: Any) -> FakeExec:
        self.asked = {"argv": list(argv), **options}
        return self.proc

    async def files(self, **options: Any) -> FakeFiles:
        self.asked = options
        return self.copying

    async def revoke(self, name: str, route: str) -> int:
        self.asked = {"revoke": (name, route)}
        return 3

    async def destroy(self, name: str) -> None:
        self.asked = {"destroy": name}
        if self.failure is not None:
            raise self.failure


@pytest.fixture
def kernel() -> FakeKernel:
    return FakeKernel()


@pytest.fixture
def parse() -> Callable[..., argparse.Namespace]:
    """Parse a command's arguments as the command line does."""

    def parse(module: ModuleType, *argv: str) -> argparse.Namespace:
        parser = Parser(prog="stockade x")
        module.configure(parser)
        namespace: argparse.Namespace = parser.parse_args(list(argv))
        return namespace

    return parse


@pytest.fixture
def make_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Install a hook module, as pip would: a module and a ``dist-info`` on the path."""

    def make(name: str, source: str) -> None:
        module = f"toy_{name}_{tmp_path.name.replace('-', '_')}"
        (tmp_path / f"{module}.py").write_text(textwrap.dedent(source))
        info = tmp_path / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[stockade.plugins]\n{name} = {module}\n")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setenv("STOCKADE_PLUGINS", name)

    return make
