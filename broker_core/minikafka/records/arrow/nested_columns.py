"""The Arrow columns that a kernel fills from values of a nested type, such as those of Avro or JSON.

The items of a column are counted by its domain's counter: counter 0 counts rows, and every list or map has
one for its items. Each column of bytes has one more, for its bytes. ``kernels.avro_ops`` describes the table
of addresses that a kernel gets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from minikafka.records.arrow.buffers import empty, grown
from minikafka.records.kernels import avro_ops as op

COLUMNS_MAX = 10_000
"""The most columns of a schema: types that contain each other twice would have 2^depth."""
_COLUMN_MAX = 0x7FFFFFFF
"""The most bytes or items of a column with int32 ends."""
_FIRST_BYTES = 4096


class TooManyColumns(ValueError):
    """A schema with more than COLUMNS_MAX columns."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column that the kernel fills.

    place     that of its addresses in the kernel's table
    domain    the counter of its items
    counter   the counter of its bytes or, for a list or map, of its children's items; -1 for others
    width     the size of an item in memory; 0 if it has ends, or nothing but its validity
    """

    type: pa.DataType
    nullable: bool
    place: int
    domain: int
    counter: int
    width: int
    children: tuple[Column, ...]

    @property
    def has_ends(self) -> bool:
        return self.counter >= 0

    @property
    def item_bytes(self) -> int:
        """The bytes that an item has in the memory of this column, without those of its children or text."""
        return int(self.nullable) + (4 if self.has_ends else self.width)

    def all(self) -> Iterator[Column]:
        """Yield this column and all below it."""
        yield self
        for child in self.children:
            yield from child.all()


@dataclass(slots=True)
class ColumnNumbers:
    """Gives numbers to columns and counters; ``counters`` is their count, rows included."""

    columns: int = 0
    counters: int = 1

    def column(self, kind: pa.DataType, nullable: bool, domain: int = 0) -> Column:
        """Return the column of an Arrow type, with those below it."""
        if self.columns >= COLUMNS_MAX:
            raise TooManyColumns(f"the schema has more than {COLUMNS_MAX} columns")
        place = self.columns * op.ADDRESSES
        self.columns += 1
        counter = -1
        if pa.types.is_list(kind) or pa.types.is_map(kind) or _is_bytes(kind):
            counter = self.counters
            self.counters += 1
        width, children = 0, []
        if pa.types.is_struct(kind):
            children = [self.column(one.type, one.nullable, domain) for one in kind]
        elif pa.types.is_list(kind):
            children = [self.column(kind.value_type, kind.value_field.nullable, counter)]
        elif pa.types.is_map(kind):
            children = [
                self.column(kind.key_type, False, counter),
                self.column(kind.item_type, kind.item_field.nullable, counter),
            ]
        elif not (_is_bytes(kind) or pa.types.is_null(kind)):
            width = max(1, kind.bit_width // 8)
        return Column(kind, nullable, place, domain, counter, width, tuple(children))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


class ColumnMemory:
    """The memory of the columns, and the tables that describe it to the kernel."""

    def __init__(self, root: Column, counters: int, rows: int, data_bytes: int) -> None:
        self._columns = {column.place: column for column in root.all()}
        self._rows = rows
        self.used = np.zeros(counters, dtype=np.int64)
        self.limits = np.zeros(counters, dtype=np.int64)
        self.addresses = np.zeros(len(self._columns) * op.ADDRESSES, dtype=np.int64)
        self._arrays: dict[int, NDArray[np.uint8]] = {}
        """The memory at each place of ``addresses``."""
        self.limits[0] = rows
        for counter in range(1, counters):
            # About the bytes of the data for each list: a process may be limited in what it may ask for.
            wide = sum(column.item_bytes for column in self._columns.values() if column.domain == counter)
            self.limits[counter] = min(_COLUMN_MAX, _FIRST_BYTES + data_bytes // max(counters, wide))
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
