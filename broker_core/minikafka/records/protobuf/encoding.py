"""Encoding of a struct column to protobuf messages, as Spark's ``to_protobuf`` does.

Field by field: a kernel writes the field of all messages as one column of bytes, and Arrow joins these for
each message. A null is an absent field, and so is a zero in a field without presence.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from minikafka.records.arrow.buffers import empty
from minikafka.records.kernels import protobuf as kernels
from minikafka.records.protobuf.types import DURATION, Field, Message, ProtobufError, tag, to_wire

_NOTHING = pa.scalar(b"", pa.binary())
_MICROS = 1_000_000
_OUTPUT_MAX = 0x7FFFFFFF
Longs = NDArray[np.int64]


def encode_messages(message: Message, column: pa.Array) -> pa.BinaryArray:
    """Return the bytes of each struct, or time of a well-known type, of ``column``; null for null.

    A field of the message that the struct does not have is absent. Names are compared in any case if there is
    no field of the same case. Raises ProtobufError for a value that no message can have.
    """
    parts = [_field(message, field, values) for field, values in _columns(message, column)]
    if not parts:
        return pc.if_else(column.is_valid(), _NOTHING, pa.scalar(None, pa.binary()))
    joined = pc.binary_join_element_wise(*parts, _NOTHING)
    return joined if column.null_count == 0 else pc.if_else(column.is_valid(), joined, None)


def fields_of_columns(message: Message, names: list[str]) -> list[Field | None]:
    """Return the field that each name of a struct stands for; None if there is none."""
    exact = {field.name: field for field in message.fields}
    lowered = {field.name.lower(): field for field in message.fields}
    return [exact.get(name) or lowered.get(name.lower()) for name in names]


def _columns(message: Message, column: pa.Array) -> list[tuple[Field, pa.Array]]:
    """Return the columns of a message's fields, in the order of their numbers."""
    if message.is_well_known:
        return list(zip(message.fields, _seconds_and_nanos(message, column), strict=True))
    names = [column.type.field(i).name for i in range(column.type.num_fields)]
    columns = {
        field.number: values
        for field, values in zip(fields_of_columns(message, names), column.flatten(), strict=True)
        if field is not None
    }
    absent = column.null_count
    for field in message.fields:
        values = columns.get(field.number)
        if field.is_required and (values is None or values.null_count > absent):
            raise ProtobufError(f"the required field {message.name}.{field.name} is null")
    return [(field, columns[field.number]) for field in message.fields if field.number in columns]


def _seconds_and_nanos(message: Message, column: pa.Array) -> list[pa.Array]:
    kind = pa.duration("us") if message.name == DURATION else pa.timestamp("us", tz=column.type.tz)
    micros = column.cast(kind).cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    seconds = micros // _MICROS
    if message.name == DURATION:
        seconds = np.where((micros < 0) & (micros % _MICROS != 0), seconds + 1, seconds)
    nanos = ((micros - seconds * _MICROS) * 1_000).astype(np.int32)
    by_name = {"seconds": pa.array(seconds), "nanos": pa.array(nanos)}
    return [by_name[field.name] for field in message.fields]


def _field(message: Message, field: Field, column: pa.Array) -> pa.BinaryArray:
    """Return the bytes of a field in each message; empty where it is absent."""
    name = f"{message.name}.{field.name}"
    if field.is_map:
        return _entries(name, field, column)
    if field.is_repeated:
        ends, (items,) = _items(column, [column.values])
        if items.null_count:
            raise ProtobufError(f"the repeated field {name} has a null element")
        if field.is_packed:
            return _packed(name, field, items, ends)
        return _grouped(_values(name, field, items, field.tag, np.ones(len(items), np.bool_)), ends)
    return _values(name, field, column, field.tag, column.is_valid().to_numpy(zero_copy_only=False))


def _values(
    name: str, field: Field, column: pa.Array, before: bytes, present: NDArray[np.bool_]
) -> pa.BinaryArray:
    """Return the bytes of one value in each row, behind ``before``."""
    keeps_zeros = field.has_presence or field.is_repeated
    if field.message is not None:
        bodies = encode_messages(field.message, column)
        return _pieces(bodies, before, present)
    if field.wire == kernels.LENGTH:
        content = column.cast(field.value_type).cast(pa.binary())
        if not keeps_zeros:
            present = present & (pc.binary_length(content).fill_null(0).to_numpy(zero_copy_only=False) > 0)
        return _pieces(content, before, present)
    numbers = _wire_numbers(name, field, column)
    if not keeps_zeros:
        present = present & (numbers != 0)
    return _numbers(numbers, present, before, field.width)


def _wire_numbers(name: str, field: Field, column: pa.Array) -> Longs:
    if field.enum is not None:
        return _enum_numbers(name, field, column)
    try:
        cast = column.cast(field.value_type)
    except pa.ArrowInvalid as error:
        raise ProtobufError(f"the field {name}, of type {field.kind}, cannot have a value: {error}") from None
    zero: Any = pa.scalar(False) if field.kind == "bool" else pa.scalar(0, field.value_type)
    return to_wire(field, cast.fill_null(zero).to_numpy(zero_copy_only=False))


def _enum_numbers(name: str, field: Field, column: pa.Array) -> Longs:
    assert field.enum is not None, "the kind is an enum"
    if pa.types.is_integer(column.type):
        numbers: Longs = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        return numbers
    names = pa.array([alias for alias, _ in field.enum.aliases], pa.string())
    places = pc.index_in(column.cast(pa.string()), value_set=names)
    unknown = pc.and_(column.is_valid(), places.is_null())
    if pc.any(unknown).as_py():
        value = column.filter(unknown)[0].as_py()
        raise ProtobufError(f"the enum of the field {name} has no value {value!r}")
    by_place: Longs = np.array([number for _, number in field.enum.aliases], dtype=np.int64)
    found: Longs = by_place[places.fill_null(0).to_numpy(zero_copy_only=False)]
    return found


def _numbers(numbers: Longs, present: NDArray[np.bool_], before: bytes, width: int) -> pa.BinaryArray:
    ends = np.zeros(len(numbers) + 1, dtype=np.int32)
    out = empty(len(numbers) * (len(before) + kernels.MAX_VARINT_BYTES), np.uint8)
    used = kernels.write_numbers(
        np.ascontiguousarray(numbers), present.astype(np.uint8), _bytes(before), width, ends, out
    )
    return _binary(ends, out, used)


def _pieces(content: pa.BinaryArray, before: bytes, present: NDArray[np.bool_]) -> pa.BinaryArray:
    """Return each present value with its length, behind ``before``."""
    _, offsets, data = content.buffers()
    ends_of_values = _offsets(offsets, content)
    lengths = np.where(present, np.diff(ends_of_values), -1)
    out = empty(
        int(lengths[lengths > 0].sum()) + len(lengths) * (len(before) + kernels.MAX_VARINT_BYTES), np.uint8
    )
    ends = np.zeros(len(lengths) + 1, dtype=np.int32)
    source = np.frombuffer(data, np.uint8) if data is not None and data.size else _bytes(b"")
    used = kernels.write_pieces(source, ends_of_values[:-1].copy(), lengths, _bytes(before), ends, out)
    return _binary(ends, out, used)


def _packed(name: str, field: Field, items: pa.Array, ends: Longs) -> pa.BinaryArray:
    numbers = _wire_numbers(name, field, items)
    bodies = _grouped(_numbers(numbers, np.ones(len(numbers), np.bool_), b"", field.width), ends)
    return _pieces(bodies, tag(field.number, kernels.LENGTH), np.diff(ends) > 0)


def _entries(name: str, field: Field, column: pa.Array) -> pa.BinaryArray:
    """Return the entries of each map: messages with the fields key and value, which have presence there."""
    ends, (keys, items) = _items(column, [column.keys, column.items])
    if keys.null_count or items.null_count:
        raise ProtobufError(f"the map {name} has a null key or value")
    everywhere = np.ones(len(keys), np.bool_)
    parts = [
        _values(f"{name}.{part.name}", part, values, part.tag, everywhere)
        for part, values in zip(field.entry, (keys, items), strict=True)
    ]
    entries = _pieces(pc.binary_join_element_wise(*parts, _NOTHING), field.tag, everywhere)
    return _grouped(entries, ends)


def _items(column: pa.Array, children: list[pa.Array]) -> tuple[Longs, list[pa.Array]]:
    """Return the end of each list among its items, after a 0, and the items of ``children``."""
    offsets = _offsets(column.buffers()[1], column)
    sizes = np.diff(offsets)
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    ends = np.zeros(len(column) + 1, dtype=np.int64)
    np.cumsum(np.where(valid, sizes, 0), out=ends[1:])
    if not np.any(sizes[~valid]):
        first = int(offsets[0]) if len(offsets) else 0
        return ends, [child.slice(first, int(ends[-1])) for child in children]
    places = pa.array(np.flatnonzero(np.repeat(valid, sizes)) + offsets[0])
    return ends, [child.take(places) for child in children]


def _offsets(buffer: pa.Buffer | None, column: pa.Array) -> Longs:
    """Return the offsets of a column of bytes, lists or maps, one more than its elements."""
    if buffer is None or buffer.size == 0:
        return np.zeros(len(column) + 1, dtype=np.int64)
    found: Longs = np.frombuffer(buffer, np.int32, len(column) + 1, 4 * column.offset).astype(np.int64)
    return found


def _grouped(items: pa.BinaryArray, ends: Longs) -> pa.BinaryArray:
    """Return the bytes of a column's items, joined for each list."""
    offsets = _offsets(items.buffers()[1], items)[ends].astype(np.int32)
    return pa.Array.from_buffers(
        pa.binary(), len(ends) - 1, [None, pa.py_buffer(offsets), items.buffers()[2]]
    )


def _binary(ends: NDArray[np.int32], out: NDArray[np.uint8], used: int) -> pa.BinaryArray:
    assert used >= 0, "there is room for everything"
    if used > _OUTPUT_MAX:
        raise ProtobufError(f"a field of {len(ends) - 1} values exceeds 2 GiB: write fewer rows at a time")
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, [None, pa.py_buffer(ends), pa.py_buffer(out)])


def _bytes(content: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(content, dtype=np.uint8)
