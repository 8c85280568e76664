"""The format ``json``: JSON with a schema, as Spark's ``from_json`` and ``to_json`` read and write it.

Values are read in bulk by a kernel (``minikafka.records.json``). ``json_values`` reads those that the kernel
refuses, one by one, and decides whether they are bad. It takes all that the kernel takes. As for
``from_json``, a value ends where its JSON does: what follows is ignored.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import DataType, StringType

from minikafka.records.json import JsonReader
from pyspark_minikafka.formats import json_text
from pyspark_minikafka.formats.bad_values import decode_each
from pyspark_minikafka.formats.json_values import json_reader
from pyspark_minikafka.formats.spark_schema import BadSchema, nullable
from pyspark_minikafka.formats.value_format import ColumnType, Decoded, arrow_type, with_prefix


@dataclass(frozen=True, slots=True)
class JsonFormat:
    """JSON of one type.

    schema: None for a sink without one, until it knows the type of its column. prefix: before each text that
    is written.
    """

    schema: DataType | None
    prefix: bytes = b""

    def data_type(self) -> DataType:
        """Return the schema."""
        assert self.schema is not None, "reads have a schema"
        return self.schema

    def decode(self, values: pa.BinaryArray, topic: str) -> Decoded:
        """Return the column of ``values``."""
        column, refused = _reader(arrow_type(self.data_type())).read(values)
        return decode_each(values, refused, column, json_reader(self.data_type()))

    def for_column(self, data_type: DataType) -> JsonFormat:
        """Return the format for a column of ``data_type``: that of the schema, if there is one. A column of
        strings is JSON already.
        """
        try:
            found = nullable(data_type)
        except BadSchema as problem:
            raise ColumnType(f"a type that JSON can have ({problem})") from None
        if self.schema not in (None, found) and not isinstance(found, StringType):
            raise ColumnType(f"string, or the type of its schema, {self.data_type().simpleString()}")
        return JsonFormat(found)

    def for_topic(self, topic: str, data_type: DataType) -> JsonFormat:
        """Return this format."""
        return self

    def encode(self, column: pa.Array, topic: str) -> pa.BinaryArray:
        """Return the JSON text of each element."""
        texts = column if isinstance(self.schema, StringType) else json_text.texts(column)
        return with_prefix(self.prefix, texts.cast(pa.binary()))


@functools.lru_cache(16)
def _reader(kind: pa.DataType) -> JsonReader:
    """Return the reader of a type, whose tables are made once."""
    return JsonReader(kind)
