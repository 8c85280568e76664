"""Frames and headers, without any IO.

A frame is an int32 length and that many bytes. A request is a header (api_key int16, api_version int16,
correlation_id int32, client_id nullable string) and a body; a response is the correlation id and a body.
Which request a response belongs to is a matter of order: a broker answers each connection's requests in the
order in which they came.

``FrameReader`` cuts the incoming bytes into frames. It offers the memory that the next bytes are to be
received into, so that a frame is received where it stays. That memory grows with what has arrived, whatever
length was announced: never more than ``FIRST_ALLOCATION`` or four times the bytes that came.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from minikafka.base import binary
from minikafka.base.errors import LocalWireError, RemoteWireError
from minikafka.base.files import Buffer
from minikafka.base.values import fast_value
from minikafka.wire import schema
from minikafka.wire.parts import Part, join, total_size
from minikafka.wire.schema import INT16, INT32, NULLABLE_STRING, Struct, field

LENGTH_BYTES = 4
MAX_FRAME_BYTES = 0x7FFFFFFF
"""What the length can say."""
FIRST_ALLOCATION = 64 * 1024
"""Bytes taken for a frame of which nothing has come yet: most requests fit, a thousand liars cost 64 MB."""

_GROWTH = 4
_LENGTH = struct.Struct(">i")


@fast_value
class RequestHeader:
    """What stands before every request. ``api_key`` is a plain number, as it may be one that nobody knows."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None

    @staticmethod
    def decode(frame: Buffer) -> tuple[RequestHeader, memoryview]:
        """The header and the body behind it. RemoteWireError when the frame is too short for a header."""
        header, position = schema.decode_prefix(_REQUEST_HEADER, 0, frame)
        return header, memoryview(frame)[position:]

    def encode(self) -> bytes:
        """The bytes of the header. LocalWireError when a value does not fit."""
        return join(schema.encode(_REQUEST_HEADER, 0, self))


_REQUEST_HEADER = Struct(
    RequestHeader,
    field("api_key", INT16),
    field("api_version", INT16),
    field("correlation_id", INT32),
    field("client_id", NULLABLE_STRING),
)


def response_header(correlation_id: int) -> bytes:
    """What stands before every response: the number of its request."""
    try:
        return _LENGTH.pack(correlation_id)
    except struct.error:
        raise LocalWireError(f"{correlation_id!r} is not a correlation id of 4 bytes") from None


def split_response(frame: Buffer) -> tuple[int, memoryview]:
    """The correlation id and the body of a response. RemoteWireError when the frame is too short."""
    correlation_id, position = binary.read_integer(binary.INT32, frame, 0)
    return correlation_id, memoryview(frame)[position:]


def encode_frame(parts: Sequence[Part]) -> list[Part]:
    """``parts`` with their length before them. LocalWireError above 2 GiB."""
    size = total_size(parts)
    if size > MAX_FRAME_BYTES:
        raise LocalWireError(f"a frame of {size} bytes is more than its length of 4 bytes can say")
    return [_LENGTH.pack(size), *parts]


class FrameReader:
    """Cuts one direction of a connection into frames of at most ``max_bytes``.

    ``first_allocation``: how much is taken at once for a frame that was announced. A client, which asked
    for what comes, takes all of it and saves the copies of growing.

    Receive into ``space()``, then report the count to ``filled()``, which gives a frame when one is
    complete. A frame is a writable view of memory that nobody else uses. Bytes of the next frame are never
    asked for before.
    """

    def __init__(self, max_bytes: int = MAX_FRAME_BYTES, *, first_allocation: int = FIRST_ALLOCATION) -> None:
        self._max_bytes = max_bytes
        self._first_allocation = first_allocation
        self._length = bytearray(LENGTH_BYTES)
        # What is being filled: first the length, then the frame. Invariant: _filled < len(_target).
        self._target = self._length
        self._filled = 0
        self._frame_bytes: int | None = None

    @property
    def inside_frame(self) -> bool:
        """Whether a frame has begun and not ended: here an end of the stream is a loss."""
        return self._filled > 0 or self._frame_bytes is not None

    @property
    def frame_bytes(self) -> int | None:
        """The length of the frame that is being received; None while that is not known."""
        return self._frame_bytes

    def space(self) -> memoryview:
        """Where the next bytes belong. Release it (or let it go) before ``filled``."""
        return memoryview(self._target)[self._filled :]

    def filled(self, count: int) -> memoryview | None:
        """Take in ``count`` bytes that were put into ``space()``; a frame when they complete one.

        Raises RemoteWireError for an announced length that is negative or above the limit. Nothing can be
        read after that.
        """
        self._filled += count
        if self._filled < len(self._target):
            return None
        if self._frame_bytes is None:
            self._begin_frame()
            if self._frame_bytes != 0:
                return None
        elif len(self._target) < self._frame_bytes:
            grown = bytearray(min(self._frame_bytes, len(self._target) * _GROWTH))
            grown[: self._filled] = self._target
            self._target = grown
            return None
        frame = memoryview(self._target)
        self._target, self._filled, self._frame_bytes = self._length, 0, None
        return frame

    def feed(self, data: Buffer) -> list[memoryview]:
        """Take in ``data``, of any length, and give the frames that it completes."""
        frames, view = [], memoryview(data)
        while view:
            with self.space() as space:
                count = min(len(space), len(view))
                space[:count] = view[:count]
            frame = self.filled(count)
            if frame is not None:
                frames.append(frame)
            view = view[count:]
        return frames

    def _begin_frame(self) -> None:
        size = _LENGTH.unpack(self._length)[0]
        if not 0 <= size <= self._max_bytes:
            raise RemoteWireError(
                f"a frame of {size} bytes was announced, allowed are 0 to {self._max_bytes}"
            )
        self._frame_bytes = size
        self._target, self._filled = bytearray(min(size, self._first_allocation)), 0
