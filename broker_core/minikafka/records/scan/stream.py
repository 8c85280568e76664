"""A message set as an iterator over its messages, with bulk reading and writing to a channel, whether its
bytes lie in memory or in a file: the ``MessageSet`` of the reference texts ("Messages", "Reads", "Network
layer").

A file is read in windows and never as a whole: a window that holds no whole entry grows to the entry's size,
up to a bound. What ends within its last entry, as a fetch response may, is a set without that entry.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import numpy as np

from minikafka.base.errors import BrokerError
from minikafka.base.files import Buffer, FileSlice
from minikafka.records import kernels
from minikafka.records.format.compression import MAX_CONTENT_BYTES
from minikafka.records.format.message_set import ENTRY_HEADER_BYTES, StoredRecord, iterate
from minikafka.records.kernels import decode_status
from minikafka.records.kernels.arrays import INT64_MAX, read_only

WINDOW_BYTES = 1 << 20
MAX_ENTRY_BYTES = 128 << 20
"""More than any broker takes: a request has at most 100 MiB."""


class Channel(Protocol):
    """Something that takes bytes, as files do; at least one, and perhaps not all of them."""

    def write(self, data: memoryview, /) -> int | None:
        """How many it took; None when it would have to wait for taking any."""


@runtime_checkable
class SliceChannel(Channel, Protocol):
    """A channel that also takes a part of a file, without its bytes coming through here: by ``sendfile``."""

    def write_slice(self, piece: FileSlice, /) -> int:
        """How many bytes of ``piece`` it took, from its beginning."""


class MessageSet:
    """Messages of any magic, in order, in a buffer or a part of a file.

    ``max_entry_bytes`` bounds what a window may grow to. With ``whole`` a cut-off last entry is
    CORRUPT_MESSAGE; otherwise it is left out. Iterating and the properties may be repeated; nothing is kept.
    """

    def __init__(
        self,
        source: Buffer | FileSlice,
        *,
        window_bytes: int = WINDOW_BYTES,
        max_entry_bytes: int = MAX_ENTRY_BYTES,
        whole: bool = False,
    ) -> None:
        self._source = source if isinstance(source, FileSlice) else memoryview(source).cast("B")
        self._window_bytes = max(window_bytes, ENTRY_HEADER_BYTES)
        self._max_entry_bytes = max_entry_bytes
        self._whole = whole

    @property
    def size_bytes(self) -> int:
        """All of it, a cut-off last entry too."""
        return self._source.length if isinstance(self._source, FileSlice) else len(self._source)

    @property
    def valid_bytes(self) -> int:
        """Up to the end of the last whole entry, as its size field says; no checksum is looked at.

        CORRUPT_MESSAGE as in ``bulk``.
        """
        return sum(len(part) for part in self.bulk())

    def __iter__(self) -> Iterator[StoredRecord]:
        return self.records()

    def records(
        self, *, deep: bool = True, max_content_bytes: int = MAX_CONTENT_BYTES
    ) -> Iterator[StoredRecord]:
        """The messages, as ``message_set.iterate`` gives them, and with its errors."""
        position = 0
        for part in self.bulk():
            try:
                yield from iterate(part, deep=deep, max_content_bytes=max_content_bytes)
            except BrokerError as error:
                raise _behind(error, position) from None
            position += len(part)

    def bulk(self, max_bytes: int | None = None) -> Iterator[memoryview]:
        """The set in pieces of whole entries, which is what the kernels take: of at most ``max_bytes`` (a
        window), or one larger entry.

        CORRUPT_MESSAGE with the position, after what is good before it, where a size or magic byte cannot be
        right and where an entry is larger than the bound.
        """
        usual = self._window_bytes if max_bytes is None else max(max_bytes, ENTRY_HEADER_BYTES)
        position, window = 0, usual
        while position < self.size_bytes:
            data = self._read(position, window)
            used, stop, wanted = _whole_entries(data)
            if used:
                yield data[:used]
                position, window = position + used, usual
            elif stop >= decode_status.FIRST_PROBLEM:
                raise decode_status.error(stop, position)
            elif wanted > self._max_entry_bytes:
                raise decode_status.corrupt(
                    f"an entry of {wanted} bytes is larger than {self._max_entry_bytes}", position
                )
            elif not window < wanted <= self.size_bytes - position:
                break
            else:
                window = wanted
        if self._whole and position < self.size_bytes:
            raise decode_status.error(decode_status.PARTIAL, position)

    def write_to(self, channel: Channel, position: int, max_bytes: int) -> int:
        """Give the channel up to ``max_bytes`` from ``position`` on, partial entries and all; how many it
        took, which may be fewer: go on from there.

        What lies in a file goes to a ``SliceChannel`` as it lies there, and is read for any other.
        """
        length = max(0, min(max_bytes, self.size_bytes - position))
        if position < 0:
            raise ValueError(f"a set has no position {position}")
        if length == 0:
            return 0
        if isinstance(self._source, FileSlice) and isinstance(channel, SliceChannel):
            return channel.write_slice(self._source.part(position, length))
        written = 0
        while written < length:
            data = self._read(position + written, min(self._window_bytes, length - written))
            if not data:
                break  # the file has become shorter
            taken = channel.write(data) or 0
            written += taken
            if taken < len(data):
                break
        return written

    def _read(self, position: int, size: int) -> memoryview:
        size = min(size, self.size_bytes - position)
        if isinstance(self._source, FileSlice):
            return memoryview(self._source.part(position, size).read())
        return self._source[position : position + size]


def _whole_entries(data: memoryview) -> tuple[int, int, int]:
    """Where the whole entries at the beginning end, why there (as a stop), and for a cut-off one its size.

    The size is that of an entry's header where not even that is there.
    """
    array = read_only(data)
    place = np.zeros(1, dtype=np.int64)
    # Only an entry with the very last offset and time is found; it is passed like any other.
    while (stop := kernels.read.find(array, INT64_MAX, INT64_MAX, place)) == decode_status.FOUND:
        place += ENTRY_HEADER_BYTES + _size_field(data, int(place[0]))
    end = int(place[0])
    if stop != decode_status.PARTIAL or len(data) - end < ENTRY_HEADER_BYTES:
        return end, stop, ENTRY_HEADER_BYTES
    return end, stop, ENTRY_HEADER_BYTES + _size_field(data, end)


def _size_field(data: memoryview, position: int) -> int:
    return int.from_bytes(data[position + 8 : position + ENTRY_HEADER_BYTES], "big", signed=True)


def _behind(error: BrokerError, position: int) -> BrokerError:
    """The error of a piece that lies at ``position`` of the set."""
    return BrokerError(error.code, f"{error.detail} of what begins at byte {position}") if position else error
