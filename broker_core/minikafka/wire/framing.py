"""Frames and headers of the protocol, without IO.

A frame is an int32 length and that many bytes. A request is a header (api_key int16, api_version int16,
correlation_id int32, client_id nullable string, which ControlledShutdown 0 has not) and a body; a response is
the correlation id and a body. In flexible versions both headers end with tagged fields, of which none is
known; the client id keeps its int16 length. Responses are matched to requests by order: a broker answers the
requests of a connection in the order of their arrival.

``FrameReader`` splits incoming bytes into frames. It provides the memory to receive into, so a frame is not
copied. Memory grows with the received bytes, whatever length was announced: at most ``FIRST_ALLOCATION`` or
four times the received bytes. (Above a megabyte it is mapped, and a page uses memory only when data arrives
in it.)
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Sequence
from typing import Annotated

from minikafka.base import binary
from minikafka.base.errors import ForeignProtocol, LocalWireError, RemoteWireError
from minikafka.base.files import Buffer
from minikafka.base.memory import MAPPED_BYTES, allocate
from minikafka.base.values import fast_value
from minikafka.wire import schema
from minikafka.wire.api import FLEXIBLE_SINCE, NEVER, ApiKey
from minikafka.wire.fields import Int16, Int32, since
from minikafka.wire.frame_parts import Part, join, total_size

LENGTH_BYTES = 4
MAX_FRAME_BYTES = 0x7FFFFFFF
"""The maximum of the length field."""
FIRST_ALLOCATION = 64 * 1024
"""Bytes allocated for an announced frame: most requests fit, and a thousand false lengths cost 64 MB."""

_GROWTH = 4
_LENGTH = struct.Struct(">i")
# Found faster than keys of an enumeration.
_FLEXIBLE_SINCE = {int(key): version for key, version in FLEXIBLE_SINCE.items()}


@fast_value
class RequestHeader:
    """The header of every request. ``api_key`` is a plain number, since it may be unknown."""

    api_key: Int16
    api_version: Int16
    correlation_id: Int32
    client_id: Annotated[str | None, since(1)]

    @property
    def log_fields(self) -> dict[str, object]:
        """The ids of the request, for the log (``base.log_lines``)."""
        return {
            "api_key": self.api_key,
            "api_version": self.api_version,
            "correlation_id": self.correlation_id,
            "client_id": self.client_id,
        }

    @staticmethod
    def decode(frame: Buffer) -> tuple[RequestHeader, memoryview]:
        """Return the header and the body. Raises RemoteWireError when the frame is too short."""
        version = 0 if frame[:4] == _HEADED_BY_0 else 1
        header, position = schema.decode_prefix(RequestHeader, version, frame)
        body = memoryview(frame)[position:]
        if header.api_version >= _FLEXIBLE_SINCE.get(header.api_key, NEVER):
            body = _after_tagged_fields(body)
        return header, body

    def encode(self) -> bytes:
        """Return the bytes of the header. Raises LocalWireError when a value does not fit."""
        version = 0 if (self.api_key, self.api_version) == _OF_HEADER_0 else 1
        header = join(schema.encode(RequestHeader, version, self))
        is_flexible = self.api_version >= _FLEXIBLE_SINCE.get(self.api_key, NEVER)
        return header + _NO_TAGGED_FIELDS if is_flexible else header


MAX_HEADER_FIELDS = 1_000
"""The limit of tagged fields in a header."""
_NO_TAGGED_FIELDS = b"\0"
_OF_HEADER_0 = (ApiKey.CONTROLLED_SHUTDOWN, 0)
"""The only request whose header has no client id; 3.9 still accepts it."""
_HEADED_BY_0 = struct.pack(">hh", *_OF_HEADER_0)


@fast_value
class HeaderTaggedFields:
    """The tagged fields at the end of a header."""


def _after_tagged_fields(rest: memoryview) -> memoryview:
    _, end = schema.decode_prefix(HeaderTaggedFields, 0, rest, MAX_HEADER_FIELDS, flexible=True)
    return rest[end:]


def response_header(correlation_id: int, flexible: bool = False) -> bytes:
    """Return the header of a response: the correlation id of its request, and no tagged fields if it is
    ``flexible``.
    """
    try:
        header = _LENGTH.pack(correlation_id)
    except struct.error:
        raise LocalWireError(f"{correlation_id!r} is not a correlation id of 4 bytes") from None
    return header + _NO_TAGGED_FIELDS if flexible else header


def split_response(frame: Buffer, flexible: bool = False) -> tuple[int, memoryview]:
    """Return correlation id and body of a response. Raises RemoteWireError when the frame is too short.

    ``flexible``: its header has tagged fields.
    """
    correlation_id, position = binary.read_integer(binary.INT32, frame, 0)
    body = memoryview(frame)[position:]
    return correlation_id, _after_tagged_fields(body) if flexible else body


def encode_frame(parts: Sequence[Part]) -> list[Part]:
    """Return ``parts`` with their length in front. Raises LocalWireError above 2 GiB."""
    size = total_size(parts)
    if size > MAX_FRAME_BYTES:
        raise LocalWireError(f"a frame of {size} bytes exceeds the limit of {MAX_FRAME_BYTES}")
    return [_LENGTH.pack(size), *parts]


def foreign_protocol(prefix: bytes) -> str:
    """Return the protocol, TLS or HTTP, that begins with the four bytes of a length; '' for none of them."""
    if prefix[:2] in (b"\x15\x03", b"\x16\x03"):  # an alert, or a handshake
        return "TLS"
    return "HTTP" if prefix in (b"GET ", b"POST", b"HEAD", b"PUT ", b"HTTP") else ""


_ADVICE = {
    "TLS": "give both sides the same security.protocol",
    "HTTP": "the peer does not speak Kafka's protocol",
}


class FrameReader:
    """Splits one direction of a connection into frames of at most ``max_bytes``.

    ``first_allocation``: the memory allocated at once for an announced frame. A client, which requested the
    data, allocates all of it and avoids copies. ``window``: the bytes to receive while the length of the next
    frame is unknown. 4 bytes are the length alone; with more, small frames arrive together with their length.

    Receive into ``space()``, then pass the count to ``filled()``, which returns a frame when one is complete.
    Before receiving again, take further frames from ``next()`` while ``ahead`` is true. A frame is a writable
    view of memory that nobody else uses.
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
        # Bytes that belong to no frame yet; None while nothing has arrived.
        self._window: bytearray | None = None
        self._begin = self._end = 0
        # The frame that is being received. Invariant: _filled < len(_target).
        self._target: bytearray | mmap.mmap | None = None
        self._filled = 0
        self._frame_bytes: int | None = None

    @property
    def inside_frame(self) -> bool:
        """True when a frame is incomplete, so that an end of the stream is an error."""
        return self._target is not None or self.ahead

    @property
    def ahead(self) -> bool:
        """True when bytes of the next frame have arrived, perhaps all of it."""
        return self._begin < self._end

    @property
    def frame_bytes(self) -> int | None:
        """The length of the current frame; None while unknown."""
        return self._frame_bytes

    @property
    def received_bytes(self) -> int:
        """The received bytes of the current frame."""
        return self._filled

    def space(self) -> memoryview:
        """Return the memory for the next bytes. Release it before ``filled``."""
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
        """Account for ``count`` bytes received into ``space()``. Return a frame when one is complete.

        Raises RemoteWireError for a length that is negative or above the limit. Nothing can be read after
        that.
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
        """Return the next frame if it has arrived. Raises as ``filled``."""
        window, start = self._window, self._begin + LENGTH_BYTES
        if window is None or start > self._end:
            return None
        size = _LENGTH.unpack_from(window, self._begin)[0]
        if not 0 <= size <= self.max_bytes:
            text = f"invalid frame length {size}: expected 0 to {self.max_bytes}"
            foreign = foreign_protocol(bytes(window[self._begin : start]))
            if foreign:
                raise ForeignProtocol(f"{text}; these bytes are {foreign}: {_ADVICE[foreign]}", foreign)
            raise RemoteWireError(text)
        here = self._end - start
        if here > size:
            self._begin = start + size
            return memoryview(window[start : self._begin])
        # No bytes follow: the frame can use the window's memory, or the window is not needed.
        self._window, self._begin, self._end = None, 0, 0
        if here == size:
            return memoryview(window)[start : start + size]
        self._frame_bytes, self._filled = size, here
        self._target = bytearray(min(size, max(self._first_allocation, here + 1)))
        self._target[:here] = memoryview(window)[start : start + here]
        return None

    def feed(self, data: Buffer) -> list[memoryview]:
        """Add ``data`` of any length, and return the frames that it completes."""
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
