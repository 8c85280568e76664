"""Values that are not in their format: how they are found, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BinaryType, StringType, StructType

from minikafka.base.errors import MinikafkaError
from minikafka.base.ids import TopicPartition
from minikafka.base.printable import printable
from pyspark_minikafka.formats.value_format import Decoded

if TYPE_CHECKING:
    from numpy.typing import NDArray

OPTION = "minikafka.bad.values"
ERROR_TYPE = StructType().add("bytes", BinaryType()).add("reason", StringType())
"""The type of ``key_error`` and ``value_error``: the bytes as they were read, and why they are bad."""

_SHOWN_BYTES = 100
"""The most bytes of a value in an error."""
_SMALLEST_BLOCK = 32
"""Values that are looked at one by one; larger blocks are halved."""


class BadValues(Enum):
    """The ways to treat a value that is not in its format."""

    FAILFAST = "failfast"
    PERMISSIVE = "permissive"


class BadValue(MinikafkaError):
    """A key or value that is not in its format, and ends the query."""


def bad_value(side: str, at: TopicPartition, offset: int, value: bytes, reason: str) -> BadValue:
    """Return the error of one value. ``side``: key or value."""
    shown = repr(value[:_SHOWN_BYTES])[1:] + ("…" if len(value) > _SHOWN_BYTES else "")
    return BadValue(
        f"the {side} of {at} at offset {offset} is not in the format of minikafka.{side}.format: "
        f"{printable(reason)}; its {len(value)} bytes are {shown}. Set {OPTION}=permissive to read such a "
        f"{side} as null, with the reason in the column {side}_error"
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


def without_bad(values: pa.BinaryArray, bad: NDArray[np.int64]) -> pa.BinaryArray:
    """Return ``values`` with null in the place of each bad one."""
    mask = np.zeros(len(values), dtype=np.bool_)
    mask[bad] = True
    return pc.if_else(pa.array(mask), None, values)


def find_bad(
    values: pa.BinaryArray, is_good: Callable[[pa.BinaryArray], bool], fault: Callable[[bytes], str | None]
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return the numbers of the bad ones among ``values``, and the reasons: blocks are halved until they are
    good, or small.

    is_good: whether all values of a block are good. fault: why one value is bad, or None.
    """
    bad: list[int] = []
    reasons: list[str] = []
    blocks = [(0, len(values))]
    while blocks:
        start, end = blocks.pop()
        block = values.slice(start, end - start)
        if end - start > _SMALLEST_BLOCK:
            if not is_good(block):
                middle = (start + end) // 2
                blocks += [(middle, end), (start, middle)]
            continue
        for number, value in enumerate(block.to_pylist(), start):
            reason = None if value is None else fault(value)
            if reason is not None:
                bad.append(number)
                reasons.append(reason)
    return np.array(bad, dtype=np.int64), tuple(reasons)
