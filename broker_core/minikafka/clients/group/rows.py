"""The rows of one fetched set, as columns or as objects, in pieces of any size.

The kernels write keys and values in Arrow's own layout: this is the only copy between the response and a
table. A part of a set is a slice of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import repeat

import numpy as np
import pyarrow as pa

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.base.memory import without_collection
from minikafka.clients.group.fetched_records import ConsumerRecord, Fetched, bytes_of_rows
from minikafka.records.columns import HEADERS_TYPE, Columns, DamagedEntry, decode_pieces
from minikafka.records.format.headers import to_arrow
from minikafka.records.format.record import Headers

SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        ("timestamp", pa.timestamp("ms", tz="UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)
"""The schema of a consumer's tables. The timestamp is null if a record has none (magic 0)."""

SCHEMA_WITH_HEADERS = SCHEMA.append(pa.field("headers", HEADERS_TYPE))

_record: Callable[[Iterable[object]], ConsumerRecord] = partial(tuple.__new__, ConsumerRecord)
"""``ConsumerRecord._make`` without the check of the number of fields, which takes twice as long."""


def schema(*, headers: bool) -> pa.Schema:
    """Return the schema of all tables."""
    return SCHEMA_WITH_HEADERS if headers else SCHEMA


def table(batches: list[pa.RecordBatch], *, headers: bool) -> pa.Table:
    """Return the batches as one table, without a copy."""
    return pa.Table.from_batches(batches, schema(headers=headers))


class Rows:
    """Returns the rows of ``fetched`` in order. Use either ``batch``, or ``records`` and ``skip``, at a time.

    ``position`` is the offset of the first row that was not returned, ``fetched.next_offset`` at the end.
    """

    def __init__(self, fetched: Fetched, *, headers: bool) -> None:
        self.fetched = fetched
        self.headers = headers
        self.position = fetched.start_offset
        self._pieces = decode_pieces(fetched.data, fetched.start_offset, fetched.next_offset, headers=headers)
        self._columns: Columns | None = None
        self._batch: pa.RecordBatch | None = None
        self._headers: pa.ListArray | None = None
        self._row = 0

    def available(self) -> int:
        """Return the number of decoded rows that remain; 0 at the end.

        Raises CORRUPT_MESSAGE, with the partition and the offset, if the next row is damaged.
        """
        while self._columns is None or self._row == self._columns.count:
            columns = self._next_piece()
            if columns is None:
                self.position = self.fetched.next_offset
                return 0
            self._columns, self._row = columns, 0
            self._batch = self._headers = None
        return self._columns.count - self._row

    def batch(self, max_rows: int, *, headers: bool) -> pa.RecordBatch:
        """Return the next rows, at most ``max_rows`` of the available ones; they count as returned."""
        columns, start = self._current()
        if self._batch is None or self._batch.num_columns != len(schema(headers=headers)):
            self._batch = record_batch(columns, self.fetched.topic_partition, headers=headers)
        found = self._batch.slice(start, max_rows)
        self.skip(found.num_rows)
        return found

    def records(self, max_rows: int) -> list[ConsumerRecord]:
        """Return the next rows as objects, at most ``max_rows``; only ``skip`` counts them as returned."""
        columns, start = self._current()
        stop = min(columns.count, start + max_rows)
        if self._headers is None and columns.headers is not None and columns.headers.count:
            self._headers = to_arrow(columns.headers)
        return records(columns, self.fetched.topic_partition, start, stop, self._headers)

    def skip(self, count: int) -> None:
        """Count ``count`` more rows as returned."""
        columns, start = self._current()
        self.skip_to(self._position(columns, start + count), count)

    def skip_to(self, position: int, count: int = 1) -> None:
        """Count rows as returned up to ``position``, one of ``positions``."""
        self._row += count
        self.position = position

    def positions(self, count: int) -> list[int]:
        """Return the position after each of the next ``count`` available rows."""
        columns, start = self._current()
        stop = start + count
        return [*columns.offsets[start + 1 : stop].tolist(), self._position(columns, stop)]

    def _position(self, columns: Columns, row: int) -> int:
        # After the last row there may still be damage: the end is only known when no piece is left.
        return columns.next_offset if row == columns.count else int(columns.offsets[row])

    @property
    def done(self) -> bool:
        """True when no row is left."""
        return self.position >= self.fetched.next_offset

    def _current(self) -> tuple[Columns, int]:
        assert self._columns is not None, "call available() first"
        return self._columns, self._row

    def _next_piece(self) -> Columns | None:
        try:
            return next(self._pieces, None)
        except DamagedEntry as damage:
            raise BrokerError(
                ErrorCode.CORRUPT_MESSAGE,
                f"{self.fetched.topic_partition} at offset {damage.offset}: {damage.detail}; seek to "
                f"{damage.after_offset} to skip it",
            ) from damage


def record_batch(columns: Columns, partition: TopicPartition, *, headers: bool) -> pa.RecordBatch:
    """Return all rows, with the columns of SCHEMA, or of SCHEMA_WITH_HEADERS."""
    count = columns.count
    arrays = [
        pa.repeat(pa.scalar(partition.topic, pa.string()), count),
        pa.repeat(pa.scalar(partition.partition, pa.int32()), count),
        pa.array(columns.offsets),
        _timestamps(columns),
        columns.key_array(),
        columns.value_array(),
    ]
    if not headers:
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
    assert columns.headers is not None
    return pa.RecordBatch.from_arrays([*arrays, to_arrow(columns.headers)], schema=SCHEMA_WITH_HEADERS)


def _timestamps(columns: Columns) -> pa.Array:
    bitmap, none = None, 0
    if columns.count and columns.timestamp_types.min() < 0:
        there = columns.timestamp_types >= 0
        bitmap, none = pa.py_buffer(np.packbits(there, bitorder="little")), int(columns.count - there.sum())
    buffers = [bitmap, pa.py_buffer(columns.timestamps)]
    return pa.Array.from_buffers(SCHEMA.field("timestamp").type, columns.count, buffers, null_count=none)


def records(
    columns: Columns, partition: TopicPartition, start: int, stop: int, headers: pa.ListArray | None
) -> list[ConsumerRecord]:
    """Return the rows from ``start`` to before ``stop`` as objects; ``headers`` None: they have none."""
    rows = zip(
        repeat(partition.topic),
        repeat(partition.partition),
        columns.offsets[start:stop].tolist(),
        columns.timestamps[start:stop].tolist(),
        bytes_of_rows(columns.key_ends, columns.keys, columns.key_validity, start, stop),
        bytes_of_rows(columns.value_ends, columns.values, columns.value_validity, start, stop),
        _headers(headers, start, stop),
        strict=False,  # three of them have no end
    )
    return without_collection(lambda: list(map(_record, rows)))  # a third less processor time


def _headers(column: pa.ListArray | None, start: int, stop: int) -> Iterator[Headers]:
    if column is None:
        return repeat(())
    rows = column.slice(start, stop - start).to_pylist()
    return (tuple((header["key"], header["value"]) for header in row or ()) for row in rows)
