"""Streams between two honest ends, and what a mux says to a peer that breaks one rule."""

from __future__ import annotations

import asyncio
import os
import socket

import pytest

from stockade.errors import ProtocolError, SandboxLost
from stockade.testing.fakes import MemoryChannel
from stockade.wire import frames
from stockade.wire.channels import StreamChannel
from stockade.wire.hello import MAX_OPEN, dump_object
from stockade.wire.mux import MAX_STREAMS, PROTOCOL, Hello, Mux, MuxStream, StreamReset
from stockade.wire.stream import WINDOW
from tests.core.wire.raw import OTHER, RawPeer, Side, connected, echo, pair

SIDES: list[Side] = ["kernel", "inside"]


async def read_all(stream: MuxStream) -> bytes:
    received = bytearray()
    while data := await stream.receive():
        received += data
    return bytes(received)


# -- honest ends -----------------------------------------------------------------------------------


async def test_each_end_learns_what_the_other_can_do() -> None:
    near, far = MemoryChannel.pair()
    kernel = Mux(near, side="kernel", hello=Hello(epoch="one"))
    inside = Mux(far, side="inside", hello=Hello(("turn", "exec"), "one", {"pid": 7}))
    theirs, ours = await asyncio.gather(kernel.start(5), inside.start(5))
    assert (theirs.capabilities, theirs.epoch, theirs.facts) == (("turn", "exec"), "one", {"pid": 7})
    assert ours.protocol == PROTOCOL
    await kernel.aclose()
    await inside.aclose()


async def test_a_stream_has_its_kind_and_arguments() -> None:
    seen: asyncio.Future[tuple[str, object]] = asyncio.get_running_loop().create_future()

    async def accept(stream: MuxStream) -> None:
        seen.set_result((stream.kind, stream.args))
        await echo(stream)

    async with pair(accept) as (kernel, _):
        stream = await kernel.open("turn", {"turn": "t1"})
        await stream.send(b"hello")
        await stream.send_end()
        assert await read_all(stream) == b"hello"
        assert await seen == ("turn", {"turn": "t1"})


@pytest.mark.requirement("L82")
async def test_megabytes_cross_a_socket_both_ways_at_once_intact() -> None:
    one, other = socket.socketpair()
    kernel = Mux(await StreamChannel.from_socket(one), side="kernel", hello=Hello())
    inside = Mux(await StreamChannel.from_socket(other), side="inside", hello=Hello(), accept=echo)
    await asyncio.gather(kernel.start(5), inside.start(5))
    stream = await kernel.open("echo", {})
    data = os.urandom(3 * 1024 * 1024)

    async def feed() -> None:
        await stream.send(data)
        await stream.send_end()

    received, _ = await asyncio.gather(read_all(stream), feed())
    assert received == data
    await kernel.aclose()
    await inside.aclose()


async def test_a_slow_consumer_of_one_stream_delays_no_other_and_no_ping() -> None:
    arrived: dict[str, MuxStream] = {}

    async def accept(stream: MuxStream) -> None:
        arrived[stream.kind] = stream
        if stream.kind == "slow":
            await stream.wait_reset()  # reads nothing, for ever
        else:
            await echo(stream)

    async with pair(accept) as (kernel, _):
        slow = await kernel.open("slow", {})
        flood = asyncio.create_task(slow.send(bytes(16 * WINDOW)))
        fast = await kernel.open("fast", {})
        await fast.send(b"x" * 2 * WINDOW)
        await fast.send_end()
        assert len(await read_all(fast)) == 2 * WINDOW
        assert await kernel.ping(5) < 5
        assert not flood.done()
        assert sum(map(len, arrived["slow"]._inbox)) <= WINDOW, "held for the slow consumer"
        flood.cancel()


async def test_a_reset_reaches_the_other_end_after_what_was_sent_before() -> None:
    async def accept(stream: MuxStream) -> None:
        await stream.send(b"partial")
        await stream.reset("denied", "not for you")

    async with pair(accept) as (kernel, _):
        stream = await kernel.open("tunnel", {})
        assert await stream.receive() == b"partial"
        with pytest.raises(StreamReset, match="not for you") as caught:
            await stream.receive()
        assert caught.value.reset_code == "denied"
        with pytest.raises(StreamReset):
            await stream.send(b"more")


async def test_a_stream_that_its_server_forgets_is_reset() -> None:
    async def accept(stream: MuxStream) -> None:
        await stream.receive()

    async with pair(accept) as (kernel, _):
        stream = await kernel.open("x", {})
        await stream.send(b"!")
        with pytest.raises(StreamReset) as caught:
            await stream.receive()
        assert caught.value.reset_code == "closed"


async def test_nothing_is_sent_after_the_end_of_a_half() -> None:
    async with pair(echo) as (kernel, _):
        stream = await kernel.open("x", {})
        await stream.send_end()
        await stream.send_end()
        with pytest.raises(StreamReset):
            await stream.send(b"late")
        assert await read_all(stream) == b""
        assert await stream.receive() == b""


@pytest.mark.requirement("L82", "F30")
async def test_the_end_of_the_connection_ends_every_stream_with_its_reason() -> None:
    async with connected() as (mux, raw):
        reader, writer = await mux.open("a", {}), await mux.open("b", {})
        receiving = asyncio.create_task(reader.receive())
        sending = asyncio.create_task(writer.send(bytes(2 * WINDOW)))
        pinging = asyncio.create_task(mux.ping(5))
        await raw.next(frames.PING)
        await raw.hang_up()
        assert isinstance(await mux.wait_closed(), SandboxLost)
        for task in (receiving, sending, pinging):
            with pytest.raises(SandboxLost):
                await task
        with pytest.raises(SandboxLost):
            await mux.open("c", {})


async def test_closing_twice_is_closing_once() -> None:
    async with pair(echo) as (kernel, inside):
        await kernel.aclose()
        await kernel.aclose()
        assert await kernel.wait_closed() is None
        assert isinstance(await inside.wait_closed(), SandboxLost)


async def test_arguments_over_the_cap_are_refused_before_anything_is_sent() -> None:
    async with pair(echo) as (kernel, _):
        with pytest.raises(ProtocolError, match="over the cap"):
            await kernel.open("turn", {"x": "y" * MAX_OPEN})
        assert await kernel.ping(5) < 5


# -- peers that break a rule -------------------------------------------------------------------------


@pytest.mark.requirement("F74")
async def test_a_frame_cut_off_by_the_end_is_told() -> None:
    async with connected() as (mux, raw):
        await raw.write(frames.encode(frames.PING, 0, b"12345678")[:5])
        await raw.hang_up()
        assert "within a frame (5 bytes)" in str(await mux.wait_closed())


async def test_a_silent_peer_is_lost_after_the_time_for_the_greeting() -> None:
    near, _far = MemoryChannel.pair()
    mux = Mux(near, side="kernel", hello=Hello())
    with pytest.raises(SandboxLost, match="no greeting within"):
        await mux.start(0.01)
    await mux.aclose()


@pytest.mark.requirement("F8")
async def test_a_peer_that_dies_before_it_greets_is_lost_at_once() -> None:
    near, far = MemoryChannel.pair()
    mux = Mux(near, side="kernel", hello=Hello())
    await far.aclose()
    with pytest.raises(SandboxLost):
        await mux.start(3600)


@pytest.mark.parametrize("side", SIDES)
async def test_another_protocol_version_is_refused_with_the_way_on(side: Side) -> None:
    near, far = MemoryChannel.pair()
    mux, raw = Mux(near, side=side, hello=Hello()), RawPeer(far)
    await raw.greet(protocol=PROTOCOL + 1)
    with pytest.raises(ProtocolError, match=f"protocol {PROTOCOL + 1}") as caught:
        await mux.start(5)
    assert "same minor version" in caught.value.hint


@pytest.mark.requirement("L11")
async def test_a_peer_may_greet_with_more_than_this_side_knows() -> None:
    near, far = MemoryChannel.pair()
    mux, raw = Mux(near, side="kernel", hello=Hello()), RawPeer(far)
    greeting = {"protocol": PROTOCOL, "capabilities": ["time-travel"], "later": True}
    await raw.send(frames.HELLO, 0, dump_object(greeting))
    assert (await mux.start(5)).capabilities == ("time-travel",)
    await mux.aclose()


async def test_a_frame_of_unknown_type_is_counted_and_skipped() -> None:
    async with connected() as (mux, raw):
        await raw.send(99, 12345, b"from the future")
        await raw.send(frames.PING, 0, b"after it")
        assert (await raw.next(frames.PONG)).payload == b"after it"
        assert mux.skipped == 1


@pytest.mark.parametrize("side", SIDES)
async def test_more_streams_than_the_cap_are_refused_and_the_others_live(side: Side) -> None:
    async def accept(stream: MuxStream) -> None:
        await stream.wait_reset()

    async with connected(accept, side=side) as (mux, raw):
        first = 1 if OTHER[side] == "kernel" else 2
        for number in range(MAX_STREAMS + 1):
            await raw.open(first + 2 * number)
        refusal = await raw.next(frames.RESET)
        assert refusal.stream == first + 2 * MAX_STREAMS
        assert b"too_many_streams" in refusal.payload
        assert not mux.closed


async def test_an_end_without_a_server_refuses_streams_as_unsupported() -> None:
    async with connected(None) as (mux, raw):
        await raw.open(2)
        assert b"unsupported" in (await raw.next(frames.RESET)).payload
        assert not mux.closed


RULES = {
    "a second HELLO": [(frames.HELLO, 0, Hello().encode())],
    "data beyond the credit": [(frames.DATA, 2, bytes(WINDOW)), (frames.DATA, 2, b"!")],
    "data after the end": [(frames.END, 2, b""), (frames.DATA, 2, b"!")],
    "an end twice": [(frames.END, 2, b""), (frames.END, 2, b"")],
    "credit that was not used": [(frames.CREDIT, 2, (1).to_bytes(4, "big"))],
    "credit of three bytes": [(frames.CREDIT, 2, b"abc")],
    "a stream that was never opened": [(frames.DATA, 8, b"!")],
    "our own stream that we never opened": [(frames.DATA, 1, b"!")],
    "the stream zero": [(frames.DATA, 0, b"!")],
    "opening a stream of our parity": [(frames.OPEN, 3, dump_object({"kind": "x", "args": {}}))],
    "opening a stream twice": [(frames.OPEN, 2, dump_object({"kind": "x", "args": {}}))],
    "an OPEN that is not JSON": [(frames.OPEN, 4, b"{")],
    "an OPEN without a kind": [(frames.OPEN, 4, b"{}")],
    "an OPEN of a list": [(frames.OPEN, 4, b"[]")],
    "an OPEN nested without end": [(frames.OPEN, 4, b"[" * 100_000)],
    "an OPEN over the cap": [(frames.OPEN, 4, b" " * (MAX_OPEN + 1))],
    "a RESET that is not JSON": [(frames.RESET, 2, b"\xff")],
}


@pytest.mark.parametrize("rule", RULES)
async def test_a_broken_rule_is_a_typed_protocol_error_and_the_end(rule: str) -> None:
    async def accept(stream: MuxStream) -> None:
        await stream.wait_reset()

    async with connected(accept) as (mux, raw):
        await raw.open(2)
        for frame in RULES[rule]:
            await raw.send(*frame)
        assert isinstance(await mux.wait_closed(), ProtocolError)
