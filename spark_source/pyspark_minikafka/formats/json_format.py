r"""The format ``json``: JSON with a schema, as Spark's ``from_json`` and ``to_json`` read and write it.

Values are read in bulk by Arrow's reader, each wrapped as a row of its own::

    {"v":VALUE}\n{"v":VALUE}\n…

The reader must give as many rows as there are values. That proves that no row has moved: whatever a value
holds, the reader is between two rows where the value's wrapper ends. Inside of a string the line break is an
error, and so is the next wrapper's ``{`` inside of an object or array, behind the end of an element. So each
wrapper gives at least one row, and equal numbers mean one each. NUL, at which the reader would stop, is found
before.

``json_values`` reads what Arrow refuses, and decides whether a value is bad. It takes all that Arrow takes,
so the neighbours of a value never decide what becomes of it. As for ``from_json``, a value ends where its
JSON does: what follows is ignored.
"""

from __future__ import annotations

import decimal
import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json
from pyspark.sql.types import DataType, StringType

from pyspark_minikafka.formats import json_text
from pyspark_minikafka.formats.bad_values import decode_blocks
from pyspark_minikafka.formats.json_values import json_reader
from pyspark_minikafka.formats.spark_schema import BadSchema, nullable
from pyspark_minikafka.formats.value_format import ColumnType, Decoded, arrow_type

_BEFORE, _AFTER = pa.scalar(b'{"v":'), pa.scalar(b"}\n")
_NOTHING_BETWEEN = pa.scalar(b"")

_NO_NUMBER = re.compile(rb"[:,\[]\s*(?:-?Inf(?!inity)|-NaN)")


class _Refused(Exception):
    """A block that is not read in bulk."""


@dataclass(frozen=True, slots=True)
class JsonFormat:
    """JSON of one type.

    schema: None for a sink until it knows the type of its column.
    """

    schema: DataType | None

    def data_type(self) -> DataType:
        """Return the schema."""
        assert self.schema is not None, "reads have a schema"
        return self.schema

    def decode(self, values: pa.BinaryArray, topic: str) -> Decoded:
        """Return the column of ``values``."""
        kind = arrow_type(self.data_type())
        read_as = _read_as(kind)

        def whole(block: pa.BinaryArray) -> pa.Array | None:
            try:
                return None if read_as is None else _read(block, read_as, kind)
            except (_Refused, pa.ArrowInvalid, pa.ArrowCapacityError):
                return None

        return decode_blocks(values, kind, whole, json_reader(self.data_type()))

    def for_column(self, data_type: DataType) -> JsonFormat:
        """Return the format for a column of ``data_type``. A column of strings is JSON already."""
        try:
            return JsonFormat(nullable(data_type))
        except BadSchema as problem:
            raise ColumnType(f"a type that JSON can have ({problem})") from None

    def encode(self, column: pa.Array, topic: str) -> pa.BinaryArray:
        """Return the JSON text of each element."""
        texts = column if isinstance(self.schema, StringType) else json_text.texts(column)
        return texts.cast(pa.binary())


def _read_as(kind: pa.DataType) -> pa.DataType | None:
    """Return the type as which Arrow's reader reads ``kind``; None if it cannot.

    Its dates are numbers, and its times may have a zone that the type has not: these are read as text.
    """
    if pa.types.is_map(kind) or pa.types.is_binary(kind):
        return None
    if pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.tz is None):
        return pa.string()
    if pa.types.is_struct(kind):
        children = [(child.name, _read_as(child.type)) for child in kind]
        return None if any(child is None for _, child in children) else pa.struct(children)
    if pa.types.is_list(kind):
        element = _read_as(kind.value_type)
        return None if element is None else pa.list_(pa.field(kind.value_field.name, element))
    return kind


def _read(values: pa.BinaryArray, read_as: pa.DataType, kind: pa.DataType) -> pa.Array:
    """Return ``values``, of which some may be null, as an array of ``kind``. Raise ArrowInvalid or _Refused
    if one of them is not read.
    """
    present = values.drop_null() if values.null_count else values
    if not len(present):
        return pa.nulls(len(values), kind)
    present.cast(pa.string())  # raises for what is no UTF-8, which the reader does not look at
    joined = pc.binary_join_element_wise(_BEFORE, present, _AFTER, _NOTHING_BETWEEN)
    _, ends, data = joined.buffers()
    size = int(np.frombuffer(ends, dtype=np.int32)[len(present)])
    text = data.slice(0, size)
    if _misleads_the_reader(text.to_pybytes()):
        raise _Refused
    table = arrow_json.read_json(
        pa.BufferReader(text),
        # One block: it is never divided, so a value may have line breaks.
        read_options=arrow_json.ReadOptions(use_threads=False, block_size=size + 1),
        parse_options=arrow_json.ParseOptions(
            explicit_schema=pa.schema([("v", read_as)]), unexpected_field_behavior="ignore"
        ),
    )
    if table.num_rows != len(present):
        raise _Refused
    found = _as_kind(table.column(0).combine_chunks(), kind)
    if not values.null_count:
        return found
    rows = np.asarray(values.is_valid())
    return found.take(pa.array(np.where(rows, np.cumsum(rows) - 1, 0), mask=~rows))


def _misleads_the_reader(text: bytes) -> bool:
    """Return True for what is no JSON and the reader takes: it ends at NUL, and knows some more numbers."""
    return b"\0" in text or ((b"Inf" in text or b"-NaN" in text) and _NO_NUMBER.search(text) is not None)


def _as_kind(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return what was read as an array of ``kind``. Raise as ``_read``."""
    if pa.types.is_struct(kind):
        children = [_as_kind(array.field(number), child.type) for number, child in enumerate(kind)]
        return pa.Array.from_buffers(kind, len(array), array.buffers()[:1], children=children)
    if pa.types.is_list(kind):
        children = [_as_kind(array.values, kind.value_type)]
        return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], children=children)
    if pa.types.is_decimal(kind):
        _check_precision(array, kind)
        return array
    return array if array.type == kind else array.cast(kind)


def _check_precision(array: pa.Array, kind: pa.Decimal128Type) -> None:
    """Raise _Refused for a number with more digits than ``kind`` has, which the reader lets pass."""
    limit = decimal.Decimal(10) ** (kind.precision - kind.scale)
    found = pc.min_max(array).as_py()
    if found["max"] is not None and (found["max"] >= limit or found["min"] <= -limit):
        raise _Refused
