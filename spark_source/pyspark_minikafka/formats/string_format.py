"""The format ``string``: text in UTF-8."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql.types import DataType, StringType

from pyspark_minikafka.formats.bad_values import find_bad, without_bad
from pyspark_minikafka.formats.value_format import ColumnType, Decoded


@dataclass(frozen=True, slots=True)
class StringFormat:
    """Text in UTF-8, as Spark's strings. Bytes that are not UTF-8 are bad."""

    def data_type(self) -> DataType:
        """Return Spark's string."""
        return StringType()

    def decode(self, values: pa.BinaryArray, topic: str) -> Decoded:
        """Return ``values`` as text."""
        try:
            return Decoded(values.cast(pa.string()), np.empty(0, dtype=np.int64), ())
        except pa.ArrowInvalid:
            bad, reasons = find_bad(values, _is_text, _fault)
            return Decoded(without_bad(values, bad).cast(pa.string()), bad, reasons)

    def for_column(self, data_type: DataType) -> StringFormat:
        """Return this format, for a column of strings."""
        if not isinstance(data_type, StringType):
            raise ColumnType("string")
        return self

    def encode(self, column: pa.Array, topic: str) -> pa.BinaryArray:
        """Return the bytes of each text."""
        return column.cast(pa.binary())


def _is_text(values: pa.BinaryArray) -> bool:
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _fault(value: bytes) -> str | None:
    try:
        value.decode()
    except UnicodeDecodeError as problem:
        return f"no UTF-8 at byte {problem.start} ({problem.reason})"
    return None
