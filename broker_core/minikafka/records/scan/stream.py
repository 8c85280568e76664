"""The ``MessageSet`` of the reference texts ("Messages", "Reads", "Network layer"): an iterator over the
messages of a set in memory or in a file, with bulk reading and writing to a channel.

A file is read in windows and never as a whole: a window without a whole entry grows to the entry's size, up
to a limit. If the last entry is cut off, as in a fetch response, the set is without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import numpy as np

from minikafka.base.errors import BrokerError
from minikafka.base.files import Buffer, FileSlice
from minikafka.records import kernels
from minikafka.records.format.compression import MAX_CONTENT_BYTES
from minikafka.records.format.message_set import StoredRecord, iterate
from minikafka.records.kernels import decode_status
from minikafka.records.kernels.arrays import INT64_MAX, read_only
from minikafka.records.kernels.layout import ENTRY_HEADER_BYTES, entry_size

WINDOW_BYTES = 1 << 20
MAX_ENTRY_BYTES = 128 << 20
"""More than any broker accepts: a request has at most 100 MiB."""


class WritableByteChannel(Protocol):
    """A destination of bytes, such as a file. A write may write only some of the bytes."""

    def write(self, data: memoryview, /) -> int | None:
        """Write some of ``data`` and return how many bytes; None if it would have to wait."""


@runtime_checkable
class SliceChannel(WritableByteChannel, Protocol):
    """A channel that can also write a part of a file by ``sendfile``, without reading it into memory."""

    def write_slice(self, piece: FileSlice, /) -> int:
        """Write some bytes from the start of ``piece`` and return how many."""


class MessageSet:
    """Messages of any magic, in order, in a buffer or a part of a file.

    ``max_entry_bytes`` limits the size of a window. With ``whole`` a cut-off last entry is CORRUPT_MESSAGE;
    otherwise it is left out. Iteration and properties can be repeated; nothing is cached.
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
        """The size of the set, including a cut-off last entry."""
        return self._source.length if isinstance(self._source, FileSlice) else len(self._source)

    @property
    def valid_bytes(self) -> int:
        """The size up to the end of the last whole entry by its size field. Checksums are not verified.

        Raises CORRUPT_MESSAGE as in ``bulk``.
        """
        return sum(len(part) for part in self.bulk())

    def __iter__(self) -> Iterator[StoredRecord]:
        return self.records()

    def records(
        self, *, deep: bool = True, max_content_bytes: int = MAX_CONTENT_BYTES
    ) -> Iterator[StoredRecord]:
        """Yield the messages, as ``message_set.iterate`` does, and raise its errors."""
        position = 0
        for part in self.bulk():
            try:
                yield from iterate(part, deep=deep, max_content_bytes=max_content_bytes)
            except BrokerError as error:
                raise _behind(error, position) from None
            position += len(part)

    def bulk(self, max_bytes: int | None = None) -> Iterator[memoryview]:
        """Yield the set in pieces of whole entries, as the kernels expect them, each of at most ``max_bytes``
        (by default a window), or of one larger entry.

        Raises CORRUPT_MESSAGE with the position, after the valid entries before it, at an invalid size or
        magic byte, and at an entry larger than the limit.
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
                    f"an entry of {wanted} bytes exceeds the limit of {self._max_entry_bytes}", position
                )
            elif not window < wanted <= self.size_bytes - position:
                break
            else:
                window = wanted
        if self._whole and position < self.size_bytes:
            raise decode_status.error(decode_status.PARTIAL, position)

    def write_to(self, channel: WritableByteChannel, position: int, max_bytes: int) -> int:
        """Write up to ``max_bytes`` from ``position`` on to the channel, including partial entries. Return
        the number of bytes written, which may be less: continue from there.

        A set in a file is passed to a ``SliceChannel`` as a slice, and read for any other channel.
        """
        length = max(0, min(max_bytes, self.size_bytes - position))
        if position < 0:
            raise ValueError(f"invalid position {position}: expected 0 or more")
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
    """Return the end of the whole entries at the start, the code at which they end, and the size of a cut-off
    entry. If even its header is cut off, that is the size of a header.
    """
    array = read_only(data)
    place = np.zeros(1, dtype=np.int64)
    # ``find`` stops only at an entry with the largest possible offset and time; it is skipped like others.
    while (stop := kernels.read.find(array, INT64_MAX, INT64_MAX, place)) == decode_status.FOUND:
        place += entry_size(data, int(place[0]))
    end = int(place[0])
    if stop != decode_status.PARTIAL or len(data) - end < ENTRY_HEADER_BYTES:
        return end, stop, ENTRY_HEADER_BYTES
    return end, stop, entry_size(data, end)


def _behind(error: BrokerError, position: int) -> BrokerError:
    """Return the error of a piece that begins at ``position`` of the set."""
    if not position:
        return error
    return BrokerError(error.code, f"{error.detail} of the data from byte {position} on")
