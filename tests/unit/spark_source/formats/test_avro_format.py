"""The format ``avro``: its options, and values of one schema."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, LongType, StringType, StructType

from minikafka.base.errors import ConfigErrors
from minikafka.records.avro import AvroError
from pyspark_minikafka.formats.avro_format import AvroFormat
from pyspark_minikafka.formats.value_format import ColumnType
from pyspark_minikafka.options.format_options import format_options

EVENT = json.dumps(
    {
        "type": "record",
        "name": "Event",
        "namespace": "ns",
        "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}],
    }
)
NOTED = StructType().add("id", LongType(), False).add("note", StringType())


def made(sink: bool = False, **options: str) -> Any:
    given = {f"minikafka.value.{name.replace('_', '.')}": value for name, value in options.items()}
    made = format_options({"minikafka.value.format": "avro", **given}, lambda name, path: path, sink=sink)
    return made.value


def refused(sink: bool = False, **options: str) -> str:
    with pytest.raises(ConfigErrors) as caught:
        made(sink, **options)
    return str(caught.value)


def test_values_become_columns_and_the_same_bytes_again() -> None:
    values = pa.array([b"\x02\x02\x04hi", None, b"\x04\x00"], pa.binary())
    reader = pickle.loads(pickle.dumps(made(schema=EVENT)))
    assert reader.data_type() == NOTED
    found = reader.decode(values, "t")
    assert found.column.to_pylist() == [{"id": 1, "note": "hi"}, None, {"id": 2, "note": None}]
    writer = pickle.loads(pickle.dumps(made(sink=True, schema=EVENT).for_column(NOTED)))
    assert writer.encode(found.column, "t").to_pylist() == values.to_pylist()


def test_bad_values_are_named() -> None:
    found = made(schema=EVENT).decode(pa.array([b"\x02", b"\x02\x00"], pa.binary()), "t")
    assert (found.bad.tolist(), found.reasons) == ([0], ("note: the value ends too early",))


def test_a_write_without_schema_has_that_of_its_column() -> None:
    writer = made(sink=True).for_column(NOTED)
    column = pa.array([{"id": 1, "note": "hi"}], pa.struct({"id": pa.int64(), "note": pa.string()}))
    assert writer.encode(column, "t").to_pylist() == [b"\x02\x00\x04hi"]
    assert (
        made(sink=True).for_column(IntegerType()).encode(pa.array([1], pa.int32()), "t")[0].as_py() == b"\x02"
    )


def test_schema_may_be_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "event.avsc"
    path.write_text(EVENT)
    assert made(schema_file=str(path)) == made(schema=EVENT)
    assert made(schema=EVENT).schema.name == "ns.Event"
    assert made(schema="long").schema.name is None


def test_column_that_the_schema_cannot_have_is_refused() -> None:
    writer = made(sink=True, schema=EVENT)
    with pytest.raises(ColumnType, match=r"its Avro schema can have .*id: a column of type string"):
        writer.for_column(StructType().add("id", StringType()))


def test_row_that_the_schema_does_not_allow_names_the_field() -> None:
    nullable = StructType().add("id", LongType())
    writer = made(sink=True, schema=EVENT).for_column(nullable)
    column = pa.array([{"id": None}], pa.struct({"id": pa.int64()}))
    with pytest.raises(AvroError, match="the field id of a row as Avro: it is null"):
        writer.encode(column, "t")


def test_options_at_fault_are_named() -> None:
    assert "minikafka.value.schema" in refused()
    assert "must be given with minikafka.value.format=avro: an Avro schema in JSON" in refused()
    assert "must be an Avro schema in JSON: the Avro schema is not valid" in refused(schema="{}")
    assert "minikafka.value.schema.file" in refused(schema_file="/absent/event.avsc")
    recursive = {"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]}
    assert "the Avro schema is recursive: R > R" in refused(sink=True, schema=json.dumps(recursive))


def test_format_of_a_write_is_an_avro_format() -> None:
    assert made(sink=True) == AvroFormat(None)
