"""Decoding of a column of protobuf messages to a struct column, as Spark's ``from_protobuf`` does.

Level by level: one call of the kernels for all messages of one field, and numpy and Arrow for the columns. An
absent field is null; so is a zero in a field without presence, which nobody can tell from an absent one.
Unknown fields, and known ones with another wire type, are passed over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from minikafka.records.arrow.buffers import empty
from minikafka.records.kernels import protobuf as kernels
from minikafka.records.protobuf.types import DURATION, EnumType, Field, Message, from_wire

_REASONS = {
    kernels.TRUNCATED: "the bytes end inside a field",
    kernels.BAD_TAG: "a field has an invalid number or wire type",
}
_UTC_MICROS = pa.timestamp("us", tz="UTC")
_SECONDS_MAX = ((1 << 63) - 1) // 1_000_000 - 3
"""Nanoseconds, an int32 of their own, are at most two seconds more."""
Longs = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class DecodedMessages:
    """A column of messages, null where there is none. bad: the rows that are no such message, ascending."""

    column: pa.Array
    bad: Longs
    reasons: tuple[str, ...]


def decode_messages(data: NDArray[np.uint8], starts: Longs, ends: Longs, message: Message) -> DecodedMessages:
    """Return the messages between ``starts`` and ``ends`` in ``data``; a start of -1 is no message."""
    bad: dict[int, str] = {}
    rows = np.arange(len(starts))
    while True:
        decoder = _Decoder(data)
        column = decoder.messages(message, starts, ends, rows)
        if not decoder.bad:
            numbers = sorted(bad)
            return DecodedMessages(
                column, np.array(numbers, dtype=np.int64), tuple(bad[row] for row in numbers)
            )
        # Rare: what is left is decoded once more, without the bad ones.
        bad.update(decoder.bad)
        starts = starts.copy()
        starts[list(bad)] = -1


@dataclass(frozen=True, slots=True)
class _Scanned:
    """The result of one run over messages. table: that of the fields, for the kernels."""

    count: int
    table: Longs
    found: NDArray[np.uint8]
    values: Longs
    lengths: Longs
    counts: Longs
    results: Longs

    def presence(self, number: int) -> NDArray[np.bool_]:
        at = self.table[number, kernels.PLACE]
        return self.found[at : at + self.count] > 0

    def numbers(self, number: int) -> Longs:
        at = self.table[number, kernels.PLACE]
        return self.values[at : at + self.count]

    def sizes(self, number: int) -> Longs:
        at = self.table[number, kernels.LENGTHS]
        return self.lengths[at : at + self.count]


@dataclass(slots=True)
class _Decoder:
    """One run over a column of messages. bad: the outermost messages that are bad, and why."""

    data: NDArray[np.uint8]
    bad: dict[int, str] = field(default_factory=dict)

    def messages(self, message: Message, starts: Longs, ends: Longs, rows: Longs) -> pa.Array:
        """Return the column of messages; ``rows`` has the outermost message of each."""
        scanned = self._scan(message, starts, ends, rows)
        if message.is_well_known:
            return self._times(message, scanned, starts, rows)
        columns = {found.name: number for number, found in enumerate(message.fields)}
        arrays = []
        for found in message.columns:
            column = self._column(found, columns[found.name], scanned, starts, ends, rows)
            if found.is_required and column.null_count > np.count_nonzero(starts < 0):
                self._refuse_absent(message, found, column, starts, rows)
            arrays.append(column)
        return pa.StructArray.from_arrays(
            arrays, fields=list(message.arrow_type), mask=pa.array(starts < 0) if len(starts) else None
        )

    def _scan(self, message: Message, starts: Longs, ends: Longs, rows: Longs) -> _Scanned:
        count = len(starts)
        table, singular, lengths, repeated = _table(message, count)
        scanned = _Scanned(
            count,
            table,
            np.zeros(singular, dtype=np.uint8),
            empty(singular, np.int64),
            empty(lengths, np.int64),
            np.zeros(repeated, dtype=np.int64),
            empty(count, np.int64),
        )
        members = empty(message.oneofs, np.int64)
        bad = kernels.scan_messages(
            self.data, starts, ends, table.reshape(-1), members, scanned.found, scanned.values,
            scanned.lengths, scanned.counts, scanned.results
        )  # fmt: skip
        assert bad >= 0, "the messages are inside the data"
        if bad:
            for row in np.flatnonzero(scanned.results):
                reason = _REASONS[int(scanned.results[row])]
                self.bad.setdefault(int(rows[row]), f"{message.name}: {reason}")
        return scanned

    def _column(
        self, found: Field, number: int, scanned: _Scanned, starts: Longs, ends: Longs, rows: Longs
    ) -> pa.Array:
        if found.is_repeated:
            return self._repeated(found, number, scanned, starts, ends, rows)
        present, values = scanned.presence(number), scanned.numbers(number)
        if found.wire != kernels.LENGTH:
            if not found.has_presence:
                present = present & (values != 0)
            return _number_column(found, values, present)
        lengths = np.where(present, scanned.sizes(number), -1)
        if found.message is not None:
            begins = np.where(present, values, -1)
            finishes = begins + lengths
            at = scanned.table[number, kernels.PLACE]
            again = np.flatnonzero(scanned.found[at : at + scanned.count] == kernels.AGAIN)
            if len(again):
                others = _other_members(scanned.table, number)
                self._merge(found, others, again, starts, ends, begins, finishes)
            return self.messages(found.message, begins, finishes, rows)
        if not found.has_presence:
            lengths[lengths == 0] = -1
        column = self._bytes(found, values, lengths, rows)
        return column if found.default is None else column.fill_null(pa.scalar(found.default, column.type))

    def _merge(
        self,
        found: Field,
        others: Mapping[int, int],
        again: Longs,
        starts: Longs,
        ends: Longs,
        begins: Longs,
        finishes: Longs,
    ) -> None:
        """Join the parts of a message that is there several times, as protobuf merges them: those behind the
        last one of ``others``.
        """
        parts, at = [self.data], len(self.data)
        for row in again:
            message = self.data[starts[row] : ends[row]].tobytes()
            joined = b"".join(_occurrences(message, found.number, others))
            parts.append(np.frombuffer(joined, dtype=np.uint8))
            begins[row], finishes[row] = at, at + len(joined)
            at += len(joined)
        self.data = np.concatenate(parts)

    def _repeated(
        self, found: Field, number: int, scanned: _Scanned, starts: Longs, ends: Longs, rows: Longs
    ) -> pa.Array:
        at = scanned.table[number, kernels.PLACE]
        counts = scanned.counts[at : at + scanned.count]
        offsets = np.zeros(scanned.count + 1, dtype=np.int64)
        np.cumsum(counts, out=offsets[1:])
        total = int(offsets[-1])
        values, lengths = empty(total, np.int64), empty(total, np.int64)
        table = np.array([scanned.table[number]])
        table[0, kernels.PLACE] = 0
        read = kernels.read_items(
            self.data, starts, ends, table.reshape(-1), scanned.results, offsets[:-1].copy(), values, lengths
        )
        assert read >= 0, "the items were counted"
        owners = np.repeat(rows, counts)
        ends_of_rows = pa.array(offsets.astype(np.int32))
        if found.is_map:
            keys, items = self._entries(found, values, lengths, owners)
            return pa.MapArray.from_arrays(ends_of_rows, keys, items, type=found.arrow_type)
        items = self._items(found, values, lengths, owners)
        return pa.ListArray.from_arrays(ends_of_rows, items, type=found.arrow_type)

    def _items(self, found: Field, values: Longs, lengths: Longs, owners: Longs) -> pa.Array:
        """Return a column of values, all of which are there."""
        if found.message is not None:
            return self.messages(found.message, values, values + lengths, owners)
        if found.wire == kernels.LENGTH:
            return self._bytes(found, values, lengths, owners)
        return _number_column(found, values, np.ones(len(values), dtype=np.bool_))

    def _entries(
        self, found: Field, values: Longs, lengths: Longs, owners: Longs
    ) -> tuple[pa.Array, pa.Array]:
        """Return keys and values of a map's entries; one that is absent in its entry is zero."""
        assert found.message is not None, "a map has the message of its entries"
        scanned = self._scan(found.message, values, values + lengths, owners)
        arrays = []
        for number, part in enumerate(found.entry):
            present, numbers = (
                scanned.presence(number),
                np.where(scanned.presence(number), scanned.numbers(number), 0),
            )
            if part.wire == kernels.LENGTH:
                sizes = np.where(present, scanned.sizes(number), 0)
                arrays.append(self._items(part, numbers, sizes, owners))
            else:
                arrays.append(self._items(part, numbers, numbers, owners))
        return arrays[0], arrays[1]

    def _bytes(self, found: Field, starts: Longs, lengths: Longs, rows: Longs) -> pa.Array:
        """Return a column of bytes or text; a negative length is null."""
        valid = lengths >= 0
        out = empty(int(lengths[valid].sum()), np.uint8)
        ends = np.zeros(len(starts) + 1, dtype=np.int32)
        assert kernels.gather_bytes(self.data, starts, lengths, ends, out) >= 0, "lengths were checked"
        mask = pa.array(valid).buffers()[1] if len(valid) else None
        buffers = [mask, pa.py_buffer(ends), pa.py_buffer(out)]
        column = pa.Array.from_buffers(pa.binary(), len(starts), buffers)
        if found.kind == "bytes":
            return column
        try:
            return column.cast(pa.string())
        except pa.ArrowInvalid:
            for row, value in enumerate(column.to_pylist()):
                if value is not None and not _is_text(value):
                    self.bad.setdefault(int(rows[row]), f"field {found.name}: the text is not UTF-8")
            return pa.repeat("", len(starts))  # the column is made once more

    def _times(self, message: Message, scanned: _Scanned, starts: Longs, rows: Longs) -> pa.Array:
        """Return the column of Timestamp or Duration."""
        parts = []
        for number, found in enumerate(message.fields):
            values = np.where(scanned.presence(number), scanned.numbers(number), 0)
            parts.append(from_wire(found, values).astype(np.int64))
        seconds, nanos = parts
        for row in np.flatnonzero((seconds > _SECONDS_MAX) | (seconds < -_SECONDS_MAX)):
            self.bad.setdefault(int(rows[row]), f"{message.name}: it does not fit 64 bits of microseconds")
        micros = seconds * 1_000_000 + np.trunc(nanos / 1000).astype(np.int64)
        kind = pa.duration("us") if message.name == DURATION else _UTC_MICROS
        return pa.array(micros, mask=starts < 0).cast(kind)

    def _refuse_absent(
        self, message: Message, found: Field, column: pa.Array, starts: Longs, rows: Longs
    ) -> None:
        absent = np.asarray(column.is_null()) & (starts >= 0)
        for row in np.flatnonzero(absent):
            self.bad.setdefault(int(rows[row]), f"{message.name}: the required field {found.name} is missing")


def _table(message: Message, count: int) -> tuple[Longs, int, int, int]:
    """Return the kernels' table of fields, and the sizes of the arrays of a run over ``count`` messages."""
    table = np.zeros((len(message.fields), kernels.WORDS), dtype=np.int64)
    singular = lengths = repeated = 0
    for row, found in zip(table, message.fields, strict=True):
        row[kernels.NUMBER], row[kernels.WIRE] = found.number, found.wire
        row[kernels.REPEATED], row[kernels.ONEOF] = found.is_repeated, found.oneof
        if found.is_repeated:
            row[kernels.PLACE] = repeated
            repeated += count
            continue
        row[kernels.PLACE] = singular
        singular += count
        if found.wire == kernels.LENGTH:
            row[kernels.LENGTHS] = lengths
            lengths += count
    return table, singular, lengths, repeated


def _number_column(found: Field, values: Longs, present: NDArray[np.bool_]) -> pa.Array:
    """Return the column of a number, a bool or an enum."""
    if found.default is not None or not present.all():
        values = np.where(present, values, 0)
    numbers = from_wire(found, values)
    if found.enum is not None:
        column = _enum_column(found.enum, numbers, present)
    else:
        column = pa.array(numbers, mask=None if present.all() else ~present)
    return column if found.default is None else column.fill_null(pa.scalar(found.default, column.type))


def _enum_column(enum: EnumType, numbers: NDArray[Any], present: NDArray[np.bool_]) -> pa.Array:
    """Return the names of an enum's numbers; protobuf's Java runtime has the same for an unknown one."""
    known = np.array(enum.numbers, dtype=np.int32)
    places = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
    names = list(enum.names)
    unknown = present & (known[places] != numbers)
    if unknown.any():
        if enum.is_closed:
            present = present & ~unknown
        else:
            others, numbered = np.unique(numbers[unknown], return_inverse=True)
            places[unknown] = len(names) + numbered
            names += [f"UNKNOWN_ENUM_VALUE_{enum.name.rpartition('.')[2]}_{number}" for number in others]
    indices = pa.array(places.astype(np.int32), mask=~present)
    return pa.array(names, pa.string()).take(indices)


def _other_members(table: Longs, number: int) -> dict[int, int]:
    """Return the other fields of a field's oneof, with their wire types."""
    oneof = table[number, kernels.ONEOF]
    rows = table[(table[:, kernels.ONEOF] == oneof) & (oneof >= 0)].tolist()
    own = table[number, kernels.NUMBER]
    return {row[kernels.NUMBER]: row[kernels.WIRE] for row in rows if row[kernels.NUMBER] != own}


def _occurrences(message: bytes, number: int, others: Mapping[int, int]) -> list[bytes]:
    """Return the values of a field of wire type LENGTH in a message that is known to be good, behind the last
    of the fields ``others``, with their wire types.
    """
    found: list[bytes] = []
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7

    depth = 0
    while at < len(message):
        field_number, wire = divmod(varint(), 8)
        if depth == 0 and others.get(field_number) == wire:
            found.clear()
        if wire == kernels.VARINT:
            varint()
        elif wire == kernels.LENGTH:
            length = varint()
            if field_number == number and depth == 0:
                found.append(message[at : at + length])
            at += length
        elif wire in (kernels.START_GROUP, kernels.END_GROUP):
            depth += 1 if wire == kernels.START_GROUP else -1
        else:
            at += 8 if wire == kernels.FIXED64 else 4
    return found


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
