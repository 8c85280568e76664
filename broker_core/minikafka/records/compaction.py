"""Compaction of message sets: the map of keys, and the filter of a set. For logs: ``log.cleanup.cleaner``.

A cleaning reads a part of a log twice::

    offsets = OffsetMap(64 << 20)
    offsets.begin(first_dirty_offset)
    offsets.add(data, ...)             the dirty part, set by set, until it is full
    record_filter = RecordFilter(offsets, ...)
    record_filter.filter(data)         the log from its start, set by set: returns the retained messages

A message is retained if it has a key, no later message in the map has that key, and it is not a tombstone (a
message without value) whose retention has passed. Everything after the map's end is retained. Offsets,
timestamps, formats and codecs do not change. A wrapper or batch of which everything is retained is copied;
one that loses some messages is rebuilt:

- magic 0 and 1: as 0.10.1's cleaner does. The wrapper has the offset of its last message, and in magic 1 the
  inner offsets count from its first; its timestamp is the largest inside, unless it is the append time.
- magic 2: as 3.9.1's does. Base and last offset, producer, sequence and epoch do not change; the base
  timestamp is the first record's; the largest timestamp is that of the retained records. A batch without
  retained records is deleted, except the last batch of an active producer: that is retained without records,
  because it has the sequence from which the producer continues. The log says which producers are active, and
  which batch is the last of each. Without that information, a producer is active if its last batch is not
  older than a day (``producer.id.expiration.ms`` of that release); a batch before the part that the map was
  built from counts as its producer's last if that part has no batch of the producer.

**Transactions** (magic 2). The records of an aborted transaction are deleted, and never added to the map,
where they would replace committed ones. The markers at the end of transactions say which are aborted: for a
batch of a producer, the producer's next marker decides, as its transactions follow each other. So the
segments' ``.txnindex`` is not needed. A marker is retained until a pass finds no batch of its transaction;
then it gets a delete horizon, and is deleted when that has passed. A transaction that has not ended at the
end of the survey limits the map (``Transactions.open_from``).

**Tombstones**. A batch of magic 2 with a retained tombstone gets a delete horizon, ``delete.retention.ms``
from then on, in place of its base timestamp, and keeps it; when it has passed, its tombstones are deleted.
The older formats have no room for one, so the caller says for each segment whether its tombstones are
retained.

Checksums were verified by ``log.file_scan.windows`` before. (Those inside a wrapper are not verified; they
are copied with their messages.)
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from minikafka.base.errors import BrokerError
from minikafka.base.files import Buffer
from minikafka.records import kernels
from minikafka.records.format.batch import MAGIC, read_header, records_of, write_checksum
from minikafka.records.format.checksums import CRC_TABLES
from minikafka.records.format.compression import MAX_CONTENT_BYTES, compress
from minikafka.records.format.message_set import (
    NO_TIMESTAMP,
    Content,
    TimestampType,
    inner_shift,
    open_wrapper,
    wrap,
)
from minikafka.records.kernels import decode_status
from minikafka.records.kernels.arrays import INT64_MAX, read_only
from minikafka.records.kernels.layout import BATCH_HEADER_BYTES, ENTRY_HEADER_BYTES, MAGIC_AT, SIZE_AT

SLOT_BYTES = 24
"""A hash of 16 bytes and an offset."""
PRODUCER_EXPIRATION_MS = 86_400_000

_INT32 = struct.Struct(">i")
_NOTHING = np.zeros(0, dtype=np.uint8)
_NOTHING.flags.writeable = False


class Transactions:
    """The outcomes of the transactions with a batch at or after ``start_offset``."""

    def __init__(self, start_offset: int) -> None:
        self.start_offset = start_offset
        self._marks: dict[int, tuple[list[int], list[bool]]] = {}
        """Producer -> offsets of its markers, and for each True if it aborts."""
        self._open: dict[int, int] = {}
        """Producer -> first offset of a transaction that no marker has ended yet."""

    @property
    def open_from(self) -> int | None:
        """The first offset of a transaction that has not ended; None when all have."""
        return min(self._open.values(), default=None)

    def add(self, data: Buffer) -> None:
        """Survey the next whole entries, of any magic. Raises CORRUPT_MESSAGE on damage."""
        keys = kernels.keys
        array = read_only(data)
        rows = np.empty((min(4096, array.size // BATCH_HEADER_BYTES + 1), keys.SURVEY_FIELDS), np.int64)
        state = np.zeros(keys.SURVEY_STATE_SIZE, dtype=np.int64)
        stop = decode_status.ROWS_FULL
        while stop == decode_status.ROWS_FULL:
            state[keys.SURVEYED] = 0
            stop = keys.survey(array, rows.reshape(-1), state)
            for producer, _, last, _, base, kind in rows[: int(state[keys.SURVEYED])].tolist():
                if last >= self.start_offset:
                    self._note(producer, base, last, kind)
        if stop >= decode_status.FIRST_PROBLEM:
            raise decode_status.error(stop, int(state[keys.POSITION]))

    def _note(self, producer: int, base: int, last: int, kind: int) -> None:
        keys = kernels.keys
        if kind == keys.SURVEY_DATA:
            self._open.setdefault(producer, base)
        elif kind != keys.SURVEY_UNKNOWN:
            self._open.pop(producer, None)
            offsets, aborts = self._marks.setdefault(producer, ([], []))
            offsets.append(last)
            aborts.append(kind == 0)

    def aborted(self, producer: int, last_offset: int) -> bool:
        """Return True if the producer's transactional batch is known to be part of an aborted transaction."""
        offsets, aborts = self._marks.get(producer, ((), ()))
        if last_offset < self.start_offset:
            return False
        number = bisect_right(offsets, last_offset)
        return number < len(offsets) and aborts[number]


@dataclass(slots=True)
class _Producers:
    """The last batch of each producer in the part that the map was built from."""

    last: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """Producer -> epoch, last offset, largest timestamp."""

    def note(self, producer: int, epoch: int, last_offset: int, timestamp_ms: int, *, mark: bool) -> None:
        # A marker counts only if it has a new epoch, which fences the producer's older ones.
        known = self.last.get(producer)
        if not mark or known is None or epoch > known[0]:
            self.last[producer] = (epoch, last_offset, timestamp_ms)

    def note_all(self, rows: NDArray[np.int64]) -> None:
        for producer, epoch, last_offset, timestamp_ms in rows.tolist():
            self.note(producer, epoch, last_offset, timestamp_ms, mark=False)

    def table(self, active_since_ms: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the producers, rising, and the last offset of each; INT64_MAX if it is not active."""
        rows = sorted(self.last.items())
        producers = np.array([producer for producer, _ in rows], dtype=np.int64)
        lasts = [last if timestamp >= active_since_ms else INT64_MAX for _, (_, last, timestamp) in rows]
        return producers, np.array(lasts, dtype=np.int64)


class OffsetMap:
    """The largest offset of each key, in bounded memory. A key is identified by its hash (``kernels.keys``).

    A key takes SLOT_BYTES of ``memory_bytes``. At most ``load_factor`` of them is filled, because look-ups in
    a fuller map take long. (``log.cleaner.dedupe.buffer.size``, ``log.cleaner.io.buffer.load.factor``.)
    Memory is used as the map fills, and freed by ``begin`` and ``clear``. It has room for one key at least:
    raises ValueError for less than two slots.
    """

    def __init__(self, memory_bytes: int, load_factor: float = 0.9) -> None:
        self.slots = min(memory_bytes // SLOT_BYTES, 1 << 31)
        if self.slots < 2:
            raise ValueError(
                f"{memory_bytes} bytes are too few for a map: expected at least {2 * SLOT_BYTES}"
            )
        self.capacity = max(1, min(int(self.slots * load_factor), self.slots - 1))
        self.producers = _Producers()
        self.begin(0)

    def begin(self, start_offset: int) -> None:
        """Remove all keys; messages below ``start_offset`` are skipped from now on."""
        keys = kernels.keys
        self.clear()
        self.producers = _Producers()
        self._state = np.zeros(keys.MAP_STATE_SIZE, dtype=np.int64)
        self._state[keys.START] = self._state[keys.NEXT] = start_offset
        self._state[keys.CAPACITY] = self.capacity
        self._rows = np.empty((1024, keys.PRODUCER_FIELDS), dtype=np.int64)

    def clear(self) -> None:
        """Free the memory."""
        self._table = np.zeros(0, dtype=np.int64)

    @property
    def table(self) -> NDArray[np.int64]:
        """The slots, as the kernels expect them."""
        if not self._table.size:
            # Zeros from the system: a page uses no memory before it is written.
            self._table = np.zeros(3 * self.slots, dtype=np.int64)
        return self._table

    def __len__(self) -> int:
        """Return the number of keys in the map."""
        return int(self._state[kernels.keys.ENTRIES])

    @property
    def end_offset(self) -> int:
        """The end of the map: all messages from the start offset up to, not including, this one are in it."""
        return int(self._state[kernels.keys.NEXT])

    @property
    def messages(self) -> int:
        """The number of messages that were read, including those without key."""
        return int(self._state[kernels.keys.MESSAGES])

    def pass_gap(self, offset: int) -> None:
        """Record that there are no messages between the last ones that were added and ``offset``."""
        self._state[kernels.keys.NEXT] = max(self.end_offset, offset)

    def add(
        self,
        data: Buffer,
        end_offset: int,
        transactions: Callable[[], Transactions],
        max_content_bytes: int = MAX_CONTENT_BYTES,
    ) -> bool:
        """Add the keys of whole entries, in order, up to ``end_offset``; False if not all were added.

        In that case the map is full, or has reached ``end_offset`` or a transaction that has not ended. A
        full map still accepts newer offsets of its keys. ``transactions`` is called at the first transaction:
        it returns the outcomes of all that begin below ``end_offset``. Raises CORRUPT_MESSAGE with the
        position.
        """
        keys, state = kernels.keys, self._state
        view = memoryview(data)
        array = read_only(data)
        state[keys.POSITION], state[keys.ADMITTED] = 0, -1
        state[keys.INNER], state[keys.SHIFT], state[keys.OPENED] = -1, 0, 0
        state[keys.END] = end_offset
        content = array
        while True:
            stop = keys.map_run(array, content, self.table, self._rows.reshape(-1), state)
            self._take_producers()
            position = int(state[keys.POSITION])
            content = array
            if stop in {decode_status.END, decode_status.ROWS_FULL, decode_status.REACHED_END_OFFSET}:
                return bool(stop == decode_status.END)
            if stop in {decode_status.KEYS_FULL, keys.PASSED}:
                continue
            if stop == keys.TRANSACTIONAL:
                self._enter_transaction(view, position, transactions())
            elif stop == decode_status.WRAPPER and view[position + MAGIC_AT] == MAGIC:
                content = _records(view, position, max_content_bytes)
                state[keys.OPENED] = 1
            elif stop == decode_status.WRAPPER:
                if not self._add_content(open_wrapper(view, position, max_content_bytes)):
                    return False
            else:
                raise _error(stop, state, view)

    def _take_producers(self) -> None:
        keys, state = kernels.keys, self._state
        self.producers.note_all(self._rows[: int(state[keys.PRODUCERS])])
        state[keys.PRODUCERS] = 0

    def _enter_transaction(self, view: memoryview, position: int, transactions: Transactions) -> None:
        """Admit the transactional batch at ``position``, or skip it if it is a marker or was aborted."""
        keys, state = kernels.keys, self._state
        if transactions.open_from is not None:
            state[keys.END] = min(int(state[keys.END]), transactions.open_from)
        header = read_header(view, position, check_crc=False)
        if header.base_offset >= state[keys.END]:
            state[keys.ADMITTED] = position  # the run ends there
            return
        self.producers.note(
            header.producer_id,
            header.producer_epoch,
            header.last_offset,
            header.max_timestamp_ms,
            mark=header.control,
        )
        if header.control or transactions.aborted(header.producer_id, header.last_offset):
            state[keys.POSITION] = position + header.size_bytes
            state[keys.NEXT] = max(self.end_offset, header.last_offset + 1)
            state[keys.MESSAGES] += header.count
        else:
            state[keys.ADMITTED] = position

    def _add_content(self, content: Content) -> bool:
        """Add the keys of a wrapper; False if not all were added."""
        keys, state = kernels.keys, self._state
        inner = read_only(content.data)
        state[keys.POSITION] = 0
        state[keys.INNER], state[keys.SHIFT] = content.magic, inner_shift(content)
        stop = keys.map_run(inner, inner, self.table, self._rows.reshape(-1), state)
        if stop in {decode_status.ROWS_FULL, decode_status.REACHED_END_OFFSET}:
            return False
        if stop != decode_status.END:
            raise decode_status.error(stop, int(state[keys.POSITION]), content.position)
        state[keys.POSITION] = content.position + content.size_bytes
        state[keys.INNER], state[keys.SHIFT] = -1, 0
        return True


@dataclass(frozen=True, slots=True)
class RetainedRecords:
    """The retained part of a set. ``data`` is valid until the next set is sifted.

    ``first_offset`` is the offset field of the first entry, ``last_offset`` the last offset of the last
    entry. ``newest``: the largest timestamp, and the last offset of the entry with it. ``classic``: no entry
    is of magic 2.
    """

    data: memoryview
    first_offset: int
    last_offset: int
    newest: tuple[int, int]
    classic: bool


class RecordFilter:
    """A filter that retains the messages of a log that survive compaction. It gets the log set by set.

    ``transactions``: the outcomes of the transactions in the part that the map was built from, if any.
    ``producers``: the offset of the last record of each active producer, if known.
    """

    def __init__(
        self,
        offsets: OffsetMap,
        *,
        now_ms: int,
        delete_retention_ms: int,
        transactions: Transactions | None = None,
        producers: Mapping[int, int] | None = None,
        max_content_bytes: int = MAX_CONTENT_BYTES,
    ) -> None:
        self.tombstones_stay = True
        """True if tombstones of magic 0 and 1 are retained. The caller changes it from segment to segment."""
        self.messages_read = 0
        """Includes records of deleted batches. A wrapper after the map's end counts as one."""
        self.messages_kept = 0
        self.messages_without_key = 0
        """The messages that were deleted because they have no key."""
        self.markers_needed: set[int] = set()
        """The offsets of markers, in the part with a map, of transactions that still had a batch."""
        self._offsets = offsets
        self._now_ms = now_ms
        self._horizon_ms = min(now_ms + delete_retention_ms, INT64_MAX)
        self._active_since_ms = now_ms - PRODUCER_EXPIRATION_MS
        self._transactions = transactions
        self._max_content_bytes = max_content_bytes
        if producers is None:
            self._producers, self._lasts = offsets.producers.table(self._active_since_ms)
        else:
            rows = np.array(sorted(producers.items()), dtype=np.int64).reshape(-1, 2)
            self._producers, self._lasts = rows[:, 0].copy(), rows[:, 1].copy()
            self._active_since_ms = INT64_MAX
        self._marks = np.empty(0, dtype=np.uint8)
        self._out = np.empty(0, dtype=np.uint8)
        self._next_offset = 0
        self._met: set[int] = set()
        """The producers with a batch of their current transaction still in the log."""

    def filter(self, data: Buffer) -> RetainedRecords | None:
        """Filter the next whole entries. None if nothing is retained. Raises CORRUPT_MESSAGE on damage."""
        keys, compact = kernels.keys, kernels.compact
        view = memoryview(data)
        array = read_only(data)
        if self._out.size < array.size:
            self._out = np.empty(array.size, dtype=np.uint8)
        state = self._new_state()
        content = array
        while True:
            self._out, stop = self._run(array, content, state, self._out)
            position = int(state[keys.POSITION])
            content = array
            if stop == decode_status.END:
                break
            if stop == keys.PASSED:
                continue
            if stop == compact.PACK:
                self._pack(state)
            elif stop == keys.TRANSACTIONAL:
                self._enter_transaction(view, position, state)
            elif stop == decode_status.WRAPPER and view[position + MAGIC_AT] == MAGIC:
                content = _records(view, position, self._max_content_bytes)
                state[keys.OPENED] = 1
            elif stop == decode_status.WRAPPER:
                self._sift_wrapper(open_wrapper(view, position, self._max_content_bytes), state)
            else:
                raise _error(stop, state, view)
        self._next_offset = int(state[keys.NEXT])
        self._count(state)
        size = int(state[compact.OUT_BYTES])
        if not size:
            return None
        return RetainedRecords(
            self._out.data[:size],
            int(state[compact.FIRST_OFFSET]),
            int(state[compact.LAST_OFFSET]),
            (int(state[compact.MAX_TIMESTAMP]), int(state[compact.MAX_AT])),
            not state[compact.BATCHES],
        )

    def _new_state(self) -> NDArray[np.int64]:
        keys, compact = kernels.keys, kernels.compact
        state = np.zeros(compact.SIFT_STATE_SIZE, dtype=np.int64)
        state[keys.NEXT] = self._next_offset
        state[keys.END] = self._offsets.end_offset
        state[keys.INNER] = state[keys.ADMITTED] = state[compact.FIRST_OFFSET] = -1
        state[compact.MAX_TIMESTAMP] = NO_TIMESTAMP
        state[compact.TOMBSTONES_STAY] = self.tombstones_stay
        state[compact.NOW], state[compact.HORIZON] = self._now_ms, self._horizon_ms
        state[compact.ACTIVE_SINCE] = self._active_since_ms
        return state

    def _run(
        self,
        array: NDArray[np.uint8],
        content: NDArray[np.uint8],
        state: NDArray[np.int64],
        out: NDArray[np.uint8],
    ) -> tuple[NDArray[np.uint8], int]:
        """Run the kernel. Return the output, which may have been enlarged, and the code at which it ended."""
        compact = kernels.compact
        records_most = max(array.size, content.size) // 7
        if self._marks.size < records_most:
            self._marks = np.empty(records_most, dtype=np.uint8)
        while True:
            stop = compact.sift_run(
                array,
                content,
                CRC_TABLES,
                self._offsets.table,
                self._producers,
                self._lasts,
                self._marks,
                out,
                state,
            )
            if stop != decode_status.VALUES_FULL:
                return out, stop
            out = _with_room(out, state, int(state[compact.WANTED]))

    def _count(self, state: NDArray[np.int64]) -> None:
        keys, compact = kernels.keys, kernels.compact
        self.messages_read += int(state[keys.MESSAGES])
        self.messages_kept += int(state[compact.KEPT])
        self.messages_without_key += int(state[compact.KEYLESS])

    def _append(self, entry: bytes | bytearray, state: NDArray[np.int64]) -> None:
        compact = kernels.compact
        self._out = _with_room(self._out, state, len(entry))
        at = int(state[compact.OUT_BYTES])
        self._out[at : at + len(entry)] = np.frombuffer(entry, dtype=np.uint8)
        state[compact.OUT_BYTES] = at + len(entry)

    def _pack(self, state: NDArray[np.int64]) -> None:
        """Compress the batch that the kernel has just rebuilt."""
        keys, compact = kernels.keys, kernels.compact
        begin, end = int(state[compact.PACK_AT]), int(state[compact.OUT_BYTES])
        built = self._out.data[begin:end]
        header = read_header(built, 0, check_crc=False)
        entry = bytearray(built[:BATCH_HEADER_BYTES])
        entry += compress(header.codec, built[BATCH_HEADER_BYTES:], MAGIC)
        _INT32.pack_into(entry, SIZE_AT, len(entry) - ENTRY_HEADER_BYTES)
        write_checksum(entry, 0, len(entry))
        state[compact.OUT_BYTES], state[keys.OPENED] = begin, 0
        self._append(entry, state)

    def _enter_transaction(self, view: memoryview, position: int, state: NDArray[np.int64]) -> None:
        """Decide whether a transactional batch, or the marker at the end of a transaction, is retained."""
        keys, compact = kernels.keys, kernels.compact
        header = read_header(view, position, check_crc=False)
        producer = header.producer_id
        state[keys.ADMITTED] = position
        state[compact.FORCE] = state[compact.FORCE_HORIZON] = 0
        if not header.control:
            self._met.add(producer)
            if self._transactions is not None and self._transactions.aborted(producer, header.last_offset):
                state[compact.FORCE] = compact.FORCE_OUT
            return
        over = producer not in self._met
        self._met.discard(producer)
        if not over:
            self.markers_needed.add(header.base_offset)
        due = header.has_delete_horizon and header.base_timestamp_ms <= self._now_ms
        state[compact.FORCE] = compact.FORCE_OUT if over and due else compact.FORCE_IN
        state[compact.FORCE_HORIZON] = over

    def _sift_wrapper(self, content: Content, state: NDArray[np.int64]) -> None:
        keys, compact = kernels.keys, kernels.compact
        inner_state = state.copy()
        inner_state[keys.POSITION] = inner_state[compact.OUT_BYTES] = inner_state[compact.RUN] = 0
        inner_state[keys.INNER], inner_state[keys.SHIFT] = content.magic, inner_shift(content)
        inner_state[compact.MAX_TIMESTAMP] = NO_TIMESTAMP
        inner = read_only(content.data)
        out, stop = self._run(inner, inner, inner_state, np.empty(inner.size, dtype=np.uint8))
        if stop != decode_status.END:
            raise decode_status.error(stop, int(inner_state[keys.POSITION]), content.position)
        end = content.position + content.size_bytes
        for counter in (keys.MESSAGES, compact.KEPT, compact.KEYLESS):
            state[counter] = inner_state[counter]
        state[keys.POSITION], state[compact.RUN] = end, end
        state[keys.NEXT] = content.offset + 1
        size = int(inner_state[compact.OUT_BYTES])
        if not size:
            return
        append_time = content.timestamp_type is TimestampType.LOG_APPEND_TIME
        largest = content.timestamp_ms if append_time else int(inner_state[compact.MAX_TIMESTAMP])
        last = int(inner_state[compact.LAST_OFFSET])
        if size == inner.size:
            state[compact.RUN] = content.position
            last, largest = content.offset, content.timestamp_ms
        else:
            entry = wrap(
                out.data[:size],
                offset=last,
                magic=content.magic,
                codec=content.codec,
                timestamp_ms=largest,
                timestamp_type=content.timestamp_type,
            )
            self._append(entry, state)
        if state[compact.FIRST_OFFSET] < 0:
            state[compact.FIRST_OFFSET] = last
        state[compact.LAST_OFFSET] = last
        if largest > state[compact.MAX_TIMESTAMP]:
            state[compact.MAX_TIMESTAMP], state[compact.MAX_AT] = largest, last


def _with_room(out: NDArray[np.uint8], state: NDArray[np.int64], more: int) -> NDArray[np.uint8]:
    """Return ``out``, or a larger copy of the used bytes, with ``more`` bytes free."""
    used = int(state[kernels.compact.OUT_BYTES])
    if out.size - used >= more:
        return out
    larger = np.empty(max(used + more, out.size + out.size // 4), dtype=np.uint8)
    larger[:used] = out[:used]
    return larger


def _records(view: memoryview, position: int, max_content_bytes: int) -> NDArray[np.uint8]:
    """Return the decompressed records of the batch at ``position``."""
    header = read_header(view, position, check_crc=False)
    return read_only(records_of(view, position, header, max_content_bytes))


def _error(stop: int, state: NDArray[np.int64], view: memoryview) -> BrokerError:
    keys = kernels.keys
    position = int(state[keys.POSITION])
    if bytes(view[position + MAGIC_AT : position + MAGIC_AT + 1]) != b"\2" or stop not in _IN_RECORDS:
        return decode_status.error(stop, position)
    first = 0 if state[keys.OPENED] else position + BATCH_HEADER_BYTES
    return decode_status.batch_error(stop, max(0, int(state[keys.RECORD_AT]) - first), position)


_IN_RECORDS = frozenset(
    {
        decode_status.BAD_RECORD_LENGTH,
        decode_status.BAD_VARINT,
        decode_status.BAD_HEADERS,
        decode_status.BAD_KEY_LENGTH,
        decode_status.BAD_VALUE_LENGTH,
        decode_status.BAD_COUNT,
        decode_status.BAD_DELTA,
    }
)
