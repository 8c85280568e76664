"""The format ``avro``: values in Avro binary of one schema, without a header, as `from_avro` reads them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from pyspark.sql.types import DataType

from minikafka.records.avro import (
    AvroDecoder,
    AvroEncoder,
    AvroError,
    Enum,
    Fixed,
    Record,
    Type,
    arrow_type,
    parse,
)
from pyspark_minikafka.formats import value_format
from pyspark_minikafka.formats.avro_schema import schema_of, spark_type
from pyspark_minikafka.formats.value_format import ColumnType, Decoded

if TYPE_CHECKING:
    import pyarrow as pa

EXPECTED = "an Avro schema in JSON"


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A schema: its text, and the type that this means. ``references``: the texts that it refers to."""

    text: str
    type: Type

    @classmethod
    def parsed(cls, text: str, references: tuple[str, ...] = ()) -> AvroSchema:
        """Return the schema of a text. Raise AvroError if it is none."""
        return cls(text, parse(text, references))

    @property
    def name(self) -> str | None:
        """The full name of its record, enum or fixed type; None for others."""
        return self.type.name if isinstance(self.type, (Enum, Fixed, Record)) else None

    def data_type(self) -> DataType:
        """Return Spark's type of its column."""
        return spark_type(arrow_type(self.type))

    def check_column(self, data_type: DataType) -> None:
        """Raise ColumnType for a column that cannot be written with it."""
        try:
            encoder(self.type, value_format.arrow_type(data_type), b"")
        except AvroError as problem:
            raise ColumnType(f"a type that its Avro schema can have ({problem})") from None


def schema_for(data_type: DataType) -> AvroSchema:
    """Return the schema that Spark's ``to_avro`` gives a column. Raise ColumnType if Avro has none for it."""
    return AvroSchema.parsed(json.dumps(schema_of(data_type)))


@lru_cache(maxsize=1_000)
def decoder(writer: Type, reader: Type) -> AvroDecoder:
    """Return the decoder of two schemas, which is compiled once in a process. Raise AvroError."""
    return AvroDecoder(writer, reader)


@lru_cache(maxsize=1_000)
def encoder(schema: Type, column: pa.DataType, prefix: bytes) -> AvroEncoder:
    """Return the encoder of a column's type, which is compiled once in a process. Raise AvroError."""
    return AvroEncoder(schema, column, prefix)


@dataclass(frozen=True, slots=True)
class AvroFormat:
    """Avro binary of one schema.

    schema: None in a write that takes the schema of its column. prefix: before each value that is written.
    """

    schema: AvroSchema | None
    prefix: bytes = b""

    def data_type(self) -> DataType:
        """Return Spark's type of the schema."""
        return self._known().data_type()

    def decode(self, values: pa.BinaryArray, topic: str) -> Decoded:
        """Return the column of ``values``."""
        kind = self._known().type
        found = decoder(kind, kind).decode(values)
        return Decoded(found.column, found.bad, found.reasons)

    def for_column(self, data_type: DataType) -> AvroFormat:
        """Return the format that writes a column, with the given schema or that of ``to_avro``."""
        schema = self.schema or schema_for(data_type)
        schema.check_column(data_type)
        return AvroFormat(schema, self.prefix)

    def for_topic(self, topic: str, data_type: DataType) -> AvroFormat:
        """Return this format."""
        return self

    def encode(self, column: pa.Array, topic: str) -> pa.BinaryArray:
        """Return the Avro binary of each element."""
        return encoder(self._known().type, column.type, self.prefix).encode(column)

    def _known(self) -> AvroSchema:
        assert self.schema is not None, "a read has a schema, and a write is made for its column"
        return self.schema
