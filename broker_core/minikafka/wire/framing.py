"""Frames and headers, without any IO.

A frame is an int32 length and that many bytes. A request is a header (api_key int16, api_version int16,
correlation_id int32, client_id nullable string, which ControlledShutdown 0 has not) and a body; a response is
the correlation id and a body. Which request a response belongs to is a matter of order: a broker answers each
connection's requests in the order in which they came.

``FrameReader`` cuts the incoming bytes into frames. It offers the memory that the next bytes are to be
received into, so that a frame is received where it stays. That memory grows with what has arrived, whatever
length was announced: never more than ``FIRST_ALLOCATION`` or four times the bytes that came. (Above
a megabyte all of it is mapped, and a page takes memory when something is received there.)
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Sequence

from minikafka.base import binary
from minikafka.base.errors import LocalWireError, RemoteWireError
from minikafka.base.files import Buffer
from minikafka.base.memory import MAPPED_BYTES, allocate
from minikafka.base.values import fast_value
from minikafka.wire import schema
from minikafka.wire.api import ApiKey
from minikafka.wire.frame_parts import Part, join, total_size
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
        version = 0 if frame[:4] == _HEADED_BY_0 else 1
        header, position = schema.decode_prefix(_REQUEST_HEADER, version, frame)
        return header, memoryview(frame)[position:]

    def encode(self) -> bytes:
        """The bytes of the header. LocalWireError when a value does not fit."""
        version = 0 if (self.api_key, self.api_version) == _OF_HEADER_0 else 1
        return join(schema.encode(_REQUEST_HEADER, version, self))


_OF_HEADER_0 = (ApiKey.CONTROLLED_SHUTDOWN, 0)
"""The one request that is older than client ids in headers; 2.1 still takes it."""
_HEADED_BY_0 = struct.pack(">hh", *_OF_HEADER_0)

_REQUEST_HEADER = Struct(
    RequestHeader,
    field("api_key", INT16),
    field("api_version", INT16),
    field("correlation_id", INT32),
    field("client_id", NULLABLE_STRING, since=1),
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
    for what comes, takes all of it and saves the copies of growing. ``window``: how much is asked for while
    the length of the next frame is not known. With 4 bytes that is the length alone; with more, a small
    frame comes along with its length, and so do the ones behind it.

    Receive into ``space()``, then report the count to ``filled()``, which gives a frame when one is
    complete. Before receiving again, take what has come along from ``next()``, while ``ahead`` says that
    there may be something. A frame is a writable view of memory that nobody else uses.
    """

    def __init__(
        self,
        max_bytes: int = MAX_FRAME_BYTES,
        *,
        first_allocation: int = FIRST_ALLOCATION,
        window: int = LENGTH_BYTES,
    ) -> None:
        self.max_bytes = max_bytes
        """May be set before the next frame begins."""
        self._first_allocation = first_allocation
        self._window_bytes = window
        # Bytes that belong to no frame yet; there is no window while nothing has come.
        self._window: bytearray | None = None
        self._begin = self._end = 0
        # The frame that is being received. Invariant: _filled < len(_target).
        self._target: bytearray | mmap.mmap | None = None
        self._filled = 0
        self._frame_bytes: int | None = None

    @property
    def inside_frame(self) -> bool:
        """Whether a frame has begun and not ended: here an end of the stream is a loss."""
        return self._target is not None or self.ahead

    @property
    def ahead(self) -> bool:
        """Whether something of the next frame has come already, perhaps all of it."""
        return self._begin < self._end

    @property
    def frame_bytes(self) -> int | None:
        """The length of the frame that is being received; None while that is not known."""
        return self._frame_bytes

    @property
    def received_bytes(self) -> int:
        """How much of the frame that is being received is there."""
        return self._filled

    def space(self) -> memoryview:
        """Where the next bytes belong. Release it (or let it go) before ``filled``."""
        if self._target is not None:
            return memoryview(self._target)[self._filled :]
        if self._window is None:
            self._window = bytearray(self._window_bytes)
        elif self._begin:
            rest = self._window[self._begin : self._end]
            self._window[: len(rest)] = rest
            self._begin, self._end = 0, len(rest)
        return memoryview(self._window)[self._end :]

    def filled(self, count: int) -> memoryview | None:
        """Take in ``count`` bytes that were put into ``space()``; a frame when they complete one.

        Raises RemoteWireError for an announced length that is negative or above the limit. Nothing can be
        read after that.
        """
        target = self._target
        if target is None:
            self._end += count
            return self.next()
        self._filled += count
        if self._filled < len(target):
            return None
        if len(target) < (self._frame_bytes or 0):
            size, more = self._frame_bytes or 0, len(target) * _GROWTH
            grown = allocate(size if more > MAPPED_BYTES else min(size, more))
            grown[: self._filled] = target[:]
            self._target = grown
            return None
        self._target, self._filled, self._frame_bytes = None, 0, None
        return memoryview(target)

    def next(self) -> memoryview | None:
        """The next frame, when it has come already. Raises as ``filled``."""
        window, start = self._window, self._begin + LENGTH_BYTES
        if window is None or start > self._end:
            return None
        size = _LENGTH.unpack_from(window, self._begin)[0]
        if not 0 <= size <= self.max_bytes:
            raise RemoteWireError(f"a frame of {size} bytes was announced, allowed are 0 to {self.max_bytes}")
        here = self._end - start
        if here > size:
            self._begin = start + size
            return memoryview(window[start : self._begin])
        # Nothing lies behind it: it can have the window's memory, or does not need it any more.
        self._window, self._begin, self._end = None, 0, 0
        if here == size:
            return memoryview(window)[start : start + size]
        self._frame_bytes, self._filled = size, here
        self._target = bytearray(min(size, max(self._first_allocation, here + 1)))
        self._target[:here] = memoryview(window)[start : start + here]
        return None

    def feed(self, data: Buffer) -> list[memoryview]:
        """Take in ``data``, of any length, and give the frames that it completes."""
        frames, view = [], memoryview(data)
        while view:
            with self.space() as space:
                count = min(len(space), len(view))
                space[:count] = view[:count]
            frame = self.filled(count)
            while frame is not None:
                frames.append(frame)
                frame = self.next()
            view = view[count:]
        return frames
