"""Reads a column of Avro values into Arrow columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from minikafka.records import kernels
from minikafka.records.arrow.encoding import BinaryColumn, binary_column
from minikafka.records.arrow.nested_columns import ColumnMemory, ColumnSizes
from minikafka.records.avro.resolution import compile_reader
from minikafka.records.avro.types import Type
from minikafka.records.kernels import avro_ops as op
from minikafka.records.kernels.arrays import read_only

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
        self._sizes = ColumnSizes(self._program.root, self._program.counters)

    @property
    def arrow_type(self) -> pa.DataType:
        """The type of the column."""
        return self._program.root.type

    def decode(self, values: pa.Array, prefix_bytes: int = 0) -> DecodedAvro:
        """Read a binary column. The first ``prefix_bytes`` of each value, which it has, are left out."""
        rows = len(values)
        column = binary_column(values)
        results = np.zeros(rows, dtype=np.int64)
        memory = ColumnMemory(self._sizes, rows, int(column.data.size))
        if column.offsets.size:
            self._run(memory, column, prefix_bytes, results)
        else:
            memory.all_null()
        bad = np.flatnonzero(results)
        return DecodedAvro(memory.filled(), bad, tuple(map(self._reason, results[bad].tolist())))

    def _run(
        self, memory: ColumnMemory, column: BinaryColumn, prefix_bytes: int, results: NDArray[np.int64]
    ) -> None:
        read, program = kernels.avro_read, self._program
        state = np.zeros(read.STATE_SIZE, dtype=np.int64)
        constants = read_only(program.constants or b"\0")
        state[read.VALUES_AT] = column.data.ctypes.data
        state[read.CONSTANTS_AT] = constants.ctypes.data
        state[read.PREFIX_BYTES] = prefix_bytes
        state[read.NULL_PROGRAM] = program.null_program
        state[read.VALID_SHIFT] = column.shift
        state[read.REFUSED_ROW] = -1
        stack = np.zeros(max(1, program.depth) * read.FRAME, dtype=np.int64)
        saved = np.zeros_like(memory.used)
        while (
            read.read_avro(
                program.ops,
                program.table,
                column.offsets,
                column.valid,
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
