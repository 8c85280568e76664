"""Schemas in Spark's DDL and in its JSON."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from pyspark_minikafka.formats.spark_schema import BadSchema, difference, parse_schema


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a INT", "struct<a:int>"),
        ("a: int, b STRING NOT NULL COMMENT 'it\\'s'", "struct<a:int,b:string>"),
        ("`a b` bigint, `c``d` double", "struct<a b:bigint,c`d:double>"),
        ("STRUCT<a: INT, b: ARRAY<STRUCT<c: DATE>>>", "struct<a:int,b:array<struct<c:date>>>"),
        ("ARRAY<ARRAY<LONG>>", "array<array<bigint>>"),
        ("map<string, map<string, float>>", "map<string,map<string,float>>"),
        ("string", "string"),
        ("a DECIMAL, b dec(5), c NUMERIC(5, 2)", "struct<a:decimal(10,0),b:decimal(5,0),c:decimal(5,2)>"),
        ("DECIMAL(38,38)", "decimal(38,38)"),
        ("t TIMESTAMP, n TIMESTAMP_NTZ, l timestamp_ltz", "struct<t:timestamp,n:timestamp_ntz,l:timestamp>"),
        ("a BYTE, b SHORT, c INTEGER, d REAL, e BINARY, f BOOLEAN",
         "struct<a:tinyint,b:smallint,c:int,d:float,e:binary,f:boolean>"),
        ("int INT, map MAP<STRING,INT>", "struct<int:int,map:map<string,int>>"),
        ("STRUCT<>", "struct<>"),
    ],
)  # fmt: skip
def test_ddl_is_read_as_spark_reads_it(text: str, wanted: str) -> None:
    assert parse_schema(text).simpleString() == wanted


def test_everything_may_be_null_whatever_the_schema_says() -> None:
    element = StructType([StructField("b", IntegerType(), nullable=False)])
    schema = StructType([StructField("a", ArrayType(element, containsNull=False), nullable=False)])
    assert parse_schema(schema.json()) == parse_schema("a ARRAY<STRUCT<b: INT>>")


def test_sparks_json_is_read() -> None:
    schema = StructType().add("id", LongType()).add("m", DecimalType(5, 2)).add("s", StringType())
    assert parse_schema(schema.json()) == schema
    assert parse_schema(' "long" ') == LongType()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a INTT", "'intt'"),
        ("a INT b INT", "unexpected 'b'"),
        ("a INT,", "ends too early"),
        ("ARRAY<INT", "ends too early"),
        ("ARRAY<INT>>", "unexpected '>'"),
        ("ARRAY(INT)", "expected '<'"),
        ("a INT; DROP", "';' at character 6"),
        ("a DECIMAL(39,0)", "precision is 1 to 38"),
        ("a DECIMAL(5,6)", "a scale not above it"),
        ("a DECIMAL(x)", "precision and scale"),
        ("a INT, a STRING", "a appears twice"),
        ("MAP<INT,INT>", "must be strings, not int"),
        ("a INTERVAL", "'interval'"),
        ("a VARIANT", "'variant'"),
        ("a INT COMMENT b", "in quotes"),
        ("'a' INT", "expected a name"),
        ("ARRAY<" * 5000 + "INT" + ">" * 5000, "too deeply"),
        ('{"type":"struct"}', "Spark's JSON"),
        ("{", "Spark's JSON"),
        (
            '{"type":"struct","fields":[{"name":"a","type":"variant","nullable":true,"metadata":{}}]}',
            "variant",
        ),
        ('"void"', "void"),
    ],
)
def test_what_is_no_schema_is_refused_with_the_reason(text: str, said: str) -> None:
    with pytest.raises(BadSchema, match=said.replace("(", r"\(")):
        parse_schema(text)


@pytest.mark.parametrize(
    ("found", "wanted", "said"),
    [
        (parse_schema("a INT"), parse_schema("a INT"), ""),
        (parse_schema("a INT"), parse_schema("a BIGINT"), "has v.a as int, not bigint"),
        (parse_schema("a INT"), parse_schema("a INT, b INT"), "has no v.b"),
        (parse_schema("a INT, b INT"), parse_schema("a INT"), "also has v.b"),
        (parse_schema("a INT, b INT"), parse_schema("b INT, a INT"), "has the fields of v in another order"),
        (parse_schema("a ARRAY<INT>"), parse_schema("a ARRAY<DATE>"), "has v.a[] as int, not date"),
        (
            parse_schema("MAP<STRING, INT>"),
            parse_schema("MAP<STRING, STRUCT<x: INT>>"),
            "has v{} as int, not struct<x:int>",
        ),
        (StructType().add("a", LongType(), False), parse_schema("a LONG"), "has v.a without nulls"),
        (ArrayType(LongType()), ArrayType(LongType(), False), "has v[] with nulls"),
        (
            MapType(StringType(), LongType(), False),
            MapType(StringType(), LongType()),
            "has v{} without nulls",
        ),
    ],
)
def test_first_difference_of_two_types_is_named(found: DataType, wanted: DataType, said: str) -> None:
    assert difference(found, wanted, "v") == said
