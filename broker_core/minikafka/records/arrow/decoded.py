"""Decoded messages as Arrow columns: those of Spark's Kafka connector.

``key`` and ``value`` are binary, ``topic`` string, ``partition`` int32, ``offset`` int64, ``timestamp``
microseconds UTC, ``timestampType`` int32 (-1 for magic 0, whose timestamp is -1 ms, as in that connector),
``headers`` a list of structs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.records.format.headers import HEADERS_TYPE, RawHeaders, to_arrow
from minikafka.records.kernels.arrays import INT64_MAX

MAX_COLUMN_BYTES = 0x7FFFFFFF
"""The maximum of a binary column with int32 offsets; a decoder is full before that."""

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
    ]
)
"""Spark's order and types."""

SCHEMA_WITH_HEADERS = SCHEMA.append(pa.field("headers", HEADERS_TYPE))
"""With Spark's option ``includeHeaders``."""


def schema_of(columns: Sequence[str]) -> pa.Schema:
    """Return the schema of ``columns``, in this order. KeyError for an unknown one."""
    return pa.schema([SCHEMA_WITH_HEADERS.field(name) for name in columns])


_TIMESTAMP_LIMIT_MS = INT64_MAX // 1000


@dataclass(frozen=True, slots=True)
class Columns:
    """Decoded messages: ``count`` rows.

    offsets           int64[count]
    timestamps        int64[count], ms, -1 for none
    timestamp_types   int8[count], a TimestampType
    key_ends          int32[count + 1]: row i is ``keys[key_ends[i]:key_ends[i + 1]]``
    keys              uint8, the keys one after another
    key_validity      Arrow bitmap, or None when no key is null
    next_offset       the first offset that was not decoded: the next decoding starts there
    valid_bytes       the decoded bytes of the last data; anything after them was not used, or not completely
    headers           of each row; None if they were not requested
    complete          False if there was no room for more rows: there may be more from ``next_offset`` on

    Of keys or values that were not requested there are no bytes, and one end.
    """

    count: int
    offsets: NDArray[np.int64]
    timestamps: NDArray[np.int64]
    timestamp_types: NDArray[np.int8]
    key_ends: NDArray[np.int32]
    keys: NDArray[np.uint8]
    key_validity: NDArray[np.uint8] | None
    null_keys: int
    value_ends: NDArray[np.int32]
    values: NDArray[np.uint8]
    value_validity: NDArray[np.uint8] | None
    null_values: int
    headers: RawHeaders | None
    next_offset: int
    valid_bytes: int
    complete: bool

    def key_array(self) -> pa.BinaryArray:
        """Return the keys."""
        return _binary("key", self.count, self.key_ends, self.keys, self.key_validity, self.null_keys)

    def value_array(self) -> pa.BinaryArray:
        """Return the values."""
        return _binary(
            "value", self.count, self.value_ends, self.values, self.value_validity, self.null_values
        )

    def record_batch(self, topic: str, partition: int, schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
        """Return all rows as one batch with the columns of ``schema``, in its order.

        INVALID_TIMESTAMP, naming the record, when a timestamp does not fit 64 bits of microseconds.
        """
        return pa.RecordBatch.from_arrays(
            [self._column(name, topic, partition) for name in schema.names], schema=schema
        )

    def _column(self, name: str, topic: str, partition: int) -> pa.Array:
        if name == "key":
            return self.key_array()
        if name == "value":
            return self.value_array()
        if name == "topic":
            return _repeated(topic, self.count)
        if name == "partition":
            return pa.array(np.full(self.count, partition, dtype=np.int32))
        if name == "offset":
            return pa.array(self.offsets)
        if name == "timestamp":
            return self._microseconds(f"{topic}-{partition}")
        if name == "timestampType":
            return pa.array(self.timestamp_types.astype(np.int32))
        if name == "headers" and self.headers is not None:
            return to_arrow(self.headers)
        raise ValueError(
            f"no column {name!r}: expected one of {', '.join(SCHEMA.names)}, or headers if they were decoded"
        )

    def _microseconds(self, partition: str) -> pa.Array:
        # Out of range is rare, so look at both ends only.
        if self.count and (
            self.timestamps.max() > _TIMESTAMP_LIMIT_MS or self.timestamps.min() < -_TIMESTAMP_LIMIT_MS
        ):
            far = (self.timestamps > _TIMESTAMP_LIMIT_MS) | (self.timestamps < -_TIMESTAMP_LIMIT_MS)
            row = int(np.flatnonzero(far)[0])
            raise BrokerError(
                ErrorCode.INVALID_TIMESTAMP,
                f"the timestamp of the record of {partition} at offset {self.offsets[row]}, "
                f"{self.timestamps[row]} ms, does not fit a column of microseconds",
            )
        return pa.Array.from_buffers(
            SCHEMA.field("timestamp").type, self.count, [None, pa.py_buffer(self.timestamps * 1000)]
        )


def _binary(
    name: str,
    count: int,
    ends: NDArray[np.int32],
    data: NDArray[np.uint8],
    validity: NDArray[np.uint8] | None,
    nulls: int,
) -> pa.BinaryArray:
    if ends.size <= count:
        raise ValueError(f"no column {name!r}: it was not decoded")
    bitmap = None if validity is None else pa.py_buffer(validity)
    buffers = [bitmap, pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), count, buffers, null_count=nulls)


def _repeated(text: str, count: int) -> pa.StringArray:
    encoded = text.encode()
    if len(encoded) * count > MAX_COLUMN_BYTES:
        raise ValueError(
            f"{count} rows with a topic name of {len(encoded)} bytes exceed the limit of a batch, "
            f"{MAX_COLUMN_BYTES} bytes: decode fewer rows"
        )
    ends = np.arange(count + 1, dtype=np.int32) * np.int32(len(encoded))
    return pa.StringArray.from_buffers(count, pa.py_buffer(ends), pa.py_buffer(encoded * count))
