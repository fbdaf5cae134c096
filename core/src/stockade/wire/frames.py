"""The frame codec: ``length:u32 | type:u8 | stream:u32 | payload``, big-endian. Standard library only.

``length`` counts the payload. The decoder takes bytes in any portions and never holds more than one
incomplete frame.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from stockade.errors import ProtocolError

HELLO, OPEN, DATA, CREDIT, END, RESET, PING, PONG = range(1, 9)
NAMES = {HELLO: "HELLO", OPEN: "OPEN", DATA: "DATA", CREDIT: "CREDIT", END: "END", RESET: "RESET", PING: "PING"}
NAMES[PONG] = "PONG"

MAX_PAYLOAD = 1024 * 1024
"""Bytes of one payload; a longer frame is a protocol error that names its size."""

CHUNK = 64 * 1024
"""Bytes of one DATA frame as sent: small enough that no stream holds the pipe for long."""

_HEADER = Struct(">IBI")
HEADER_SIZE = _HEADER.size


class Frame(NamedTuple):
    """One frame. ``type`` may be unknown: the receiver counts and skips it."""

    type: int
    stream: int
    payload: bytes


def encode(type: int, stream: int, payload: bytes | bytearray | memoryview = b"") -> bytes:
    """One frame as bytes. Raises `ProtocolError` when the payload is over `MAX_PAYLOAD`."""
    if len(payload) > MAX_PAYLOAD:
        raise ProtocolError(f"frame of {len(payload)} bytes is over the cap of {MAX_PAYLOAD}")
    return _HEADER.pack(len(payload), type, stream) + payload


class Decoder:
    """Bytes in, frames out."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that ``data`` completes. Raises `ProtocolError` for a frame over the cap.

        Exhaust the iterator before the next call.
        """
        buffer = self._buffer
        buffer += data
        position, end = 0, len(buffer)
        try:
            while end - position >= HEADER_SIZE:
                length, type_, stream = _HEADER.unpack_from(buffer, position)
                if length > MAX_PAYLOAD:
                    raise ProtocolError(f"frame of {length} bytes is over the cap of {MAX_PAYLOAD}")
                start = position + HEADER_SIZE
                if end - start < length:
                    break
                position = start + length
                yield Frame(type_, stream, bytes(buffer[start:position]))
        finally:
            del buffer[:position]

    @property
    def pending(self) -> int:
        """Bytes of an incomplete frame; not zero at the end of input means a torn frame."""
        return len(self._buffer)
