"""The model of one partition and its guarantees, with which a simulation compares the real log.

Every message has a unique value, so that a wrong content of an offset is found. ``Partition`` knows what may
be missing after a crash, and checks the log that a crash has left (``check``, then ``adopt``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from struct import Struct

from minikafka.base.ids import TopicPartition
from minikafka.log.checkpoints.leader_epochs import UNKNOWN
from minikafka.log.log import Log
from minikafka.log.segment import Segment
from minikafka.records.format import batch
from minikafka.records.format.message_set import StoredRecord, iterate
from minikafka.records.kernels.layout import ENTRY_HEADER_BYTES

_ENTRY = Struct(">qi4xB6xi")


@dataclass(frozen=True, slots=True)
class Message:
    """The message appended at one offset."""

    value: bytes | None
    time_ms: int
    epoch: int
    entry: tuple[int, int]
    """First and last offset of its entry."""
    key: bytes | None = None
    written_ms: int = 0


@dataclass(slots=True)
class Partition:
    """The expected state of one partition.

    Between two operations the log equals ``messages``, ``start`` and ``end``. During an operation it may be
    in between: the bounds are widened before an operation and narrowed after it.
    """

    id: TopicPartition
    overrides: Mapping[str, str] = field(default_factory=dict)
    messages: dict[int, Message] = field(default_factory=dict)
    """By offset: all appended messages that are not known to be deleted."""
    start: int = 0
    end: int = 0
    sure: int = 0
    """A killed process leaves at least all messages below."""
    durable: int = 0
    """All messages below are flushed: a power cut leaves them."""
    claimed: int = 0
    """The largest allowed recovery point during a close or a truncation."""
    acknowledged: int = 0
    """All messages below are acknowledged, after a flush if ``flush.messages`` requires it."""
    durable_start: int = 0
    highest_start: int = 0
    appended_ms: list[tuple[int, int]] = field(default_factory=list)
    """(End offset, monotonic time of the append), increasing."""
    leaving: set[int] = field(default_factory=set)
    """Offsets that a cleaner may drop."""
    clean_to: int = 0
    """The end of the last compaction: below, each key exists once."""
    met_to: int = 0
    """Below, a pass, also an interrupted one, may have seen every tombstone."""
    making: bool = False
    deleting: bool = False
    failed: bool = False
    """True after a failed fsync of the current process."""
    numbered: list[tuple[int, int, int]] = field(default_factory=list)
    """Producer, last sequence and last offset of each batch with a producer id."""

    def check_producers(self, log: Log) -> None:
        """Check that the log knows the last batch of each producer; it may also know deleted ones."""
        self.numbered = [entry for entry in self.numbered if entry[2] < log.end_offset]
        found = {producer: (sequence, offset) for producer, sequence, offset in self.numbered}
        there = {last for segment in log.segments for _, _, last, _ in entries_of(segment)}
        known = {
            number: (producer.last_sequence, producer.last_offset)
            for number, producer in log.producers.known.items()
        }
        for producer, last in found.items():
            state = known.pop(producer, None)
            if state != last:
                assert last[1] not in there, f"producer {producer}: state {state}, last batch {last}"
                assert state is None or (producer, *state) in self.numbered, f"{state} of {producer} is wrong"
        assert not known, f"unknown producers in the state: {known}"

    @property
    def most_lost(self) -> int | None:
        """M: the limit of acknowledged messages that a power cut may take (``flush.messages``); None: any."""
        text = self.overrides.get("flush.messages")
        return None if text is None else int(text)

    @property
    def flush_ms(self) -> int | None:
        """S, in ms."""
        text = self.overrides.get("flush.ms")
        return None if text is None else int(text)

    @property
    def compacted(self) -> bool:
        """True if it may have holes, which look like those of a power cut in unflushed data."""
        return "compact" in self.overrides.get("cleanup.policy", "")

    def needed(self, now_ms: int, interval_ms: int, *, whole: bool) -> tuple[int, str]:
        """Return the offset below which all must survive a crash, and the reason. ``whole``: a kill only."""
        needed = [(self.durable, "was durable")]
        if whole:
            needed.append((self.sure, "was appended, and the process killed only"))
        if self.most_lost is not None:
            needed.append(
                (self.acknowledged - self.most_lost, f"is more than {self.most_lost} messages back")
            )
        if self.flush_ms is not None and not self.failed:
            old = [end for end, at_ms in self.appended_ms if at_ms < now_ms - self.flush_ms - interval_ms]
            needed.append((old[-1] if old else 0, f"is older than {self.flush_ms} ms"))
        return max(needed)

    def check(self, log: Log, now_ms: int, interval_ms: int, *, whole: bool, step: int) -> None:
        """Compare the log after a crash with the model. Raises AssertionError."""
        start, end = log.start_offset, log.end_offset
        assert self.durable_start <= start, f"the start went back from {self.durable_start} to {start}"
        assert start <= self.highest_start, (
            f"the start is {start}, nobody asked for more than {self.highest_start}"
        )
        needed, why = self.needed(now_ms, interval_ms, whole=whole)
        assert needed <= end, f"it ends at {end}: what lies below {needed} {why}"
        assert end <= self.end, f"it ends at {end}, only {self.end} were appended"
        assert log.recovery_point <= max(self.durable, self.claimed, start), (
            f"its recovery point is {log.recovery_point}, {self.durable} is durable"
        )
        self.check_content(log, step=step, up_to=needed if self.compacted else None)
        self.check_epochs(log, needed)

    def check_content(self, log: Log, *, step: int = 500, up_to: int | None = None) -> None:
        """Compare all readable messages, ``step`` bytes at a time. None may be missing below ``up_to``."""
        found = read_records(log, step)
        for record in found:
            message = self.messages.get(record.offset)
            assert message is not None, f"offset {record.offset} has {record.value!r}, which was deleted"
            assert (record.key, record.value, record.timestamp_ms) == (
                message.key,
                message.value,
                message.time_ms,
            ), f"offset {record.offset} has {record.value!r} and not {message.value!r}"
        offsets = [record.offset for record in found]
        assert offsets == sorted(set(offsets)), f"the offsets do not rise: {offsets}"
        bound = log.end_offset if up_to is None else min(up_to, log.end_offset)
        missing = self.messages.keys() - set(offsets) - self.leaving
        missing = {offset for offset in missing if log.start_offset <= offset < bound}
        assert not missing, f"offsets {sorted(missing)} cannot be read, those around them can"

    def check_epochs(self, log: Log, up_to: int) -> None:
        """Check the leader epoch of each message; it may be unknown from ``up_to`` on."""
        entries = log.epochs.entries
        assert not entries or entries[-1][1] <= log.end_offset, (
            f"epochs {entries} end behind {log.end_offset}"
        )
        for offset, message in self.messages.items():
            if log.start_offset <= offset < log.end_offset:
                epoch = max((epoch for epoch, first in entries if first <= offset), default=UNKNOWN)
                assert epoch == message.epoch or (epoch == UNKNOWN and offset >= up_to), (
                    f"offset {offset} was written under epoch {message.epoch}; by {entries} it is {epoch}"
                )

    def adopt(self, log: Log, now_ms: int) -> None:
        """Continue with the log after a crash, once checked. Its recovery point is a guarantee again."""
        found = {record.offset for record in read_records(log, 1 << 20)}
        known_from = log.epochs.entries[0][1] if log.epochs.entries else log.end_offset
        self.messages = {
            offset: message if offset >= known_from else replace(message, epoch=UNKNOWN)
            for offset, message in self.messages.items()
            if offset in found or offset < log.start_offset
        }
        self.end = self.sure = log.end_offset
        self.start = self.highest_start = log.start_offset
        self.acknowledged = min(self.acknowledged, self.end)
        self.appended_ms = [(min(end, self.end), at_ms) for end, at_ms in self.appended_ms]
        if self.failed:
            # No flush was possible meanwhile, which was reported.
            self.appended_ms = [(self.end, now_ms)]
        if self.compacted:
            self.regroup(log)
        self.leaving = set()
        self.clean_to = min(self.clean_to, self.end)
        self.making = self.deleting = self.failed = False
        self.claimed = 0
        self.note(log)

    def note(self, log: Log) -> None:
        """Record the durable offset that the log claims."""
        self.durable = max(self.durable, min(log.recovery_point, self.end))

    def appending(self, messages: list[Message]) -> None:
        """Add messages at the end; a crash meanwhile may take them."""
        self.messages.update(enumerate(messages, self.end))
        self.end += len(messages)

    def refused(self, count: int) -> None:
        """Remove the last ``count`` messages, which were rejected."""
        self.end -= count
        for number in range(count):
            del self.messages[self.end + number]

    def cut_of(self, offset: int) -> int:
        """Return the smallest end of the log after a truncation to ``offset``: entries and holes are removed
        whole, and messages below the start do not count.
        """
        below = [number for number in self.messages if self.start <= number < offset]
        while below and self.messages[max(below)].entry[1] >= offset:
            below = [number for number in below if number < self.messages[max(below)].entry[0]]
        return max(below) + 1 if below else 0

    def truncating(self, offset: int) -> None:
        """Start a truncation to ``offset``: later messages have no guarantee any more."""
        cut = self.cut_of(offset)
        self.claimed = self.durable
        self.durable, self.sure = min(self.durable, cut), min(self.sure, cut)
        self.acknowledged = min(self.acknowledged, cut)
        self.durable_start = min(self.durable_start, cut)
        self.appended_ms = [(min(end, cut), at_ms) for end, at_ms in self.appended_ms]

    def truncated(self, log: Log) -> None:
        """Finish a truncation."""
        end = log.end_offset
        self.numbered = [entry for entry in self.numbered if entry[2] < end]
        self.messages = {offset: message for offset, message in self.messages.items() if offset < end}
        self.end = self.sure = log.end_offset
        self.start = self.highest_start = log.start_offset
        self.durable_start = min(self.durable_start, self.start)
        self.claimed = 0
        self.clean_to = min(self.clean_to, self.end)

    def superseded(self, now_ms: int, retention_ms: int) -> set[int]:
        """Return the offsets that a compaction of all durable messages may drop: messages without a key,
        those with a later message of their key, and old tombstones that an earlier pass has seen.
        """
        durable = {at: self.messages[at] for at in sorted(self.messages) if at < self.durable}
        newest = {message.key: at for at, message in durable.items()}
        old = {
            at
            for at, message in durable.items()
            if message.value is None and at < self.met_to and message.written_ms + retention_ms <= now_ms
        }
        return old | {
            at for at, message in durable.items() if message.key is None or newest[message.key] > at
        }

    def regroup(self, log: Log) -> None:
        """Update the entries of messages after a compaction has removed some of them."""
        for segment in log.segments:
            for _, offsets, last, _ in entries_of(segment):
                for offset in offsets:
                    if offset in self.messages:
                        self.messages[offset] = replace(self.messages[offset], entry=(offsets[0], last))


def entries_of(segment: Segment) -> list[tuple[bytes, list[int], int, bool]]:
    """Return (bytes, offsets, last offset, True for magic 0 or 1) of each entry of a segment."""
    data, found, position = segment.file.read_at(0, segment.size), [], 0
    while position < len(data):
        offset, size, magic, more = _ENTRY.unpack_from(data + b"\0" * 8, position)
        entry = data[position : position + ENTRY_HEADER_BYTES + size]
        last = offset + more if magic == batch.MAGIC else offset
        found.append((entry, [record.offset for record in iterate(entry)], last, magic != batch.MAGIC))
        position += len(entry)
    return found


def read_records(log: Log, step: int) -> list[StoredRecord]:
    """Return every readable record, fetched ``step`` bytes at a time."""
    records: list[StoredRecord] = []
    offset = log.start_offset
    while True:
        found = log.read(offset, step)
        if found.slice is None:
            return records
        new = [record for record in iterate(found.slice.read()) if record.offset >= offset]
        assert found.first_offset >= offset, f"a read at {offset} gave the entry of {found.first_offset}"
        records += new
        # A batch can end with offsets that compaction has removed.
        offset = new[-1].offset + 1 if new else found.first_offset + 1
