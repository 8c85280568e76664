"""Avro values to Arrow columns and back, without a Python object a value.

A schema (``types``) is compiled once to a program, which a kernel runs for each value of a column.

    types        Avro's types                  parsing      a schema's JSON to types, by fastavro
    columns      their columns, with Spark's types     resolution   a writer's schema read as a reader's
    decoding     values to columns                     encoding     columns to values

It may import ``records.arrow`` and ``records.kernels``.
"""

from minikafka.records.avro.columns import arrow_type, is_nullable
from minikafka.records.avro.decoding import AvroDecoder, DecodedAvro
from minikafka.records.avro.encoding import AvroEncoder, BadAvroRow
from minikafka.records.avro.parsing import MissingAvro, default_bytes, parse
from minikafka.records.avro.resolution import UnresolvedSchema
from minikafka.records.avro.types import (
    NULL,
    Array,
    AvroError,
    Decimal,
    Enum,
    Field,
    Fixed,
    Map,
    Primitive,
    Record,
    Type,
    Union,
)

__all__ = [
    "NULL",
    "Array",
    "AvroDecoder",
    "AvroEncoder",
    "AvroError",
    "BadAvroRow",
    "Decimal",
    "DecodedAvro",
    "Enum",
    "Field",
    "Fixed",
    "Map",
    "MissingAvro",
    "Primitive",
    "Record",
    "Type",
    "Union",
    "UnresolvedSchema",
    "arrow_type",
    "default_bytes",
    "is_nullable",
    "parse",
]
