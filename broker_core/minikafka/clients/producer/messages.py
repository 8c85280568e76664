"""The messages of a producer: ``KeyedMessage``, as applications send them, and ``MessageColumns``, one
topic's messages as columns between the producer's queue and the brokers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from minikafka.clients.serializer import DefaultEncoder, Encoder, StringEncoder


class KeyedMessage(NamedTuple):
    """A message for a topic (``kafka.producer.KeyedMessage``; ``ProducerData`` in the texts before 0.8).
    ``key`` is stored with it and selects its partition, unless ``part_key`` is set, which selects it and is
    not stored.

    ``message`` and ``key`` are values that the producer's encoders encode; by default bytes, or None. (A
    tuple: one is created for each message, and lists of them are unpacked at once.)
    """

    topic: str
    message: Any
    key: Any = None
    part_key: Any = None

    @property
    def partition_key(self) -> Any:
        """The key that selects the partition; None: any partition."""
        return self.key if self.part_key is None else self.part_key

    @property
    def has_key(self) -> bool:
        """True if a key is stored with the message."""
        return self.key is not None


PIECE_BYTES = 16 << 20
PIECE_ROWS = 8_000
"""Limits of one piece; 100-byte messages then make one batch. A larger piece would allocate new memory each
time, and the first use of that memory costs more than all other work.
"""
_FEW_MESSAGES = 500
_PASS_THROUGH = DefaultEncoder()
_FIELDS = tuple(itemgetter(place) for place in range(len(KeyedMessage._fields)))


@dataclass(frozen=True, slots=True)
class MessageColumns:
    """One topic's messages as columns. ``values`` and ``keys`` are pa.BinaryArray or pa.StringArray of one
    length; if all keys are null, ``keys`` is None. ``part_keys`` select the partitions: a column, a list of
    Python objects, or None.

    ``originals`` are the message, key and part_key of each message before encoding, if the columns were made
    from messages.
    """

    topic: str
    values: pa.Array
    keys: pa.Array | None = None
    part_keys: pa.Array | Sequence[Any] | None = None
    originals: tuple[Sequence[Any], Sequence[Any], Sequence[Any]] | None = None

    def __len__(self) -> int:
        return len(self.values)

    def slice(self, start: int, count: int) -> MessageColumns:
        """Return ``count`` messages from ``start``, without a copy. Only for columns without
        ``originals``.
        """
        assert self.originals is None
        parts = self.part_keys
        if isinstance(parts, pa.Array):
            parts = parts.slice(start, count)
        elif parts is not None:
            parts = parts[start : start + count]
        keys = None if self.keys is None else self.keys.slice(start, count)
        return MessageColumns(self.topic, self.values.slice(start, count), keys, parts)

    def concatenate(self, other: MessageColumns) -> MessageColumns | None:
        """Return these messages followed by those of ``other``, as one copy; None if they differ in topic or
        type, or are too large.
        """
        ours, theirs = self._arrays(), other._arrays()
        if self.topic != other.topic or ours is None or theirs is None:
            return None
        if list(map(_type, ours)) != list(map(_type, theirs)):
            return None
        if sum(array.nbytes for array in (*ours, *theirs) if array is not None) > PIECE_BYTES:
            return None
        pairs = zip(ours, theirs, strict=True)
        values, keys = (
            None if first is None else pa.concat_arrays([first, second]) for first, second in pairs
        )
        return MessageColumns(self.topic, values, keys, keys)

    def _arrays(self) -> tuple[pa.Array, pa.Array | None] | None:
        """Return values and keys; None if there are separate partition keys, or originals."""
        return (self.values, self.keys) if self.part_keys is self.keys and self.originals is None else None

    def messages(self, rows: Sequence[int] | NDArray[np.int64]) -> list[KeyedMessage]:
        """Return some rows as messages: the original ones, or else of bytes."""
        if self.originals is not None:
            values, keys, part_keys = self.originals
            return [KeyedMessage(self.topic, values[row], keys[row], part_keys[row]) for row in rows]
        return [
            KeyedMessage(self.topic, _as_bytes(self.values, row), _as_bytes(self.keys, row))
            for row in map(int, rows)
        ]

    @property
    def value_bytes(self) -> int:
        """The size of all values."""
        if not len(self):
            return 0
        ends = np.frombuffer(self.values.buffers()[1], dtype=np.int32)
        return int(ends[self.values.offset + len(self)] - ends[self.values.offset])


class Unsent(Sequence[KeyedMessage]):
    """Messages that were not sent: rows of columns, which become messages on access, and others."""

    def __init__(
        self, parts: Sequence[tuple[MessageColumns, NDArray[np.int64]]], others: Sequence[KeyedMessage]
    ) -> None:
        self._parts = parts
        self._others = others

    def __len__(self) -> int:
        return sum(len(rows) for _, rows in self._parts) + len(self._others)

    def __iter__(self) -> Iterator[KeyedMessage]:
        for columns, rows in self._parts:
            yield from columns.messages(rows)
        yield from self._others

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]


class NotBytes(TypeError):
    """Raised if an encoder returns a value that is not bytes."""

    def __init__(self, value: object) -> None:
        super().__init__(
            f"expected bytes, got {value!r:.100}: set serializer.class and key.serializer.class, as "
            "kafka.serializer.StringEncoder"
        )


def fields_of(events: Sequence[KeyedMessage]) -> list[list[Any]]:
    """Return the topics, messages, keys and part keys of messages.

    (``zip`` makes an iterator of each message. That takes half the time for a few, and several times as long
    for thousands, as Python's collector looks through them.)
    """
    if len(events) <= _FEW_MESSAGES:
        return list(map(list, zip(*events, strict=True)))
    return [list(map(field, events)) for field in _FIELDS]


def serialize(
    fields: Sequence[list[Any]], encoder: Encoder[Any], key_encoder: Encoder[Any]
) -> list[MessageColumns]:
    """Encode messages (see ``fields_of``) into columns of each topic, in their order. Raises the error of an
    encoder, NotBytes if it does not return bytes, and TypeError for a topic that is not text.
    """
    topics, values, keys, part_keys = fields
    _check_topics(topics)
    if topics.count(topics[0]) != len(topics):
        rows: dict[str, list[int]] = {}
        for row, topic in enumerate(topics):
            rows.setdefault(topic, []).append(row)
        of_topics = ([[field[row] for row in some] for field in fields] for some in rows.values())
        return [columns for some in of_topics for columns in serialize(some, encoder, key_encoder)]
    encoded = encoded_column(values, encoder)
    encoded_keys = None if _all_none(keys) else encoded_column(keys, key_encoder)
    if isinstance(encoded, pa.ChunkedArray) or isinstance(encoded_keys, pa.ChunkedArray):
        # More than the 2 GiB of an Arrow column.
        middle = len(topics) // 2
        halves = ([field[:middle] for field in fields], [field[middle:] for field in fields])
        return [columns for half in halves for columns in serialize(half, encoder, key_encoder)]
    partition_keys: list[Any] | None = keys
    if not _all_none(part_keys):
        partition_keys = [key if part is None else part for key, part in zip(keys, part_keys, strict=True)]
    elif encoded_keys is None:
        partition_keys = None
    return [MessageColumns(topics[0], encoded, encoded_keys, partition_keys, (values, keys, part_keys))]


def encoded_column(values: Sequence[Any], encoder: Encoder[Any]) -> pa.Array | pa.ChunkedArray:
    """Return values as a column of bytes or UTF-8, chunked above 2 GiB. None is null with every encoder."""
    if _is_utf8(values, encoder):
        try:
            return pa.array(values, pa.string())
        except UnicodeEncodeError:
            pass  # a lone surrogate: the encoder decides what to send
    return pa.array(_bytes_of(values, encoder), pa.binary())


def columns_of(
    topic: str, values: Any, keys: Any, encoder: Encoder[Any], key_encoder: Encoder[Any]
) -> Iterator[MessageColumns]:
    """Return the messages of ``Producer.send_values``, piece by piece if they are in lists, as large
    allocations are slow. Arrow columns are used as they are, lists are encoded.

    Raises errors before the first piece: ValueError, NotBytes, and the error of an encoder.
    """
    if isinstance(values, (pa.Table, pa.RecordBatch)):
        names = values.schema.names
        if keys is not None or "value" not in names or not set(names) <= {"key", "value"}:
            raise ValueError(
                f"expected a table with the columns value and, optionally, key, and no separate keys; got "
                f"{names}{'' if keys is None else ' and separate keys'}"
            )
        keys = values.column("key") if "key" in names else None
        values = values.column("value")
    _check_topics([topic])
    _check_collection("values", values)
    values, encoder = _prepare(values, encoder)
    partition_keys = None
    if keys is not None:
        _check_collection("keys", keys)
        partition_keys = keys if isinstance(keys, (pa.Array, pa.ChunkedArray)) else list(keys)
        keys, key_encoder = _prepare(partition_keys, key_encoder)
        if len(keys) != len(values):
            raise ValueError(f"expected a key for each value, got {len(keys)} keys, {len(values)} values")
    if isinstance(values, list) or isinstance(keys, list):
        return _pieces(topic, values, keys, partition_keys, encoder, key_encoder)
    return _batches(topic, values, keys)


def _batches(topic: str, values: pa.Array | pa.ChunkedArray, keys: Any) -> Iterator[MessageColumns]:
    columns = {"value": values} if keys is None else {"value": values, "key": keys}
    for batch in pa.table(columns).combine_chunks().to_batches():
        found = None if keys is None else batch.column("key")
        yield MessageColumns(topic, batch.column("value"), found, found)


def _pieces(
    topic: str, values: Any, keys: Any, partition_keys: Any, encoder: Encoder[Any], key_encoder: Encoder[Any]
) -> Iterator[MessageColumns]:
    count = PIECE_ROWS
    at = 0
    while at < len(values):
        end = at + count
        column = _column(values, at, end, encoder)
        of_keys = None if keys is None else _column(keys, at, end, key_encoder)
        if count > 1 and (isinstance(column, pa.ChunkedArray) or isinstance(of_keys, pa.ChunkedArray)):
            count //= 2  # more than the 2 GiB of an Arrow column
            continue
        of_piece = of_keys
        if isinstance(partition_keys, list):
            of_piece = partition_keys[at:end]
            if _all_none(of_piece):
                of_keys = of_piece = None
        yield MessageColumns(topic, column, of_keys, of_piece)
        at = end


def _check_topics(topics: Sequence[Any]) -> None:
    if set(map(type, topics)) != {str}:
        for topic in topics:
            if not isinstance(topic, str):
                raise TypeError(f"expected a topic name as text, got {topic!r:.100}")


def _check_collection(name: str, given: Any) -> None:
    """Raise TypeError for a single value, or an object whose iteration would yield something unintended."""
    single = isinstance(given, (str, bytes, bytearray, memoryview, KeyedMessage, Mapping))
    if single or hasattr(given, "__dataframe__") or not isinstance(given, Iterable):
        raise TypeError(
            f"{name}: expected a list, Arrow column or table, got {type(given).__name__} {given!r:.100}: "
            "use [value] for one value, pa.table(…) for a data frame"
        )


def _prepare(values: Any, encoder: Encoder[Any]) -> tuple[Any, Encoder[Any]]:
    """Return values that can be sliced and converted without errors, and the encoder for the conversion."""
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        kind = values.type
        if pa.types.is_binary(kind) or pa.types.is_string(kind):
            return values, encoder
        try:
            return values.cast(pa.string() if pa.types.is_large_string(kind) else pa.binary()), encoder
        except pa.ArrowNotImplementedError:
            raise TypeError(
                f"expected a column of binary or string, got {kind}: cast it with .cast('string'), or send "
                ".to_pylist() with a serializer.class for its values"
            ) from None
    values = values if isinstance(values, list) else list(values)
    if _is_utf8(values, encoder):
        return values, encoder
    return _bytes_of(values, encoder), _PASS_THROUGH


def _column(values: Any, at: int, end: int, encoder: Encoder[Any]) -> pa.Array | pa.ChunkedArray:
    if isinstance(values, list):
        piece = values[at:end]
        # An encoder for bytes has already run.
        return pa.array(piece, pa.binary()) if encoder is _PASS_THROUGH else encoded_column(piece, encoder)
    piece = values.slice(at, end - at)
    return piece.combine_chunks() if isinstance(piece, pa.ChunkedArray) else piece


def _is_utf8(values: Sequence[Any], encoder: Encoder[Any]) -> bool:
    return type(encoder) is StringEncoder and encoder.encoding == "utf-8" and _kinds(values) == {str}


def _bytes_of(values: Sequence[Any], encoder: Encoder[Any]) -> Sequence[Any]:
    if type(encoder) is not DefaultEncoder:
        values = [None if value is None else encoder.to_bytes(value) for value in values]
    if not _kinds(values) <= {bytes}:
        values = [None if value is None else _to_bytes(value) for value in values]
    return values


def _type(array: pa.Array | None) -> pa.DataType | None:
    return None if array is None else array.type


def _kinds(values: Sequence[Any]) -> set[type]:
    return set(map(type, values)) - {type(None)}


def _all_none(values: Sequence[Any]) -> bool:
    return values.count(None) == len(values)


def _to_bytes(value: Any) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise NotBytes(value)


def _as_bytes(column: pa.Array | None, row: int) -> bytes | None:
    value = None if column is None else column[row].as_py()
    return value.encode() if isinstance(value, str) else value
