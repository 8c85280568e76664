"""Decoding of a column of protobuf messages to a struct column, as Spark's ``from_protobuf`` does.

Level by level: one call of the kernels for all messages of one field, and numpy and Arrow for the columns. An
absent field is null; so is a zero in a field without presence, which nobody can tell from an absent one.
Unknown fields, and known ones with another wire type, are passed over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
    kernels.BAD_TEXT: "a text, in place of which a later one counts, is not UTF-8",
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
    """Messages of one type, and the result of the runs over them.

    rows           the outermost message of each
    table          of the fields, for the kernels, which say what ``found``, ``values`` and ``lengths`` are
    places         the first item of each message in ``items``, field after field, and the end of the last one
    items          the values of the repeated fields
    item_lengths   for those of wire type LENGTH
    """

    message: Message
    starts: Longs
    ends: Longs
    rows: Longs
    table: Longs
    found: NDArray[np.uint8]
    values: Longs
    lengths: Longs
    places: Longs
    items: Longs
    item_lengths: Longs

    @property
    def count(self) -> int:
        return len(self.starts)

    def presence(self, number: int) -> NDArray[np.bool_]:
        at = self.table[number, kernels.PLACE]
        return (self.found[at : at + self.count] & kernels.PRESENT).view(np.bool_)

    def with_replaced(self, number: int) -> Longs:
        """Return the messages in which a value of the field is replaced by a later one."""
        at = self.table[number, kernels.PLACE]
        return np.flatnonzero(self.found[at : at + self.count] & kernels.REPLACED)

    def numbers(self, number: int) -> Longs:
        at = self.table[number, kernels.PLACE]
        return self.values[at : at + self.count]

    def sizes(self, number: int) -> Longs:
        at = self.table[number, kernels.LENGTHS]
        return self.lengths[at : at + self.count]


@dataclass(slots=True)
class _Decoder:
    """One run over a column of messages.

    bad: the outermost messages that are bad, and why. only_damage: what a good message lacks does not make it
    bad.
    """

    data: NDArray[np.uint8]
    bad: dict[int, str] = field(default_factory=dict)
    only_damage: bool = False

    def messages(self, message: Message, starts: Longs, ends: Longs, rows: Longs) -> pa.Array:
        """Return the column of messages; ``rows`` has the outermost message of each."""
        scanned = self._scan(message, starts, ends, rows)
        if message.is_well_known:
            return self._times(message, scanned)
        columns = {}
        for number, found in enumerate(message.fields):
            # Also of those that have no column: they may be damaged.
            columns[found.name] = column = self._column(found, number, scanned)
            if found.is_required and not self.only_damage:
                self._refuse_absent(message, found, column, scanned)
        validity = pa.array(starts >= 0).buffers()[1] if np.any(starts < 0) else None
        children = [columns[found.name] for found in message.columns]
        return pa.Array.from_buffers(message.arrow_type, len(starts), [validity], children=children)

    def _scan(self, message: Message, starts: Longs, ends: Longs, rows: Longs) -> _Scanned:
        table, singular, sized, repeated = _table(message, len(starts))
        words, members = table.reshape(-1), empty(message.oneofs, np.int64)
        found = np.zeros(singular, dtype=np.uint8)
        values, lengths = empty(singular, np.int64), empty(sized, np.int64)
        counts, results = np.zeros(repeated, dtype=np.int64), empty(len(starts), np.int64)
        bad = kernels.scan_messages(
            self.data, starts, ends, words, _closed(message), members, found, values, lengths, counts, results
        )
        assert bad >= 0, "the messages are inside the data"
        if bad:
            for row in np.flatnonzero(results):
                self.bad.setdefault(int(rows[row]), f"{message.name}: {_REASONS[int(results[row])]}")
        places = np.zeros(repeated + 1, dtype=np.int64)
        np.cumsum(counts, out=places[1:])
        items, item_lengths = empty(int(places[-1]), np.int64), empty(int(places[-1]), np.int64)
        if len(items):
            read = kernels.read_items(
                self.data, starts, ends, words, results, places[:-1].copy(), items, item_lengths
            )
            assert read >= 0, "the items were counted"
        return _Scanned(
            message, starts, ends, rows, table, found, values, lengths, places, items, item_lengths
        )

    def _column(self, found: Field, number: int, scanned: _Scanned) -> pa.Array:
        if found.is_repeated:
            return self._repeated(found, number, scanned)
        if found.message is not None:
            return self.messages(found.message, *self._spans(found, number, scanned), scanned.rows)
        present, values = scanned.presence(number), scanned.numbers(number)
        if found.wire != kernels.LENGTH:
            if not found.has_presence:
                present = present & (values != 0)
            return _number_column(found, values, present)
        lengths = np.where(present, scanned.sizes(number), -1)
        if not found.has_presence:
            lengths[lengths == 0] = -1
        column = self._bytes(found, values, lengths, scanned.rows)
        return column if found.default is None else column.fill_null(pa.scalar(found.default, column.type))

    def _spans(self, found: Field, number: int, scanned: _Scanned) -> tuple[Longs, Longs]:
        """Return start and end of a field's message in each message; -1 where it is absent."""
        present, starts = scanned.presence(number), scanned.numbers(number)
        starts, ends = np.where(present, starts, -1), np.where(present, starts + scanned.sizes(number), -1)
        rows = scanned.with_replaced(number)
        if len(rows):
            self._merge(found, _other_members(scanned.message, found), scanned, rows, starts, ends)
        return starts, ends

    def _merge(
        self,
        found: Field,
        others: Mapping[int, Field],
        scanned: _Scanned,
        rows: Longs,
        starts: Longs,
        ends: Longs,
    ) -> None:
        """Join the parts of a message that is there several times, as protobuf merges them: those behind the
        last one of ``others``. A part that is bad by itself makes its message bad.
        """
        pieces, at = [self.data], len(self.data)
        merged: list[tuple[int, int, int]] = []
        replaced: list[tuple[int, int, int]] = []
        for row in rows.tolist():
            message = self.data[scanned.starts[row] : scanned.ends[row]].tobytes()
            parts, first_merged = _occurrences(message, found.number, others)
            if first_merged < len(parts):
                starts[row] = at + sum(map(len, parts[:first_merged]))
                ends[row] = at + sum(map(len, parts))
            for number, part in enumerate(parts):
                span = (at, at + len(part), int(scanned.rows[row]))
                (merged if number >= first_merged else replaced).append(span)
                at += len(part)
            pieces.append(np.frombuffer(b"".join(parts), dtype=np.uint8))
        self.data = np.concatenate(pieces)
        assert found.message is not None, "only messages have parts"
        # A merged part is looked at alone only for damage of its own: its fields are read of the whole.
        self._scan(found.message, *_columns_of(merged))
        _Decoder(self.data, self.bad, only_damage=True).messages(found.message, *_columns_of(replaced))

    def _repeated(self, found: Field, number: int, scanned: _Scanned) -> pa.Array:
        at = scanned.table[number, kernels.PLACE]
        places = scanned.places[at : at + scanned.count + 1]
        values = scanned.items[places[0] : places[-1]]
        lengths = scanned.item_lengths[places[0] : places[-1]]
        owners = np.repeat(scanned.rows, np.diff(places))
        offsets = places - places[0]
        if found.is_map:
            columns = self._entries(found, values, values + lengths, owners)
            return pa.MapArray.from_arrays(
                pa.array(offsets.astype(np.int32)), *columns, type=found.arrow_type
            )
        items = self._items(found, values, lengths, owners)
        if items.null_count:
            # A number that a closed enum does not know is an unknown field.
            known = items.is_valid().to_numpy(zero_copy_only=False)
            items, offsets = items.drop_null(), np.append(0, np.cumsum(known))[offsets]
        return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), items, type=found.arrow_type)

    def _items(self, found: Field, values: Longs, lengths: Longs, owners: Longs) -> pa.Array:
        """Return a column of values, all of which are there."""
        if found.message is not None:
            return self.messages(found.message, values, values + lengths, owners)
        if found.wire == kernels.LENGTH:
            return self._bytes(found, values, lengths, owners)
        return _number_column(found, values, np.ones(len(values), dtype=np.bool_))

    def _entries(self, found: Field, starts: Longs, ends: Longs, owners: Longs) -> list[pa.Array]:
        """Return keys and values of a map's entries; one that is absent in its entry is zero.

        An entry may have unknown fields, as in protobuf for Java; the one for Python leaves it out then.
        """
        assert found.message is not None, "a map has the message of its entries"
        scanned = self._scan(found.message, starts, ends, owners)
        columns = []
        for number, part in enumerate(found.entry):
            if part.message is not None:
                # An absent one is empty.
                value_starts, value_ends = self._spans(part, number, scanned)
                value_starts, value_ends = np.maximum(value_starts, 0), np.maximum(value_ends, 0)
                columns.append(self.messages(part.message, value_starts, value_ends, owners))
                continue
            present = scanned.presence(number)
            values = np.where(present, scanned.numbers(number), 0)
            lengths = np.where(present, scanned.sizes(number), 0) if part.wire == kernels.LENGTH else values
            columns.append(self._items(part, values, lengths, owners))
        return columns

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

    def _times(self, message: Message, scanned: _Scanned) -> pa.Array:
        """Return the column of Timestamp or Duration."""
        parts = []
        for number, found in enumerate(message.fields):
            values = np.where(scanned.presence(number), scanned.numbers(number), 0)
            parts.append(from_wire(found, values).astype(np.int64))
        seconds, nanos = parts
        too_far = (seconds > _SECONDS_MAX) | (seconds < -_SECONDS_MAX)
        for row in np.flatnonzero(too_far & (not self.only_damage)):
            reason = f"{message.name}: it does not fit 64 bits of microseconds"
            self.bad.setdefault(int(scanned.rows[row]), reason)
        micros = seconds * 1_000_000 + np.trunc(nanos / 1000).astype(np.int64)
        kind = pa.duration("us") if message.name == DURATION else _UTC_MICROS
        return pa.array(micros, mask=scanned.starts < 0).cast(kind)

    def _refuse_absent(self, message: Message, found: Field, column: pa.Array, scanned: _Scanned) -> None:
        if column.null_count == np.count_nonzero(scanned.starts < 0):
            return
        for row in np.flatnonzero(np.asarray(column.is_null()) & (scanned.starts >= 0)):
            reason = f"{message.name}: the required field {found.name} is missing"
            self.bad.setdefault(int(scanned.rows[row]), reason)


def _table(message: Message, count: int) -> tuple[Longs, int, int, int]:
    """Return the kernels' table of fields, and the sizes of the arrays of a run over ``count`` messages."""
    table = np.zeros((len(message.fields), kernels.WORDS), dtype=np.int64)
    singular = lengths = repeated = closed = 0
    for row, found in zip(table, message.fields, strict=True):
        row[kernels.NUMBER], row[kernels.WIRE] = found.number, found.wire
        row[kernels.REPEATED], row[kernels.ONEOF] = found.is_repeated, found.oneof
        row[kernels.TEXT] = found.kind == "string"
        if found.is_repeated:
            row[kernels.PLACE] = repeated
            repeated += count
            continue
        row[kernels.PLACE] = singular
        singular += count
        row[kernels.CLOSED], row[kernels.CLOSED_COUNT] = closed, len(found.closed_numbers)
        closed += len(found.closed_numbers)
        if found.wire == kernels.LENGTH:
            row[kernels.LENGTHS] = lengths
            lengths += count
    return table, singular, lengths, repeated


def _closed(message: Message) -> Longs:
    """Return the numbers of the closed enums of singular fields, for the kernels."""
    numbers = [found.closed_numbers for found in message.fields if not found.is_repeated]
    return np.array([number for some in numbers for number in some], dtype=np.int64)


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


def _other_members(message: Message, found: Field) -> dict[int, Field]:
    """Return the other fields of a field's oneof, by their numbers."""
    if found.oneof < 0:
        return {}
    others = [other for other in message.fields if other.oneof == found.oneof]
    return {other.number: other for other in others if other.number != found.number}


def _columns_of(spans: list[tuple[int, int, int]]) -> Iterator[Longs]:
    """Return the starts, ends and outermost messages of spans."""
    return iter(np.array(spans, dtype=np.int64).reshape(-1, 3).T.copy())


def _occurrences(message: bytes, number: int, others: Mapping[int, Field]) -> tuple[list[bytes], int]:
    """Return the values of a field of wire type LENGTH in a good message, and the number of the first one
    behind the last of the fields ``others``.
    """
    found: list[bytes] = []
    at = after_others = 0

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
        other = others.get(field_number) if depth == 0 else None
        value = 0
        if wire == kernels.VARINT:
            value = varint()
        elif wire == kernels.LENGTH:
            length = varint()
            if field_number == number and depth == 0:
                found.append(message[at : at + length])
            at += length
        elif wire in (kernels.START_GROUP, kernels.END_GROUP):
            depth += 1 if wire == kernels.START_GROUP else -1
        else:
            at += 8 if wire == kernels.FIXED64 else 4
        if other is not None and other.wire == wire and other.knows(value):
            after_others = len(found)
    return found, after_others


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
