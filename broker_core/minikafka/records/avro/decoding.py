"""Reads a column of Avro values into Arrow columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from minikafka.records import kernels
from minikafka.records.arrow.buffers import empty, grown
from minikafka.records.arrow.encoding import binary_column
from minikafka.records.avro.columns import Column
from minikafka.records.avro.resolution import Program, compile_reader
from minikafka.records.avro.types import Type
from minikafka.records.kernels import avro_ops as op
from minikafka.records.kernels.arrays import read_only

_COLUMN_MAX = 0x7FFFFFFF
"""The most bytes or items of a column with int32 ends."""
_FIRST_BYTES = 4096

_REASONS = {
    op.TRUNCATED: "the value ends too early",
    op.BAD_NUMBER: "a number has too many bits",
    op.BAD_BRANCH: "the union or enum has no branch or symbol of this number",
    op.UNRESOLVED: "the branch or symbol is not in the reader's schema",
    op.BAD_LENGTH: "a length is negative or beyond the value's end",
    op.BAD_COUNT: "a count of items, or the size of their block, is not possible",
    op.BAD_BOOLEAN: "a boolean is neither 0 nor 1",
    op.BAD_TEXT: "a string is not UTF-8",
    op.BAD_DECIMAL: "a decimal is empty or has too many digits",
    op.OUT_OF_RANGE: "a timestamp does not fit 64 bits of microseconds",
    op.TRAILING: "bytes follow after the value",
    op.TOO_LARGE: "a column of this value exceeds 2 GiB",
}


@dataclass(frozen=True, slots=True)
class DecodedAvro:
    """A column of values.

    column    one item for each value, null where it is null or bad
    bad       the numbers of the bad values, ascending
    reasons   why, for each of ``bad``
    """

    column: pa.Array
    bad: NDArray[np.int64]
    reasons: tuple[str, ...]


class AvroDecoder:
    """Reads values of one writer's schema as a reader's schema."""

    def __init__(self, writer: Type, reader: Type) -> None:
        """Compile the schemas. Raise AvroError (UnresolvedSchema) if they cannot be used together."""
        self._program = compile_reader(writer, reader)

    @property
    def arrow_type(self) -> pa.DataType:
        """The type of the column."""
        return self._program.root.type

    def decode(self, values: pa.Array, prefix_bytes: int = 0) -> DecodedAvro:
        """Read a binary column. The first ``prefix_bytes`` of each value, which it has, are left out."""
        program = self._program
        rows = len(values)
        column = binary_column(values)
        results = np.zeros(rows, dtype=np.int64)
        memory = _Memory(program, rows, int(column.data.size))
        if column.offsets.size:
            self._run(memory, column.offsets, column.data, column.valid, column.shift, prefix_bytes, results)
        else:
            memory.all_null()
        bad = np.flatnonzero(results)
        return DecodedAvro(
            memory.array(program.root, rows), bad, tuple(map(self._reason, results[bad].tolist()))
        )

    def _run(
        self,
        memory: _Memory,
        offsets: NDArray[np.int32],
        data: NDArray[np.uint8],
        valid: NDArray[np.uint8],
        shift: int,
        prefix_bytes: int,
        results: NDArray[np.int64],
    ) -> None:
        read, program = kernels.avro_read, self._program
        state = np.zeros(read.STATE_SIZE, dtype=np.int64)
        constants = read_only(program.constants or b"\0")
        state[read.VALUES_AT] = data.ctypes.data
        state[read.CONSTANTS_AT] = constants.ctypes.data
        state[read.PREFIX_BYTES] = prefix_bytes
        state[read.NULL_PROGRAM] = program.null_program
        state[read.VALID_SHIFT] = shift
        state[read.REFUSED_ROW] = -1
        stack = np.zeros(max(1, program.depth) * read.FRAME, dtype=np.int64)
        saved = np.zeros_like(memory.used)
        while (
            read.read_avro(
                program.ops,
                program.table,
                offsets,
                valid,
                memory.addresses,
                memory.used,
                saved,
                memory.limits,
                stack,
                results,
                state,
            )
            == op.FULL
        ):
            if not memory.grow(int(state[read.FULL_COUNTER]), int(state[read.WANTED])):
                state[read.REFUSED_ROW] = state[read.NEXT_ROW]

    def _reason(self, result: int) -> str:
        code, last = result & (1 << op.RESULT_BITS) - 1, result >> op.RESULT_BITS
        path = self._program.paths[last] if code not in (op.TRAILING, op.TOO_LARGE) else ""
        return f"{path}: {_REASONS[code]}" if path else _REASONS[code]


class _Memory:
    """The memory of the columns, and the tables that describe it to the kernel."""

    def __init__(self, program: Program, rows: int, data_bytes: int) -> None:
        self._columns = {column.place: column for column in program.root.all()}
        self._rows = rows
        self.used = np.zeros(program.counters, dtype=np.int64)
        self.limits = np.zeros(program.counters, dtype=np.int64)
        self.addresses = np.zeros(len(self._columns) * op.ADDRESSES, dtype=np.int64)
        self._arrays: dict[int, NDArray[np.uint8]] = {}
        """The memory at each place of ``addresses``."""
        self.limits[0] = rows
        for counter in range(1, program.counters):
            self.limits[counter] = min(_COLUMN_MAX, _FIRST_BYTES + data_bytes // program.counters)
        for column in self._columns.values():
            self._size_items(column)
            if column.has_ends and not column.children:
                self._resize(column.place + op.BYTES_AT, int(self.limits[column.counter]))

    def _size_items(self, column: Column) -> None:
        items = int(self.limits[column.domain])
        if column.nullable and not pa.types.is_null(column.type):
            self._resize(column.place + op.VALIDITY, items)
        if column.has_ends:
            self._resize(column.place + op.DATA, 4 * (items + 1))
        elif column.width:
            self._resize(column.place + op.DATA, column.width * items)

    def _resize(self, place: int, size: int) -> None:
        before = self._arrays.get(place)
        if before is None:
            array = empty(size, np.uint8)
            array[:4] = 0  # the start of the first item, if these are ends
        else:
            array = grown(before, before.size, size)
        self._arrays[place] = array
        self.addresses[place] = array.ctypes.data

    def grow(self, counter: int, wanted: int) -> bool:
        """Enlarge what a counter counts, at least to ``wanted``; False if it would be too large."""
        if wanted > _COLUMN_MAX:
            return False
        self.limits[counter] = min(_COLUMN_MAX, max(wanted, 2 * int(self.limits[counter])))
        for column in self._columns.values():
            if column.domain == counter:
                self._size_items(column)
            elif column.counter == counter and not column.children:
                self._resize(column.place + op.BYTES_AT, int(self.limits[counter]))
        return True

    def all_null(self) -> None:
        """Make every row null."""
        for array in self._arrays.values():
            array[:] = 0

    def array(self, column: Column, items: int) -> pa.Array:
        """Return a column without a copy, but for booleans and validity, which become bits."""
        if pa.types.is_null(column.type):
            return pa.nulls(items)
        validity = self._validity(column, items)
        if column.children or pa.types.is_struct(column.type):
            return self._nested(column, items, validity)
        if column.has_ends:
            ends = self._arrays[column.place + op.DATA]
            used = int(ends.view(np.int32)[items])
            data = self._arrays[column.place + op.BYTES_AT][:used]
            buffers = [validity, pa.py_buffer(ends), pa.py_buffer(data)]
            return pa.Array.from_buffers(column.type, items, buffers)
        data = self._arrays[column.place + op.DATA][: column.width * items]
        if pa.types.is_boolean(column.type):
            data = np.packbits(data, bitorder="little")
        return pa.Array.from_buffers(column.type, items, [validity, pa.py_buffer(data)])

    def _nested(self, column: Column, items: int, validity: pa.Buffer | None) -> pa.Array:
        if not column.has_ends:
            children = [self.array(child, items) for child in column.children]
            return pa.Array.from_buffers(column.type, items, [validity], children=children)
        ends = self._arrays[column.place + op.DATA]
        used = int(ends.view(np.int32)[items])
        children = [self.array(child, used) for child in column.children]
        if pa.types.is_map(column.type):
            entry = pa.struct([column.type.key_field, column.type.item_field])
            children = [pa.Array.from_buffers(entry, used, [None], children=children)]
        return pa.Array.from_buffers(column.type, items, [validity, pa.py_buffer(ends)], children=children)

    def _validity(self, column: Column, items: int) -> pa.Buffer | None:
        marks = self._arrays.get(column.place + op.VALIDITY)
        if marks is None or marks[:items].all():
            return None
        return pa.py_buffer(np.packbits(marks[:items] != 0, bitorder="little"))
