"""What one partition was told, and what it has promised: what a simulation compares the real log with.

Every message has a value that no other has, so that an offset with another content is found. ``Partition``
knows what may be missing after a crash, and checks what is found there (``check``, then ``adopt``).
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
from minikafka.records.format.message_set import ENTRY_HEADER_BYTES, StoredRecord, iterate

_ENTRY = Struct(">qi4xB6xi")


@dataclass(frozen=True, slots=True)
class Message:
    """What was appended at one offset."""

    value: bytes | None
    time_ms: int
    epoch: int
    entry: tuple[int, int]
    """First and last offset of the entry that it lies in."""
    key: bytes | None = None
    written_ms: int = 0


@dataclass(slots=True)
class Partition:
    """The truth about one partition.

    Between two operations the log is what ``messages``, ``start`` and ``end`` say. In the middle of one it
    may be on the way to another state: the bounds are widened before an operation and narrowed behind it.
    """

    id: TopicPartition
    overrides: Mapping[str, str] = field(default_factory=dict)
    messages: dict[int, Message] = field(default_factory=dict)
    """By offset; all that were appended and are not known to be gone."""
    start: int = 0
    end: int = 0
    sure: int = 0
    """What a killed process leaves is at least all below."""
    durable: int = 0
    """All below was flushed: a power cut leaves it."""
    claimed: int = 0
    """What a recovery point may claim, while a close or a truncation is on its way."""
    acknowledged: int = 0
    """All below was answered to producers: flushed first, where ``flush.messages`` wants it."""
    durable_start: int = 0
    highest_start: int = 0
    appended_ms: list[tuple[int, int]] = field(default_factory=list)
    """(End offset, time of the append on the monotonic scale), rising."""
    leaving: set[int] = field(default_factory=set)
    """Offsets that a cleaner is about to drop, or may."""
    clean_to: int = 0
    """Below, each key is there once: where the last compaction ended."""
    met_to: int = 0
    """Below, a pass may have met every tombstone, also one that a crash ended."""
    making: bool = False
    deleting: bool = False
    failed: bool = False
    """An fsync of it failed in this life."""
    numbered: list[tuple[int, int, int]] = field(default_factory=list)
    """Producer, last sequence and last offset of each batch that has a producer."""

    def check_producers(self, log: Log) -> None:
        """Of each producer the log knows the last batch that it has; of one that is deleted it may know."""
        self.numbered = [one for one in self.numbered if one[2] < log.end_offset]
        found = {producer: (sequence, offset) for producer, sequence, offset in self.numbered}
        there = {last for segment in log.segments for _, _, last, _ in entries_of(segment)}
        known = {
            number: (producer.last_sequence, producer.last_offset)
            for number, producer in log.producers.known.items()
        }
        for producer, last in found.items():
            told = known.pop(producer, None)
            if told != last:
                assert last[1] not in there, f"of producer {producer} it knows {told}, and has {last}"
                assert told is None or (producer, *told) in self.numbered, f"{told} of {producer} never was"
        assert not known, f"it knows of {known}, who never wrote"

    @property
    def most_lost(self) -> int | None:
        """M: how many acknowledged messages a power cut may take (``flush.messages``); None for any."""
        text = self.overrides.get("flush.messages")
        return None if text is None else int(text)

    @property
    def flush_ms(self) -> int | None:
        """S."""
        text = self.overrides.get("flush.ms")
        return None if text is None else int(text)

    @property
    def compacted(self) -> bool:
        """Whether it may have holes: nobody can tell those that a power cut makes in what was not flushed."""
        return "compact" in self.overrides.get("cleanup.policy", "")

    def needed(self, now_ms: int, interval_ms: int, *, whole: bool) -> tuple[int, str]:
        """All below this offset must be there after a crash, and why. ``whole``: one of the process only."""
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
        """Compare what a crash has left. AssertionError says what is wrong."""
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
        """Compare all that can be read, ``step`` bytes at a time. Nothing may be missing below ``up_to``."""
        found = read_records(log, step)
        for record in found:
            message = self.messages.get(record.offset)
            assert message is not None, f"offset {record.offset} has {record.value!r}, which was gone"
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
        """Whether the epochs say which leader wrote each message; from ``up_to`` on they may not know."""
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
        """Go on from what a crash has left, which was checked. What the log claims is a promise again."""
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
            # Nothing could be flushed meanwhile; it was told.
            self.appended_ms = [(self.end, now_ms)]
        if self.compacted:
            self.regroup(log)
        self.leaving = set()
        self.clean_to = min(self.clean_to, self.end)
        self.making = self.deleting = self.failed = False
        self.claimed = 0
        self.note(log)

    def note(self, log: Log) -> None:
        """Take down what the log says is durable."""
        self.durable = max(self.durable, min(log.recovery_point, self.end))

    def appending(self, messages: list[Message]) -> None:
        """These come at the end; a crash meanwhile may take them."""
        self.messages.update(enumerate(messages, self.end))
        self.end += len(messages)

    def refused(self, count: int) -> None:
        """The last ones were not taken."""
        self.end -= count
        for number in range(count):
            del self.messages[self.end + number]

    def cut_of(self, offset: int) -> int:
        """Where the log may end after a truncation to ``offset``: entries go whole, so do holes, and of what
        lies below the start nobody knows.
        """
        below = [number for number in self.messages if self.start <= number < offset]
        while below and self.messages[max(below)].entry[1] >= offset:
            below = [number for number in below if number < self.messages[max(below)].entry[0]]
        return max(below) + 1 if below else 0

    def truncating(self, offset: int) -> None:
        """What lies behind may go: nothing of it is promised any more."""
        cut = self.cut_of(offset)
        self.claimed = self.durable
        self.durable, self.sure = min(self.durable, cut), min(self.sure, cut)
        self.acknowledged = min(self.acknowledged, cut)
        self.durable_start = min(self.durable_start, cut)
        self.appended_ms = [(min(end, cut), at_ms) for end, at_ms in self.appended_ms]

    def truncated(self, log: Log) -> None:
        """It is gone."""
        self.numbered = [one for one in self.numbered if one[2] < log.end_offset]
        self.messages = {offset: one for offset, one in self.messages.items() if offset < log.end_offset}
        self.end = self.sure = log.end_offset
        self.start = self.highest_start = log.start_offset
        self.durable_start = min(self.durable_start, self.start)
        self.claimed = 0
        self.clean_to = min(self.clean_to, self.end)

    def superseded(self, now_ms: int, retention_ms: int) -> set[int]:
        """What a compaction of all that is durable may drop: messages without a key, those with a later one
        of their key, and tombstones that an earlier pass has met, a while after they were written.
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
        """Compaction has taken some of the messages in an entry: which are together now."""
        for segment in log.segments:
            for _, offsets, last, _ in entries_of(segment):
                for offset in offsets:
                    if offset in self.messages:
                        self.messages[offset] = replace(self.messages[offset], entry=(offsets[0], last))


def entries_of(segment: Segment) -> list[tuple[bytes, list[int], int, bool]]:
    """(bytes, offsets, last offset, whether of magic 0 or 1) of each entry of a segment."""
    data, found, position = segment.file.read_at(0, segment.size), [], 0
    while position < len(data):
        offset, size, magic, more = _ENTRY.unpack_from(data + b"\0" * 8, position)
        entry = data[position : position + ENTRY_HEADER_BYTES + size]
        last = offset + more if magic == batch.MAGIC else offset
        found.append((entry, [record.offset for record in iterate(entry)], last, magic != batch.MAGIC))
        position += len(entry)
    return found


def read_records(log: Log, step: int) -> list[StoredRecord]:
    """Every record that can be read, fetched ``step`` bytes at a time."""
    records: list[StoredRecord] = []
    offset = log.start_offset
    while True:
        found = log.read(offset, step)
        if found.slice is None:
            return records
        new = [record for record in iterate(found.slice.read()) if record.offset >= offset]
        assert found.first_offset >= offset, f"a read at {offset} gave the entry of {found.first_offset}"
        records += new
        # A batch can end with offsets that compaction has taken.
        offset = new[-1].offset + 1 if new else found.first_offset + 1
