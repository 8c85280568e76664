"""Avro in columns is what fastavro reads, and becomes the same bytes again; damaged bytes do no harm."""

from __future__ import annotations

import ctypes
import io
import json
import mmap
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.records.avro import AvroDecoder, AvroEncoder, UnresolvedSchema
from minikafka.records.avro.parsing import parse
from tests.support.avro_cases import AvroCases

SEEDS = st.integers(0, 2**32 - 1)


def encoded(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


def decoded(data: bytes, schema: Any, reader: Any = None) -> Any:
    """Return what fastavro reads. ValueError for what it, or Avro, refuses."""
    stream = io.BytesIO(data)
    try:
        value = fastavro.schemaless_reader(stream, schema, reader)
    except (EOFError, ArithmeticError, LookupError, TypeError, MemoryError) as problem:
        raise ValueError(problem) from None
    if stream.read(1):
        raise ValueError("trailing bytes")
    return value


def as_column(schema: Any, value: Any) -> Any:
    """Return a value of fastavro as Arrow gives that of a column."""
    if isinstance(schema, list):
        return union_value(schema, value)
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "record":
        return {one["name"]: as_column(one["type"], value[one["name"]]) for one in schema["fields"]}
    if kind == "array":
        return [as_column(schema["items"], item) for item in value]
    if kind == "map":
        return [(name, as_column(schema["values"], item)) for name, item in value.items()]
    if kind in ("float", "double"):
        return float(np.float32(value) if kind == "float" else value)
    if isinstance(schema, dict) and schema.get("logicalType", "").startswith("timestamp"):
        return value.replace(tzinfo=None)
    return value


def union_value(schema: list[Any], value: Any) -> Any:
    others = [branch for branch in schema if branch != "null"]
    if value is None:
        return None
    if len(others) == 1:
        return as_column(others[0], value)
    kinds = {
        "string": str,
        "bytes": bytes,
        "boolean": bool,
        "int": int,
        "long": int,
        "array": list,
        "record": dict,
    }
    kinds |= {"float": float, "double": float}
    names = [branch["type"] if isinstance(branch, dict) else branch for branch in others]
    (member,) = [i for i, name in enumerate(names) if type(value) is kinds[name]]
    return {
        f"member{i}": as_column(branch, value) if i == member else None for i, branch in enumerate(others)
    }


def without_zones(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_zones(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(without_zones, value))
    return value.replace(tzinfo=None) if hasattr(value, "tzinfo") else value


def column_values(column: pa.Array) -> list[Any]:
    column.validate(full=True)
    return [without_zones(value) for value in column.to_pylist()]


@given(SEEDS)
def test_columns_hold_what_was_written_and_give_it_back(seed: int) -> None:
    cases = AvroCases(seed)
    schema = cases.schema()
    values = [cases.value(schema) for _ in range(9)]
    data = [encoded(schema, value) for value in values]
    kind = parse(json.dumps(schema))
    found = AvroDecoder(kind, kind).decode(pa.array([None, *data], pa.binary()))
    assert len(found.bad) == 0, found.reasons
    expected = [None, *(as_column(schema, decoded(one, schema)) for one in data)]
    assert column_values(found.column) == expected
    if not pa.types.is_null(found.column.type):
        again = AvroEncoder(kind, found.column.type).encode(found.column.slice(2)).to_pylist()
        for one, value, written in zip(data[1:], expected[2:], again, strict=True):
            # A null of a column is no value of the topic.
            assert written == (None if value is None else one)


@given(SEEDS)
def test_evolved_schemas_read_what_fastavro_reads(seed: int) -> None:
    cases = AvroCases(seed)
    schema = cases.record()
    reader = cases.evolved(schema)
    data = [encoded(schema, cases.value(schema)) for _ in range(5)]
    try:
        decoder = AvroDecoder(parse(json.dumps(schema)), parse(json.dumps(reader)))
    except UnresolvedSchema:
        pytest.fail(f"does not resolve: {schema} {reader}")
    found = decoder.decode(pa.array(data, pa.binary()))
    assert len(found.bad) == 0, found.reasons
    for value, one in zip(column_values(found.column), data, strict=True):
        assert value == as_column(reader, decoded(one, schema, reader))


@given(SEEDS)
def test_damaged_values_are_bad_or_other_values(seed: int) -> None:
    cases = AvroCases(seed)
    schema = cases.schema()
    data = [cases.damaged(encoded(schema, cases.value(schema))) for _ in range(20)]
    kind = parse(json.dumps(schema))
    found = AvroDecoder(kind, kind).decode(pa.array(data, pa.binary()))
    found.column.validate(full=True)
    bad = found.bad.tolist()
    assert found.column.take(pa.array(bad, pa.int64())).null_count == len(bad)
    if pa.types.is_null(found.column.type):
        return
    # A decoded value can be written. The first bytes may differ, as numbers and blocks have several forms.
    # Bytes are compared, as NaN is not equal to itself.
    written = AvroEncoder(kind, found.column.type).encode(found.column)
    again = AvroEncoder(kind, found.column.type).encode(AvroDecoder(kind, kind).decode(written).column)
    assert again == written
    for one, is_valid, sent in zip(data, found.column.is_valid().to_pylist(), written, strict=True):
        assert not is_valid or len(sent.as_py()) <= len(one)


@given(SEEDS)
def test_nothing_is_read_beyond_a_value(seed: int) -> None:
    cases = AvroCases(seed)
    schema = cases.schema()
    kind = parse(json.dumps(schema))
    decoder = AvroDecoder(kind, kind)
    with_guard = Guarded()
    for _ in range(5):
        data = cases.damaged(encoded(schema, cases.value(schema)))
        column = with_guard.column(data)
        assert decoder.decode(column).bad.tolist() in ([], [0])


class Guarded:
    """A page, before one that cannot be read."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 2 * mmap.PAGESIZE)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        libc = ctypes.CDLL(None, use_errno=True)
        after = ctypes.c_void_p(self._address + mmap.PAGESIZE)
        assert libc.mprotect(after, ctypes.c_size_t(mmap.PAGESIZE), 0) == 0

    def column(self, data: bytes) -> pa.Array:
        """A column of one value, which ends with the page."""
        data = data[-mmap.PAGESIZE :]
        start = mmap.PAGESIZE - len(data)
        self._memory[start : mmap.PAGESIZE] = data
        ends = pa.py_buffer(np.array([0, len(data)], dtype=np.int32))
        held = pa.foreign_buffer(self._address + start, len(data), self)
        return pa.Array.from_buffers(pa.binary(), 1, [None, ends, held])
