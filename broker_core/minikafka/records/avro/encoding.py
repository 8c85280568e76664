"""Writes a column as Avro values.

A schema and a column's type are compiled to a program. Fields are found by their names, in any case, as Spark
finds them; a field that the column does not have is null, or its default.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from minikafka.records import kernels
from minikafka.records.arrow.buffers import empty, grown
from minikafka.records.arrow.nested_columns import Column
from minikafka.records.avro.columns import arrow_type, is_nullable, merged_number
from minikafka.records.avro.resolution import Assembler
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
    without_null,
)
from minikafka.records.kernels import avro_ops as op
from minikafka.records.kernels import values
from minikafka.records.kernels.arrays import read_only

_OUTPUT_MAX = 0x7FFFFFFF
_ROW_BYTES = 64
_MILLIS = ("timestamp-millis", "local-timestamp-millis")

_REASONS = {
    op.NULL_ITEM: "is null, which the schema does not allow",
    op.BAD_SYMBOL: "is not a symbol of the enum",
    op.BAD_DECIMAL: "needs more bytes than the schema's fixed type has",
    op.BAD_SIZE: "has another size than the schema's fixed type",
    op.ALL_NULL: "has no member that is not null",
}


@dataclass(frozen=True, slots=True)
class _Source:
    """A column to write: the type that the program expects, and the chosen children."""

    place: int
    type: pa.DataType
    chosen: tuple[int, ...] = ()
    children: tuple[_Source, ...] = ()


class BadAvroRow(AvroError):
    """A row that cannot be written with the schema."""

    def __init__(self, row: int, detail: str) -> None:
        super().__init__(detail)
        self.row = row


class AvroEncoder:
    """Writes columns of one type with one schema, each value after ``prefix``."""

    def __init__(self, schema: Type, column: pa.DataType, prefix: bytes = b"") -> None:
        """Compile. Raise AvroError, which names the field, if the type cannot be written with the schema."""
        self._code = code = Assembler()
        compiler = _Compiler(code)
        if prefix:
            compiler.constant(prefix)
        self._root = compiler.root(schema, column)
        code.emit(op.END)
        self._ops = np.array(code.ops, dtype=np.int64).reshape(-1)
        self._table = np.array(code.table, dtype=np.int64)
        self._constants = read_only(bytes(code.constants) or b"\0")
        self._columns, self._counters = compiler.columns, compiler.counters

    def encode(self, column: pa.Array) -> pa.BinaryArray:
        """Return the values, null where the row is null. Raise BadAvroRow, which names the field."""
        rows = len(column)
        write = kernels.avro_write
        gathered = _Gathered(np.zeros(self._columns * values.ADDRESSES, dtype=np.int64))
        gathered.add(self._root, column)
        out = empty(max(4096, rows * _ROW_BYTES), np.uint8)
        ends = np.zeros(rows + 1, dtype=np.int32)
        state = np.zeros(write.STATE_SIZE, dtype=np.int64)
        state[write.CONSTANTS_AT] = self._constants.ctypes.data
        used = np.zeros(self._counters, dtype=np.int64)
        stack = np.zeros(max(1, self._code.deepest), dtype=np.int64)
        size = 0
        while True:
            state[write.OUT_AT] = out.ctypes.data
            state[write.OUT_END] = out.ctypes.data + out.size
            state[write.OUT_NEXT] = out.ctypes.data + size
            result = write.write_avro(self._ops, self._table, gathered.addresses, used, stack, ends, state)
            size = int(state[write.OUT_NEXT] - state[write.OUT_AT])
            if result == op.GOOD:
                break
            row = int(state[write.NEXT_ROW])
            if result != op.FULL:
                raise BadAvroRow(row, self._fault(result, int(state[write.FAULT_OP])))
            wanted = size + int(state[write.WANTED])
            # WANTED is the need of one instruction; another one of the same row may be what does not fit.
            if wanted > _OUTPUT_MAX or out.size == _OUTPUT_MAX:
                raise AvroError(f"the Avro values of {rows} rows exceed 2 GiB: write fewer rows at a time")
            out = grown(out, size, min(_OUTPUT_MAX, max(wanted, 2 * out.size)))
        validity = column.is_valid().buffers()[1] if column.null_count else None
        return pa.Array.from_buffers(
            pa.binary(), rows, [validity, pa.py_buffer(ends), pa.py_buffer(out[:size])]
        )

    def _fault(self, result: int, last: int) -> str:
        path = self._code.paths[last]
        what = f"the field {path}" if path else "the value"
        return f"cannot write {what} of a row as Avro: it {_REASONS[result]}"


@dataclass(slots=True)
class _Gathered:
    """The addresses of a column's memory, which ``kept`` keeps alive."""

    addresses: NDArray[np.int64]
    kept: list[object] = field(default_factory=list)

    def add(self, source: _Source, array: pa.Array) -> None:
        """Add a column and its children."""
        if array.type != source.type:
            array = array.cast(source.type)
        self.kept.append(array)
        buffers = array.buffers()
        self._put(source.place, values.VALIDITY, buffers[0] if array.null_count else None)
        self._put(source.place, values.DATA, buffers[1] if len(buffers) > 1 else None)
        self._put(source.place, values.BYTES_AT, buffers[2] if len(buffers) > 2 else None)
        self.addresses[source.place + values.SHIFT] = array.offset
        for child, number in zip(source.children, source.chosen, strict=True):
            self.add(child, _child(array, number))

    def _put(self, place: int, which: int, buffer: pa.Buffer | None) -> None:
        self.addresses[place + which] = 0 if buffer is None else buffer.address


def _child(array: pa.Array, number: int) -> pa.Array:
    if isinstance(array, pa.StructArray):
        return array.field(number)
    if isinstance(array, pa.MapArray):
        return array.items if number else array.keys
    return array.values


class _Compiler:
    """Compiles each pair of a type and a column to the instructions that write one item of it."""

    def __init__(self, code: Assembler) -> None:
        self._code = code
        self.columns = 0
        self.counters = 1

    def constant(self, data: bytes) -> None:
        """Compile the writing of constants."""
        start = self._code.constant(data)
        self._code.emit(op.CONSTANT, a=start, b=start + len(data))

    def root(self, schema: Type, kind: pa.DataType) -> _Source:
        """Compile the rows' column. The kernel leaves out its nulls."""
        return self._item(schema, kind, 0)

    def _item(self, schema: Type, kind: pa.DataType, domain: int) -> _Source:
        column = self._column(kind, domain)
        if pa.types.is_null(kind):
            if not is_nullable(schema):
                raise self._unwritable(schema, kind)
            self._null(schema)
            return _Source(column.place, kind)
        if isinstance(schema, Union):
            return self._union(schema, kind, column)
        if schema == NULL:
            raise self._unwritable(schema, kind)
        self._code.emit(op.REQUIRE, column)
        return self._value(schema, kind, column)

    def _column(self, kind: pa.DataType, domain: int) -> Column:
        place = self.columns * values.ADDRESSES
        self.columns += 1
        counter = -1
        if pa.types.is_map(kind) or _is_list(kind):
            counter = self.counters
            self.counters += 1
        return Column(kind, True, place, domain, counter, 0, ())

    def _unwritable(self, schema: Type, kind: pa.DataType, why: str = "") -> AvroError:
        return AvroError(
            f"{self._code.path or 'the value'}: a column of type {kind} cannot be written as Avro's "
            f"{schema}{why}"
        )

    # Unions.

    def _null(self, schema: Type) -> None:
        if isinstance(schema, Union):
            self.constant(_varint(schema.branches.index(NULL)))

    def _union(self, schema: Union, kind: pa.DataType, column: Column) -> _Source:
        code = self._code
        if NULL not in schema.branches:
            code.emit(op.REQUIRE, column)
            return self._branches(schema, kind, column)
        null = code.emit(op.IF_NULL, column)
        source = self._branches(schema, kind, column)
        end = code.emit(op.JUMP)
        code.set_a(null)
        self._null(schema)
        code.set_a(end)
        return source

    def _branches(self, schema: Union, kind: pa.DataType, column: Column) -> _Source:
        """Compile the writing of an item that is not null."""
        branches = without_null(schema)
        number = merged_number(branches)
        if len(branches) == 1 or number is not None:
            branch = next(found for found in branches if number is None or found.name == number.name)  # type: ignore[union-attr]
            self.constant(_varint(schema.branches.index(branch)))
            return self._value(branch, kind, column)
        names = [f"member{i}" for i in range(len(branches))]
        if not pa.types.is_struct(kind) or [member.name for member in kind] != names:
            raise self._unwritable(schema, kind, f"; expected a struct of {', '.join(names)}")
        code, children, jumps = self._code, [], []
        for member, branch in zip(kind, branches, strict=True):
            with code.within(member.name):
                child = self._column(member.type, column.domain)
                skip = code.emit(op.IF_NULL, child)
                self.constant(_varint(schema.branches.index(branch)))
                children.append(self._value(branch, member.type, child))
                jumps.append(code.emit(op.JUMP))
                code.set_a(skip)
        code.emit(op.NO_MEMBER)
        for jump in jumps:
            code.set_a(jump)
        return _Source(column.place, kind, tuple(range(len(children))), tuple(children))

    # Items that are not null.

    def _value(self, schema: Type, kind: pa.DataType, column: Column) -> _Source:
        if isinstance(schema, Record):
            return self._record(schema, kind, column)
        if isinstance(schema, (Array, Map)):
            return self._array(schema, kind, column)
        if isinstance(schema, Enum):
            return self._enum(schema, kind, column)
        assert not isinstance(schema, Union)
        if isinstance(schema.logical, Decimal):
            return self._decimal(schema, kind, column)
        if isinstance(schema, Fixed):
            self._code.emit(op.FROM_FIXED, column, schema.size)
            return self._leaf(schema, kind, column, pa.binary(), _is_binary(kind))
        return self._primitive(schema, kind, column)

    def _leaf(
        self, schema: Type, kind: pa.DataType, column: Column, wanted: pa.DataType, fits: bool
    ) -> _Source:
        if not fits:
            raise self._unwritable(schema, kind)
        return _Source(column.place, wanted)

    def _record(self, schema: Record, kind: pa.DataType, column: Column) -> _Source:
        if not pa.types.is_struct(kind):
            raise self._unwritable(schema, kind)
        code, chosen, children = self._code, [], []
        for record_field in schema.fields:
            with code.within(record_field.name):
                number = _position(kind, record_field.name)
                if number is None:
                    self._missing(schema, record_field)
                else:
                    chosen.append(number)
                    children.append(self._item(record_field.type, kind[number].type, column.domain))
        extra = [kind[i].name for i in range(kind.num_fields) if i not in chosen]
        if extra:
            raise self._unwritable(schema, kind, f", which has no field {extra[0]}")
        return _Source(column.place, kind, tuple(chosen), tuple(children))

    def _missing(self, schema: Record, record_field: Field) -> None:
        if record_field.default is not None:
            self.constant(record_field.default)
        elif is_nullable(record_field.type):
            self._null(record_field.type)
        else:
            raise AvroError(
                f"{self._code.path}: the column has no such field, which Avro's {schema} requires, as it "
                "allows no null and has no default"
            )

    def _array(self, schema: Array | Map, kind: pa.DataType, column: Column) -> _Source:
        is_map = isinstance(schema, Map)
        if not (pa.types.is_map(kind) if is_map else _is_list(kind)):
            raise self._unwritable(schema, kind)
        code = self._code
        code.enter()
        array = code.emit(op.FROM_ARRAY, column)
        first = code.here
        if isinstance(schema, Map):
            pairs = [("key", Primitive("string"), kind.key_type), ("value", schema.values, kind.item_type)]
        else:
            pairs = [("element", schema.items, kind.value_type)]
        children = []
        for name, part, item_kind in pairs:
            with code.within(name):
                children.append(self._item(part, item_kind, column.counter))
        code.emit(op.ITEM_END, column, first)
        code.set_a(array)
        code.leave()
        wanted = pa.list_(kind.value_field) if pa.types.is_large_list(kind) else kind
        return _Source(column.place, wanted, tuple(range(len(children))), tuple(children))

    def _enum(self, schema: Enum, kind: pa.DataType, column: Column) -> _Source:
        code = self._code
        symbols = []
        for symbol in schema.symbols:
            data = symbol.encode()
            symbols += [code.constant(data), len(data)]
        code.emit(op.FROM_ENUM, column, len(schema.symbols), 0, len(code.table))
        code.table += symbols
        return self._leaf(schema, kind, column, pa.string(), _is_text(kind))

    def _decimal(self, schema: Primitive | Fixed, kind: pa.DataType, column: Column) -> _Source:
        wanted = arrow_type(schema)
        if isinstance(schema, Fixed):
            self._code.emit(op.FROM_DECIMAL_FIXED, column, schema.size)
        else:
            self._code.emit(op.FROM_DECIMAL, column)
        fits = pa.types.is_decimal(kind) and kind.scale == wanted.scale and kind.precision <= wanted.precision
        return self._leaf(schema, kind, column, wanted, fits)

    def _primitive(self, schema: Primitive, kind: pa.DataType, column: Column) -> _Source:
        code, types = self._code, pa.types
        if types.is_timestamp(kind) and schema.name == "long":
            # A long without a logical type is milliseconds in Spark too.
            code.emit(op.FROM_I64, column, 1000 if schema.logical in (None, *_MILLIS) else 1)
            is_local = kind.tz is None and schema.logical is not None
            fits = is_local == str(schema.logical).startswith("local-")
            return self._leaf(schema, kind, column, pa.timestamp("us", tz=kind.tz), fits)
        if schema.name == "int" and types.is_date32(kind):
            code.emit(op.FROM_I32, column)
            return _Source(column.place, kind)
        instruction, wanted, fits = {
            "boolean": (op.FROM_BOOLEAN, pa.bool_(), types.is_boolean(kind)),
            "int": (op.FROM_I32, pa.int32(), types.is_signed_integer(kind) and kind.bit_width <= 32),
            "long": (op.FROM_I64, pa.int64(), types.is_signed_integer(kind)),
            "float": (op.FROM_4, pa.float32(), types.is_float32(kind)),
            "double": (op.FROM_8, pa.float64(), types.is_float32(kind) or types.is_float64(kind)),
            "bytes": (op.FROM_BYTES, pa.binary(), _is_binary(kind)),
            "string": (op.FROM_BYTES, pa.string(), _is_text(kind)),
        }[schema.name]
        code.emit(instruction, column, 1)
        return self._leaf(schema, kind, column, wanted, fits and not isinstance(schema.logical, str))


def _position(kind: pa.DataType, name: str) -> int | None:
    """Return the number of a struct's field: the one of this name, else the only one in another case."""
    exact = kind.get_field_index(name)
    if exact >= 0:
        return int(exact)
    found = [i for i in range(kind.num_fields) if kind[i].name.lower() == name.lower()]
    return found[0] if len(found) == 1 else None


def _varint(number: int) -> bytes:
    """Return a number that is not negative."""
    raw, data = number << 1, bytearray()
    while raw > 127:
        data.append(raw & 127 | 128)
        raw >>= 7
    data.append(raw)
    return bytes(data)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))
