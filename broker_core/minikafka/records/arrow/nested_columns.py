"""The Arrow columns that a kernel fills from values of a nested type, such as those of Avro or JSON.

``kernels.values`` describes the table of addresses that a kernel gets, and says what a counter counts.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from minikafka.records.kernels import values as kernels

COLUMNS_MAX = 10_000
"""The most columns of a schema: types that contain each other twice would have 2^depth."""
_COLUMN_MAX = 0x7FFFFFFF
"""The most bytes or items of a column with int32 ends."""
_FIRST_BYTES = 4096
_SPARE = 1.1
"""Text gets a tenth more than what it took of the data before."""


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
    def is_text(self) -> bool:
        """Return True for a column of bytes or of text."""
        return self.counter >= 0 and not self.children

    @property
    def has_marks(self) -> bool:
        """Return True if there is a byte for each item that says whether it is valid."""
        return self.nullable and not pa.types.is_null(self.type)

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
        place = self.columns * kernels.ADDRESSES
        self.columns += 1
        counter = -1
        if pa.types.is_list(kind) or pa.types.is_map(kind) or _is_bytes(kind):
            counter = self.counters
            self.counters += 1
        width, children = 0, []
        if pa.types.is_struct(kind):
            children = [self.column(member.type, member.nullable, domain) for member in kind]
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


class ColumnSizes:
    """The columns below a root, and how much memory they get at first: text as much as it took of the data
    before.
    """

    def __init__(self, root: Column, counters: int) -> None:
        self.root = root
        self.all = tuple(root.all())
        item_bytes = [0] * counters
        for column in self.all:
            item_bytes[column.domain] += column.item_bytes
        # About the bytes of the data for each list: a process may be limited in what it may ask for.
        self._parts = np.maximum(item_bytes, counters)
        self._texts = np.array([one.counter for one in self.all if one.is_text], dtype=np.int64)
        self._shares: NDArray[np.float64] | None = None
        """Of the last data, what each of ``_texts`` took."""

    def limits(self, rows: int, data_bytes: int) -> NDArray[np.int64]:
        """Return the limit of each counter."""
        found: NDArray[np.int64] = data_bytes // self._parts
        if self._shares is not None:
            found[self._texts] = self._shares * (_SPARE * data_bytes)
        found = np.minimum(found + _FIRST_BYTES, _COLUMN_MAX)
        found[0] = rows
        return found

    def learn(self, used: NDArray[np.int64], data_bytes: int) -> None:
        """Note what the counters of some data have reached."""
        if data_bytes:
            self._shares = np.minimum(used[self._texts] / data_bytes, 1)


class ColumnMemory:
    """The memory of the columns, and the tables that describe it to the kernel."""

    def __init__(self, sizes: ColumnSizes, rows: int, data_bytes: int) -> None:
        self._sizes = sizes
        self._rows = rows
        self._data_bytes = data_bytes
        self.limits = sizes.limits(rows, data_bytes)
        self.used = np.zeros_like(self.limits)
        self.addresses = np.zeros(len(sizes.all) * kernels.ADDRESSES, dtype=np.int64)
        self._buffers: dict[int, pa.Buffer] = {}
        """The memory at each place of ``addresses``."""
        limits = self.limits.tolist()
        for column in sizes.all:
            self._size_items(column, limits[column.domain])
            if column.is_text:
                self._resize(column.place + kernels.BYTES_AT, limits[column.counter])

    def _size_items(self, column: Column, items: int) -> None:
        if column.has_marks:
            self._resize(column.place + kernels.VALIDITY, items)
        if column.has_ends:
            self._resize(column.place + kernels.DATA, 4 * (items + 1))
        elif column.width:
            self._resize(column.place + kernels.DATA, column.width * items)

    def _resize(self, place: int, size: int) -> None:
        before = self._buffers.get(place)
        buffer = self._buffers[place] = pa.allocate_buffer(size)
        if before is None:
            ctypes.memset(buffer.address, 0, min(size, 4))  # the start of the first item, if these are ends
        else:
            ctypes.memmove(buffer.address, before.address, before.size)
        self.addresses[place] = buffer.address

    def grow(self, counter: int, wanted: int) -> bool:
        """Enlarge what a counter counts, at least to ``wanted``; False if it would be too large."""
        if wanted > _COLUMN_MAX:
            return False
        limit = self.limits[counter] = min(_COLUMN_MAX, max(wanted, 2 * int(self.limits[counter])))
        for column in self._sizes.all:
            if column.domain == counter:
                self._size_items(column, limit)
            elif column.counter == counter and column.is_text:
                self._resize(column.place + kernels.BYTES_AT, limit)
        return True

    def all_null(self) -> None:
        """Make every row null."""
        for buffer in self._buffers.values():
            ctypes.memset(buffer.address, 0, buffer.size)

    def filled(self) -> pa.Array:
        """Return the root's column without a copy, but for booleans and validity, which become bits."""
        self._sizes.learn(self.used, self._data_bytes)
        return self._array(self._sizes.root, self._rows)

    def _array(self, column: Column, items: int) -> pa.Array:
        if pa.types.is_null(column.type):
            return pa.nulls(items)
        validity = self._validity(column, items)
        if pa.types.is_struct(column.type):
            children = [self._array(child, items) for child in column.children]
            return pa.Array.from_buffers(column.type, items, [validity], children=children)
        data = self._buffers[column.place + kernels.DATA]
        if column.has_ends:
            used = int(np.frombuffer(data, dtype=np.int32)[items])
            if column.is_text:
                text = self._buffers[column.place + kernels.BYTES_AT].slice(0, used)
                return pa.Array.from_buffers(column.type, items, [validity, data, text])
            children = [self._array(child, used) for child in column.children]
            if pa.types.is_map(column.type):
                entry = pa.struct([column.type.key_field, column.type.item_field])
                children = [pa.Array.from_buffers(entry, used, [None], children=children)]
            return pa.Array.from_buffers(column.type, items, [validity, data], children=children)
        data = data.slice(0, column.width * items)
        if pa.types.is_boolean(column.type):
            data = pa.py_buffer(np.packbits(np.frombuffer(data, dtype=np.uint8), bitorder="little"))
        return pa.Array.from_buffers(column.type, items, [validity, data])

    def _validity(self, column: Column, items: int) -> pa.Buffer | None:
        if not column.has_marks:
            return None
        marks = np.frombuffer(self._buffers[column.place + kernels.VALIDITY], dtype=np.bool_)[:items]
        return None if marks.all() else pa.py_buffer(np.packbits(marks, bitorder="little"))
