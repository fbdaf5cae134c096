"""The codec."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stockade.errors import ProtocolError
from stockade.wire import frames
from stockade.wire.frames import Decoder, Frame

ANY_FRAME = st.builds(Frame, st.integers(0, 255), st.integers(0, 2**32 - 1), st.binary(max_size=300))


@given(st.lists(ANY_FRAME, max_size=20), st.lists(st.integers(1, 400), min_size=1, max_size=20))
def test_frames_come_out_as_they_went_in_whatever_the_portions(sent: list[Frame], portions: list[int]) -> None:
    data = b"".join(frames.encode(*frame) for frame in sent)
    decoder, received, turn = Decoder(), [], 0
    while data:
        size = portions[turn % len(portions)]
        received += decoder.feed(data[:size])
        data, turn = data[size:], turn + 1
    assert received == sent
    assert decoder.pending == 0


@given(st.lists(st.binary(max_size=100), max_size=20))
def test_arbitrary_bytes_are_frames_or_a_protocol_error(portions: list[bytes]) -> None:
    decoder = Decoder()
    try:
        for portion in portions:
            assert all(isinstance(frame, Frame) for frame in decoder.feed(portion))
    except ProtocolError as error:
        assert "over the cap" in error.message
    assert decoder.pending <= frames.HEADER_SIZE + frames.MAX_PAYLOAD


def test_a_frame_over_the_cap_names_its_size_before_its_payload_is_there() -> None:
    header = struct.pack(">IBI", frames.MAX_PAYLOAD + 1, frames.DATA, 1)
    with pytest.raises(ProtocolError, match=str(frames.MAX_PAYLOAD + 1)):
        list(Decoder().feed(header))


def test_a_frame_at_the_cap_crosses() -> None:
    payload = bytes(frames.MAX_PAYLOAD)
    assert list(Decoder().feed(frames.encode(frames.DATA, 1, payload))) == [Frame(frames.DATA, 1, payload)]


def test_a_sender_cannot_make_a_frame_over_the_cap() -> None:
    with pytest.raises(ProtocolError, match="over the cap"):
        frames.encode(frames.DATA, 1, bytes(frames.MAX_PAYLOAD + 1))


def test_an_incomplete_frame_is_pending() -> None:
    decoder = Decoder()
    assert list(decoder.feed(frames.encode(frames.DATA, 1, b"abc")[:-1])) == []
    assert decoder.pending == frames.HEADER_SIZE + 2
