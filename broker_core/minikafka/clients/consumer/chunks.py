"""The messages of one chunk, page by page, and what lies behind a damaged one.

Only what the next pages need is decoded, so that a chunk of compressed messages is never unpacked as a whole,
and one of large messages is not copied as a whole; objects are made one by one, as they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, repeat
from operator import length_hint
from typing import TYPE_CHECKING, Generic

import numpy as np
from numpy.typing import NDArray

from minikafka.base.errors import CorruptMessage
from minikafka.clients.consumer.fetched_data_chunk import FetchedDataChunk
from minikafka.clients.consumer.message_and_metadata import K, MessageAndMetadata, V
from minikafka.clients.serializer import Decoder
from minikafka.records.format.message_set import ENTRY_HEADER_BYTES
from minikafka.records.format.record import TimestampType

if TYPE_CHECKING:
    from minikafka.records.columns import Columns

PAGE_ROWS = 500
_PAGE_BYTES = 1 << 16
"""Of keys and values, unless one message has more."""
_DECODED_BYTES = 1 << 16
"""At a time, unless one entry has more."""

_TYPES = {int(one): one for one in TimestampType}


class Page(Generic[K, V]):
    """Messages that are made when they are asked for."""

    __slots__ = ("_left", "count", "messages")

    def __init__(self, count: int, left: Iterator[int], messages: Iterator[MessageAndMetadata[K, V]]) -> None:
        self.count = count
        self._left = left
        self.messages = messages

    @property
    def given(self) -> int:
        """How many were asked for."""
        return self.count - length_hint(self._left)


class ChunkReader(Generic[K, V]):
    """Reads one chunk from its ``fetch_offset`` to before its ``next_offset``."""

    def __init__(self, chunk: FetchedDataChunk, key_decoder: Decoder[K], value_decoder: Decoder[V]) -> None:
        self.chunk = chunk
        self._decoders = key_decoder, value_decoder
        self._data = chunk.messages
        self._offset = chunk.fetch_offset
        self._window = self._data[:0]
        self._pieces: Iterator[Columns] | None = None
        """What is left to decode of the window."""
        self._columns: Columns | None = None
        self._row = 0

    def page(self) -> Page[K, V] | None:
        """The next messages; None behind the last one. CorruptMessage, and again until ``skip``."""
        while self._columns is None or self._row >= self._columns.count:
            if not self._data:
                return None
            self._columns, self._row = self._decode(), 0
        columns, begin = self._columns, self._row
        end = self._row = _page_end(columns, begin)
        return self._page(columns, begin, end)

    def skip(self, problem: CorruptMessage) -> None:
        """Pass over what was raised."""
        self._data = self._data[_entry_bytes(self._data) :]
        self._offset = problem.after_offset

    def _decode(self) -> Columns:
        """The next rows, without those of control batches: there may be none."""
        from minikafka.records.columns import DamagedEntry, decode_pieces

        end = self.chunk.next_offset
        if self._pieces is None:
            self._window = self._data[: max(_DECODED_BYTES, _entry_bytes(self._data))]
            self._pieces = decode_pieces(self._window, self._offset, end, headers=True)
        try:
            columns = next(self._pieces)
        except BaseException:
            self._pieces = (
                None  # what has failed gives nothing more: the window is decoded again from here on
            )
            raise
        self._offset = columns.next_offset
        if not columns.complete:
            return columns
        pieces, self._pieces = self._pieces, None
        # It goes on with the first entry that was not wholly used, as the last one may be cut off here.
        self._data, left = self._data[columns.valid_bytes :], len(self._window) - columns.valid_bytes
        if columns.next_offset >= end:
            self._data = self._data[:0]
        elif left and not columns.count:
            try:
                next(pieces, None)
            except DamagedEntry as damage:
                tp = self.chunk.info.topic_partition
                raise CorruptMessage(*tp, damage.offset, damage.after_offset, damage.detail) from None
            if not columns.valid_bytes:
                self._data = self._data[:0]
        return columns

    def _page(self, columns: Columns, begin: int, end: int) -> Page[K, V]:
        count = end - begin
        topic, partition = self.chunk.info.topic_partition
        left = iter(columns.offsets[begin:end].tolist())
        types = columns.timestamp_types[begin:end]
        if (types == types[0]).all():
            kinds: Iterable[TimestampType] = repeat(_TYPES[int(types[0])])
        else:
            kinds = [_TYPES[one] for one in types.tolist()]
        raw = columns.headers
        headers: Iterable[bytes | None] = repeat(b"")
        if raw is not None and raw.count:
            headers = _slices(raw.data, raw.ends, begin, end, None, 0, columns.count)
        messages: Iterator[MessageAndMetadata[K, V]] = map(
            MessageAndMetadata,
            repeat(topic),
            repeat(partition),
            left,
            columns.timestamps[begin:end].tolist(),
            kinds,
            _slices(
                columns.keys,
                columns.key_ends,
                begin,
                end,
                columns.key_validity,
                columns.null_keys,
                columns.count,
            ),
            _slices(
                columns.values,
                columns.value_ends,
                begin,
                end,
                columns.value_validity,
                columns.null_values,
                columns.count,
            ),
            headers,
            repeat(self._decoders[0]),
            repeat(self._decoders[1]),
        )
        return Page(count, left, messages)


def _slices(
    data: NDArray[np.uint8],
    ends: NDArray[np.int32],
    begin: int,
    end: int,
    validity: NDArray[np.uint8] | None,
    nulls: int,
    rows: int,
) -> Iterable[bytes | None]:
    """The bytes of rows ``begin`` to before ``end``, None for nulls."""
    if nulls == rows:
        return repeat(None)
    first = int(ends[begin])
    content = data[first : int(ends[end])].tobytes()
    places = (ends[begin : end + 1] - first).tolist()
    found: list[bytes | None] = [content[start:stop] for start, stop in pairwise(places)]
    if validity is not None:
        present = np.unpackbits(validity, count=end, bitorder="little")[begin:]
        for row in np.flatnonzero(present == 0).tolist():
            found[row] = None
    return found


def _page_end(columns: Columns, begin: int) -> int:
    """Behind the last row of the page that begins there."""
    values, keys = columns.value_ends, columns.key_ends
    first = int(values[begin]) + int(keys[begin])
    end = min(begin + PAGE_ROWS, columns.count)
    while end - begin > 1 and int(values[end]) + int(keys[end]) - first > _PAGE_BYTES:
        end = begin + (end - begin) // 2
    return end


def _entry_bytes(data: memoryview) -> int:
    """The size of the first entry, as its header has it."""
    return ENTRY_HEADER_BYTES + max(0, int.from_bytes(data[8:ENTRY_HEADER_BYTES], "big", signed=True))


__all__: Sequence[str] = ["PAGE_ROWS", "ChunkReader", "Page"]
