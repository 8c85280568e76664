"""The Spark types of Avro columns, and the schemas of Spark's types."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    IntegerType,
    MapType,
    NullType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from minikafka.records.avro import AvroDecoder, Record, Type, arrow_type
from minikafka.records.avro.parsing import parse
from pyspark_minikafka.formats.avro_schema import schema_of, spark_type
from pyspark_minikafka.formats.value_format import ColumnType
from pyspark_minikafka.formats.value_format import arrow_type as spark_arrow_type


def parsed(schema: Any, *references: Any) -> Type:
    return parse(json.dumps(schema), [json.dumps(one) for one in references])


def record(*fields: Any, **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "namespace": "ns", "fields": list(fields), **more}


def test_sparks_types_are_those_that_it_expects_of_the_columns() -> None:
    fields = [
        {"name": f"f{i}", "type": one}
        for i, one in enumerate(
            [
                "boolean",
                ["null", "int"],
                {"type": "int", "logicalType": "date"},
                {"type": "long", "logicalType": "timestamp-millis"},
                {"type": "long", "logicalType": "local-timestamp-millis"},
                {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
                {"type": "array", "items": ["null", "float"]},
                {"type": "array", "items": "double"},
                {"type": "map", "values": "bytes"},
                {"type": "map", "values": ["null", "string"]},
                ["int", "long"],
                ["int", "string"],
                "null",
                {"type": "fixed", "name": "F", "size": 3},
            ]
        )
    ]
    kind = arrow_type(parsed(record(*fields)))
    found = spark_type(kind)
    assert spark_arrow_type(found).equals(kind)
    assert found.simpleString() == (
        "struct<f0:boolean,f1:int,f2:date,f3:timestamp,f4:timestamp_ntz,f5:decimal(10,2),f6:array<float>,"
        "f7:array<double>,f8:map<string,binary>,f9:map<string,string>,f10:bigint,"
        "f11:struct<member0:int,member1:string>,f12:void,f13:binary>"
    )
    assert isinstance(found, StructType)
    assert [field.nullable for field in found.fields][:4] == [False, True, False, False]


def test_schema_of_a_column_is_one_that_avro_takes() -> None:
    inner = StructType().add("d", DecimalType(38, 0)).add("e", MapType(StringType(), DateType()))
    times = StructType().add("g", TimestampType()).add("h", TimestampNTZType(), False)
    column = StructType().add("a", ByteType()).add("b", DecimalType(10, 2), False)
    column = column.add("c", ArrayType(inner)).add("f", times).add("i", NullType())
    schema = schema_of(column)
    kind = parsed(schema)
    assert schema["name"] == "topLevelRecord"
    assert isinstance(kind, Record)
    assert [str(field.type) for field in kind.fields] == [
        "union of int, null",
        "fixed topLevelRecord.b.fixed (5 bytes, decimal(10,2))",
        "union of array of union of record topLevelRecord.c, null, null",
        "union of record topLevelRecord.f, null",
        "null",
    ]
    AvroDecoder(kind, kind)


def test_type_that_avro_does_not_have_is_refused() -> None:
    for one in (MapType(IntegerType(), IntegerType()), DayTimeIntervalType()):
        with pytest.raises(ColumnType, match="Avro"):
            schema_of(StructType().add("a", one))
    assert schema_of(StructType().add("a", ByteType(), False))["fields"] == [{"name": "a", "type": "int"}]
