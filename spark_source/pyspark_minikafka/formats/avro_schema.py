"""The Spark types of columns that Avro was decoded to, and the Avro schemas that Spark gives its types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pyspark_minikafka.formats.value_format import ColumnType

_SPARK_TYPES: Mapping[pa.DataType, DataType] = {
    pa.null(): NullType(),
    pa.bool_(): BooleanType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.float32(): FloatType(),
    pa.float64(): DoubleType(),
    pa.binary(): BinaryType(),
    pa.string(): StringType(),
    pa.date32(): DateType(),
    pa.timestamp("us", tz="UTC"): TimestampType(),
    pa.timestamp("us"): TimestampNTZType(),
}


def spark_type(kind: pa.DataType) -> DataType:
    """Return Spark's type of a column that was decoded."""
    if pa.types.is_struct(kind):
        return StructType([StructField(one.name, spark_type(one.type), one.nullable) for one in kind])
    if pa.types.is_list(kind):
        return ArrayType(spark_type(kind.value_type), kind.value_field.nullable)
    if pa.types.is_map(kind):
        return MapType(StringType(), spark_type(kind.item_type), kind.item_field.nullable)
    if pa.types.is_decimal(kind):
        return DecimalType(kind.precision, kind.scale)
    return _SPARK_TYPES[kind]


_AVRO_TYPES: Mapping[type[DataType], Any] = {
    NullType: "null",
    BooleanType: "boolean",
    ByteType: "int",
    ShortType: "int",
    IntegerType: "int",
    LongType: "long",
    FloatType: "float",
    DoubleType: "double",
    BinaryType: "bytes",
    StringType: "string",
    DateType: {"type": "int", "logicalType": "date"},
    TimestampType: {"type": "long", "logicalType": "timestamp-micros"},
    TimestampNTZType: {"type": "long", "logicalType": "local-timestamp-micros"},
}


def schema_of(data_type: DataType, name: str = "topLevelRecord", namespace: str = "") -> Any:
    """Return the schema, as JSON, that Spark's ``to_avro`` gives a column that has no nulls. Raise ColumnType
    for a type that Avro does not have.
    """
    if isinstance(data_type, StructType):
        inner = f"{namespace}.{name}" if namespace else name
        fields = [
            {"name": one.name, "type": _nullable(one.dataType, one.nullable, one.name, inner)}
            for one in data_type.fields
        ]
        record = {"type": "record", "name": name, "fields": fields}
        return {**record, "namespace": namespace} if namespace else record
    if isinstance(data_type, ArrayType):
        items = _nullable(data_type.elementType, data_type.containsNull, name, namespace)
        return {"type": "array", "items": items}
    if isinstance(data_type, MapType) and isinstance(data_type.keyType, StringType):
        values = _nullable(data_type.valueType, data_type.valueContainsNull, name, namespace)
        return {"type": "map", "values": values}
    if isinstance(data_type, DecimalType):
        return {
            "type": "fixed",
            "name": f"{namespace or name}.{name}.fixed" if namespace else f"{name}.fixed",
            "size": _decimal_bytes(data_type.precision),
            "logicalType": "decimal",
            "precision": data_type.precision,
            "scale": data_type.scale,
        }
    found = _AVRO_TYPES.get(type(data_type))
    if found is None:
        raise ColumnType(f"a type that Avro has ({data_type.simpleString()} is none)")
    return found


def _nullable(data_type: DataType, nullable: bool, name: str, namespace: str) -> Any:
    schema = schema_of(data_type, name, namespace)
    return [schema, "null"] if nullable and schema != "null" else schema


def _decimal_bytes(precision: int) -> int:
    """Return the bytes of the largest number of so many digits, with its sign."""
    largest: int = 10**precision - 1
    return (largest.bit_length() + 8) // 8
