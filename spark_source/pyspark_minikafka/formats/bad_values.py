"""Values that are not in their format: how they are found, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql.types import BinaryType, StringType, StructType

from minikafka.base.errors import MinikafkaError
from minikafka.base.ids import TopicPartition
from minikafka.base.printable import printable
from pyspark_minikafka.formats.value_format import Decoded

if TYPE_CHECKING:
    from numpy.typing import NDArray

OPTION = "minikafka.bad.values"
DEAD_LETTER_TOPIC = "minikafka.dead.letter.topic"
ERROR_TYPE = StructType().add("bytes", BinaryType()).add("reason", StringType())
"""The type of ``key_error`` and ``value_error``: the bytes as they were read, and why they are bad."""

_SHOWN_BYTES = 100
"""The most bytes of a value in an error."""
_SMALLEST_BLOCK = 256
"""Values that are looked at one by one; larger blocks are halved. A bulk reader's call costs as much as some
tens of values.
"""


class BadValues(Enum):
    """The ways to treat a value that is not in its format."""

    FAILFAST = "failfast"
    PERMISSIVE = "permissive"
    DEAD_LETTER = "dead-letter"


class BadValue(MinikafkaError):
    """A key or value that is not in its format, and ends the query."""


def bad_value(side: str, at: TopicPartition, offset: int, value: bytes, reason: str) -> BadValue:
    """Return the error of one value. ``side``: key or value."""
    shown = repr(value[:_SHOWN_BYTES])[1:] + ("…" if len(value) > _SHOWN_BYTES else "")
    return BadValue(
        f"the {side} of {at} at offset {offset} is not in the format of minikafka.{side}.format: "
        f"{printable(reason)}; its {len(value)} bytes are {shown}. Check the format and its schema, or set "
        f"{OPTION}=permissive to read such a {side} as null, with the reason in the column {side}_error, or "
        f"{OPTION}=dead-letter to send such records to another topic"
    )


def errors(values: pa.BinaryArray, decoded: Decoded) -> pa.StructArray:
    """Return the column ``value_error``: null where the value is good."""
    rows = np.full(len(values), -1, dtype=np.int64)
    rows[decoded.bad] = np.arange(len(decoded.bad))
    numbers = pa.array(rows, mask=rows < 0)
    found = pa.StructArray.from_arrays(
        [values.take(pa.array(decoded.bad)), pa.array(decoded.reasons, pa.string())], ["bytes", "reason"]
    )
    return found.take(numbers)


def decode_blocks(
    values: pa.BinaryArray,
    kind: pa.DataType,
    whole: Callable[[pa.BinaryArray], pa.Array | None],
    single: Callable[[bytes], object],
) -> Decoded:
    """Return ``values`` decoded to ``kind``: blocks are halved until they decode as a whole, or are small.

    whole: the decoded block, or None if any of its values does not decode in bulk. single: one value, as
    ``pyarrow.array`` takes it; ValueError with the reason if the value is bad.
    """
    columns: list[pa.Array] = []
    bad: list[int] = []
    reasons: list[str] = []
    blocks = [(0, len(values))] if len(values) else []
    while blocks:
        start, end = blocks.pop()
        block = values.slice(start, end - start)
        column = whole(block)
        if column is not None:
            columns.append(column)
        elif end - start > _SMALLEST_BLOCK:
            middle = (start + end) // 2
            blocks += [(middle, end), (start, middle)]
        else:
            found: list[object] = []
            for number, value in enumerate(block.to_pylist(), start):
                try:
                    found.append(None if value is None else single(value))
                except ValueError as problem:
                    found.append(None)
                    bad.append(number)
                    reasons.append(str(problem))
            columns.append(pa.array(found, kind))
    column = columns[0] if len(columns) == 1 else pa.concat_arrays(columns or [pa.array([], kind)])
    return Decoded(column, np.array(bad, dtype=np.int64), tuple(reasons))


def decode_each(
    values: pa.BinaryArray, refused: NDArray[np.int64], column: pa.Array, single: Callable[[bytes], object]
) -> Decoded:
    """Return ``column``, with the values that a bulk reader has refused decoded one by one.

    refused: their numbers, ascending; ``column`` is null there. single: as of ``decode_blocks``.
    """
    found: list[object] = []
    bad: list[int] = []
    reasons: list[str] = []
    for number, value in zip(refused.tolist(), values.take(pa.array(refused)).to_pylist(), strict=True):
        try:
            found.append(single(value))
        except ValueError as problem:
            found.append(None)
            bad.append(number)
            reasons.append(str(problem))
    if len(bad) < len(refused):
        places = np.arange(len(values))
        places[refused] = len(values) + np.arange(len(refused))
        column = pa.concat_arrays([column, pa.array(found, column.type)]).take(pa.array(places))
    return Decoded(column, np.array(bad, dtype=np.int64), tuple(reasons))
