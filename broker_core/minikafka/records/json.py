"""Reads a column of JSON values into Arrow columns, without a Python object a value.

The types are those of Spark's columns. The kernel reads common JSON, and refuses what it does not know: those
rows are null and are named, for a slower reader that decides about them. See ``kernels.json_read``.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from minikafka.records import kernels
from minikafka.records.arrow.encoding import binary_column
from minikafka.records.arrow.nested_columns import Column, ColumnMemory, ColumnNumbers, ColumnSizes
from minikafka.records.kernels import json_ops as op
from minikafka.records.kernels import json_scan
from minikafka.records.kernels.arrays import read_only


@dataclass(slots=True)
class _Tables:
    """The tables of the kernel, of Python numbers."""

    nodes: list[int] = field(default_factory=list)
    fields: list[int] = field(default_factory=list)
    nulls: list[int] = field(default_factory=list)
    names: bytearray = field(default_factory=bytearray)
    depth: int = 1

    def add(self, column: Column, level: int = 1) -> list[int]:
        """Add the node of a column, and those below it. Return the nodes that are null with it."""
        self.depth = max(self.depth, level)
        base = len(self.nodes)
        kind = _kind(column.type)
        node = [0] * op.NODE_WORDS
        self.nodes += node
        node[op.KIND], node[op.COLUMN] = kind, column.place
        node[op.DOMAIN], node[op.COUNTER] = column.domain, column.counter
        together = [base]
        if kind == op.STRUCT:
            node[op.FIRST], node[op.COUNT] = len(self.fields) // op.FIELD_WORDS, len(column.children)
            first = len(self.fields)
            self.fields += [0] * (op.FIELD_WORDS * len(column.children))
            for number, child in enumerate(column.children):
                name = column.type.field(number).name.encode()
                place = first + number * op.FIELD_WORDS
                self.fields[place : place + op.FIELD_WORDS] = len(self.names), len(name), len(self.nodes)
                self.names += name
                together += self.add(child, level + 1)
        elif kind in (op.LIST, op.MAP):
            node[op.FIRST] = len(self.nodes)
            if kind == op.MAP:
                node[op.KEYS], node[op.KEYS_COUNTER] = column.children[0].place, column.children[0].counter
            self.add(column.children[-1], level + 1)
        elif kind == op.INTEGER:
            node[op.COUNT] = column.width
        elif kind == op.DECIMAL:
            node[op.FIRST], node[op.COUNT] = column.type.scale, column.type.precision
        node[op.NULLS], node[op.NULL_COUNT] = len(self.nulls), len(together)
        self.nulls += together
        self.nodes[base : base + op.NODE_WORDS] = node
        return together


_KINDS = {
    pa.string(): op.STRING,
    pa.float32(): op.FLOAT,
    pa.float64(): op.DOUBLE,
    pa.bool_(): op.BOOLEAN,
    pa.date32(): op.DATE,
    pa.timestamp("us", "UTC"): op.TIMESTAMP,
    pa.timestamp("us"): op.LOCAL_TIMESTAMP,
    pa.binary(): op.OTHER,
}


def _kind(kind: pa.DataType) -> int:
    if pa.types.is_struct(kind):
        return op.STRUCT
    if pa.types.is_map(kind):
        return op.MAP
    if pa.types.is_list(kind):
        return op.LIST
    if pa.types.is_integer(kind):
        return op.INTEGER
    return op.DECIMAL if pa.types.is_decimal(kind) else _KINDS[kind]


@functools.cache
def _powers() -> NDArray[np.int64]:
    """Return the first 128 bits of each power of ten that a double can have, the high half first."""
    found = np.zeros(2 * (json_scan.POWER_MAX - json_scan.POWER_MIN + 1), dtype=np.uint64)
    for number, exponent in enumerate(range(json_scan.POWER_MIN, json_scan.POWER_MAX + 1)):
        power = 5 ** abs(exponent)
        if exponent < 0:
            # Rounded up, of as many digits as a proof of the algorithm needs.
            digits = (power - 1).bit_length()
            power = (1 << (digits + 127 if exponent >= -27 else 2 * digits + 128)) // power + 1
        shift = power.bit_length() - 128
        bits = power >> shift if shift >= 0 else power << -shift
        found[2 * number], found[2 * number + 1] = bits >> 64, bits & (1 << 64) - 1
    return found.view(np.int64)


class JsonReader:
    """Reads JSON values of one type."""

    def __init__(self, kind: pa.DataType) -> None:
        numbers = ColumnNumbers()
        root = numbers.column(kind, True)
        self._sizes = ColumnSizes(root, numbers.counters)
        tables = _Tables()
        tables.add(root)
        self._tables = [
            np.array(table, dtype=np.int64) for table in (tables.nodes, tables.fields, tables.nulls)
        ]
        self._names, self._depth = bytes(tables.names), tables.depth

    def read(self, values: pa.Array) -> tuple[pa.Array, NDArray[np.int64]]:
        """Return the column, and the numbers of the values that are null because the kernel refused them."""
        rows = len(values)
        column = binary_column(values)
        memory = ColumnMemory(self._sizes, rows, int(column.data.size))
        results = np.zeros(rows, dtype=np.int64)
        if not column.offsets.size:
            memory.all_null()
            return memory.filled(), np.empty(0, dtype=np.int64)
        read = kernels.json_read
        names, scratch = read_only(self._names or b"\0"), np.zeros(1, dtype=np.int64)
        state = np.zeros(op.STATE_SIZE, dtype=np.int64)
        state[op.VALUES_AT], state[op.NAMES_AT] = column.data.ctypes.data, names.ctypes.data
        state[op.SCRATCH_AT] = scratch.ctypes.data
        state[op.VALID_SHIFT], state[op.REFUSED_ROW] = column.shift, -1
        nodes, fields, nulls = self._tables
        seen = np.zeros(max(1, fields.size // op.FIELD_WORDS), dtype=np.int64)
        stack = np.zeros(self._depth * read.FRAME, dtype=np.int64)
        saved = np.zeros_like(memory.used)
        while (
            read.read_json(
                nodes,
                fields,
                nulls,
                _powers(),
                column.offsets,
                column.valid,
                memory.addresses,
                memory.used,
                saved,
                memory.limits,
                seen,
                stack,
                results,
                state,
            )
            == op.FULL
        ):
            if not memory.grow(int(state[op.FULL_COUNTER]), int(state[op.WANTED])):
                state[op.REFUSED_ROW] = state[op.NEXT_ROW]
        return memory.filled(), np.flatnonzero(results)
