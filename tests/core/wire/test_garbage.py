"""Whatever a peer sends, an end answers with correct streams or with a typed ending."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from stockade.errors import ProtocolError, SandboxLost, StockadeError
from stockade.testing.fakes import MemoryChannel
from stockade.wire import frames
from stockade.wire.frames import Frame
from stockade.wire.hello import dump_object
from stockade.wire.mux import Hello, Mux, MuxStream
from stockade.wire.peer import events
from tests.core.wire.raw import RawPeer, Side

IDS = st.integers(0, 6) | st.integers(0, 2**32 - 1)
OPENS = st.sampled_from(["turn", "tunnel"]).map(lambda kind: dump_object({"kind": kind, "args": {}}))
PAYLOADS = (
    st.binary(max_size=40)
    | OPENS
    | st.just(Hello().encode())
    | st.integers(0, 2**32 - 1).map(lambda n: n.to_bytes(4, "big"))
    | st.integers(1, 300_000).map(bytes)
)
LIKELY = st.one_of(
    st.builds(Frame, st.just(frames.OPEN), st.integers(1, 6), OPENS),
    st.builds(Frame, st.just(frames.DATA), st.integers(1, 6), st.binary(max_size=40)),
    st.builds(Frame, st.just(frames.END), st.integers(1, 6), st.just(b"")),
    st.builds(Frame, st.just(frames.RESET), st.integers(1, 6), st.just(b'{"code":"x"}')),
    st.builds(Frame, st.just(frames.PING), st.just(0), st.binary(max_size=8)),
)
SEQUENCES = st.lists(LIKELY | st.builds(Frame, st.integers(0, 12), IDS, PAYLOADS), max_size=25)


async def feed(side: Side, data: bytes, *, greet: bool) -> tuple[StockadeError | None, dict[int, bytes], list[Any]]:
    """Give ``data`` to one end, then hang up. Returns its ending, what its streams received, and stray errors."""
    stray: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: stray.append(context))
    received: dict[int, bytes] = {}

    async def collect(stream: MuxStream) -> None:
        received[stream.id] = b""
        while data := await stream.receive():
            received[stream.id] += data
        await stream.send(b"answer")
        await stream.send_end()

    near, far = MemoryChannel.pair()
    mux, raw = Mux(near, side=side, hello=Hello(), accept=collect), RawPeer(far)
    if greet:
        await raw.greet()
        await mux.start(5)
        mine = await mux.open("turn", {})
        await raw.write(data)
        served = asyncio.create_task(collect(mine))
        await raw.hang_up()
        ending = await mux.wait_closed()
        with pytest.raises(StockadeError) if not mine.finished else contextlib.nullcontext():
            await served
    else:
        await raw.write(data)
        await raw.hang_up()
        with pytest.raises((ProtocolError, SandboxLost)) if not _greets(data) else contextlib.nullcontext():
            await mux.start(5)
        ending = await mux.wait_closed()
    await mux.aclose()
    return ending, received, stray


def _greets(data: bytes) -> bool:
    try:
        first = next(iter(frames.Decoder().feed(data)), None)
        return first is not None and first.type == frames.HELLO and bool(Hello.decode(first.payload))
    except ProtocolError:
        return False


def check(result: tuple[StockadeError | None, dict[int, bytes], list[Any]], sent: Sequence[Frame]) -> None:
    ending, received, stray = result
    assert isinstance(ending, ProtocolError | SandboxLost)
    assert stray == []
    for id, data in received.items():
        promised = b"".join(f.payload for f in sent if f.type == frames.DATA and f.stream == id)
        assert promised.startswith(data), "a stream received what was not sent to it"


@pytest.mark.parametrize("side", ["kernel", "inside"])
@given(data=st.binary(max_size=400), greet=st.booleans())
def test_arbitrary_bytes_end_in_a_typed_failure(side: Side, data: bytes, greet: bool) -> None:
    try:
        sent = list(frames.Decoder().feed(data))
    except ProtocolError:
        sent = []
    ending, received, stray = asyncio.run(feed(side, data, greet=greet))
    check((ending, received if sent else {}, stray), sent)


@pytest.mark.slow
@pytest.mark.parametrize("side", ["kernel", "inside"])
@given(sent=SEQUENCES)
@hypothesis_settings(max_examples=300)
def test_arbitrary_frames_are_correct_streams_or_a_typed_failure(side: Side, sent: list[Frame]) -> None:
    data = b"".join(frames.encode(*frame) for frame in sent)
    check(asyncio.run(feed(side, data, greet=True)), sent)


class Lines:
    """A stream that delivers the given pieces."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = [piece for piece in pieces if piece]

    async def receive(self) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""


EVENTS = st.sampled_from(
    ["text", "thinking", "started", "tool_start", "tool_end", "notice", "ended", "novel", 7]
).flatmap(
    lambda kind: st.fixed_dictionaries(
        {"kind": st.just(kind)},
        optional={
            "text": st.text(max_size=5) | st.integers(),
            "id": st.text(max_size=3),
            "name": st.text(max_size=3),
            "message": st.text(max_size=3),
            "outcome": st.just({"status": "completed"}) | st.just({"status": "maybe"}),
            "engine": st.text(max_size=3),
        },
    )
)


@given(st.lists(EVENTS.map(lambda e: json.dumps(e).encode() + b"\n") | st.binary(max_size=30), max_size=8))
def test_arbitrary_lines_are_events_or_a_protocol_error(pieces: list[bytes]) -> None:
    async def read() -> None:
        async for batch in events(Lines(pieces)):  # type: ignore[arg-type]
            assert all(hasattr(event, "kind") for event in batch)

    try:
        asyncio.run(read())
    except ProtocolError as error:
        assert error.code == "protocol"
