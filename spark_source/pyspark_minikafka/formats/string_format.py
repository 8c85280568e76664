"""The format ``string``: text in UTF-8."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import DataType, StringType

from pyspark_minikafka.formats.bad_values import decode_blocks
from pyspark_minikafka.formats.value_format import ColumnType, Decoded


@dataclass(frozen=True, slots=True)
class StringFormat:
    """Text in UTF-8, as Spark's strings. Bytes that are not UTF-8 are bad."""

    def data_type(self) -> DataType:
        """Return Spark's string."""
        return StringType()

    def decode(self, values: pa.BinaryArray, topic: str) -> Decoded:
        """Return ``values`` as text."""
        return decode_blocks(values, pa.string(), _as_text, text_of)

    def for_column(self, data_type: DataType) -> StringFormat:
        """Return this format, for a column of strings."""
        if not isinstance(data_type, StringType):
            raise ColumnType("string")
        return self

    def for_topic(self, topic: str, data_type: DataType) -> StringFormat:
        """Return this format."""
        return self

    def encode(self, column: pa.Array, topic: str) -> pa.BinaryArray:
        """Return the bytes of each text."""
        return column.cast(pa.binary())


def _as_text(values: pa.BinaryArray) -> pa.StringArray | None:
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return None


def text_of(value: bytes) -> str:
    """Return one value as text. Raise ValueError with the place that is no UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError as problem:
        raise ValueError(f"no UTF-8 at byte {problem.start} ({problem.reason})") from None
