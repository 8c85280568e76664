"""The port of a format: how the keys or the values of a query become a column, and a column their bytes."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, StructType

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_UTC: dict[str, Any] = (
    {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
)
"""Spark 4.0 has times in UTC by default, later ones if asked for it."""


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the schema of the record batches that Spark expects for ``schema``, to the letter."""
    return to_arrow_schema(schema, **_UTC)


def arrow_type(data_type: DataType) -> pa.DataType:
    """Return the Arrow type that Spark expects of a column of ``data_type``."""
    return arrow_schema(StructType().add("column", data_type)).field(0).type


@dataclass(frozen=True, slots=True)
class Decoded:
    """A decoded column.

    column: one element for each value, of ``arrow_type(data_type())``; null where the value is null or bad.
    bad: the numbers of the values that are not in the format, ascending. reasons: one for each of ``bad``.
    """

    column: pa.Array
    bad: NDArray[np.int64]
    reasons: tuple[str, ...]


class ValueFormat(Protocol):
    """The format of the keys or of the values of one query; it is pickled with the options.

    Values are decoded and encoded in bulk, without a Python object for each.
    """

    def data_type(self) -> DataType:
        """Return Spark's type of the decoded column. Driver only."""

    def decode(self, values: pa.BinaryArray, topic: str) -> Decoded:
        """Return the column of ``values``, which were read from ``topic``."""

    def for_column(self, data_type: DataType) -> ValueFormat:
        """Return the format that writes a column of ``data_type``. Raise ColumnType for one that it cannot
        write. Driver only.
        """

    def for_topic(self, topic: str, data_type: DataType) -> ValueFormat:
        """Return the format that writes a column of ``data_type``, for which this one was made, to ``topic``
        alone. It has the id of its schema, so that no task asks a registry. Raise ColumnType, or the error of
        the registry. Driver only.
        """

    def encode(self, column: pa.Array, topic: str) -> pa.BinaryArray:
        """Return the bytes of each element of ``column``, which are for ``topic``; null for null."""


def with_prefix(prefix: bytes, contents: pa.BinaryArray) -> pa.BinaryArray:
    """Return each of ``contents`` behind ``prefix``; null for null."""
    if not prefix:
        return contents
    return pc.binary_join_element_wise(pa.scalar(prefix, pa.binary()), contents, pa.scalar(b"", pa.binary()))


class ColumnType(ValueError):
    """A column's type that a format cannot write. ``allowed`` says which it can."""

    def __init__(self, allowed: str) -> None:
        super().__init__(allowed)
        self.allowed = allowed
