"""A log compared with a plain list: every way to read it, and every way to make it shorter.

All formats and codecs, both layouts, preallocated or not, with clean stops and killed processes between.
Crashes that lose something are ``test_log``'s and ``tests/faults``'s.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from minikafka.base.clock import ManualClock
from minikafka.base.errors import OffsetOutOfRange
from minikafka.base.memory_files import MemoryFiles
from minikafka.log.config import LogConfig
from minikafka.log.layout import Layout
from minikafka.log.log import Log
from minikafka.log.retention import ByAgeAndSize
from minikafka.log.search import EARLIEST, LATEST
from minikafka.records.append.produced import Limits
from minikafka.records.append.validation import validate
from minikafka.records.format.message_set import NO_TIMESTAMP, Codec, Record, build_message_set, iterate
from tests.support.logs import HOME, open_log, read_all

NOW_MS = 1_700_000_000_000
LIMITS = Limits(max_magic=2)
KINDS = st.sampled_from(
    [(magic, codec) for magic in (0, 1, 2) for codec in Codec if codec is not Codec.ZSTD or magic == 2]
)


@dataclass(frozen=True, slots=True)
class Message:
    """``entry``: the first and the last offset of the entry that it lies in."""

    value: bytes
    time_ms: int
    entry: tuple[int, int]


class LogMachine(RuleBasedStateMachine):
    """A log, and the list of its messages by offset."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock(NOW_MS)
        self.files = MemoryFiles(clock=self.clock)
        self.messages: dict[int, Message] = {}
        self.start = self.end = 0
        self.epochs: list[tuple[int, int]] = []
        self.made = 0

    @initialize(
        segment_bytes=st.sampled_from([500, 2000]),
        interval_bytes=st.sampled_from([1, 100, 1000]),
        preallocate=st.booleans(),
        layout=st.sampled_from(list(Layout)),
    )
    def begin(self, segment_bytes: int, interval_bytes: int, preallocate: bool, layout: Layout) -> None:
        self.config = LogConfig(segment_bytes, interval_bytes, preallocate=preallocate)
        self.layout = layout
        self.files.make_dirs(HOME)
        self.log: Log = open_log(self.files, self.config, layout=layout)

    def reopen(self, *, clean: bool) -> None:
        point = self.log.recovery_point
        self.log = open_log(
            self.files,
            self.config,
            clean=clean,
            recovery_point=point,
            start_offset=self.start,
            layout=self.layout,
        )
        assert self.log.recovery is None
        # An epoch without records is not reported any more.
        self.epochs = [entry for entry in self.epochs if entry[1] < self.end]

    @rule(
        sizes=st.lists(st.integers(0, 60), min_size=1, max_size=4), kind=KINDS, later_ms=st.integers(-50, 50)
    )
    def append(self, sizes: list[int], kind: tuple[int, Codec], later_ms: int) -> None:
        magic, codec = kind
        self.made += 1
        self.clock.advance(10)
        first_ms = self.clock.now_ms() + later_ms
        records = [
            Record(None, b"%d.%d" % (self.made, at) + b"x" * size, first_ms + at)
            for at, size in enumerate(sizes)
        ]
        valid = validate(bytearray(build_message_set(records, magic=magic, codec=codec)), LIMITS, first_ms)
        if valid.size_bytes > self.config.segment_bytes:
            return
        assert self.log.append(valid, now_ms=self.clock.now_ms()).first_offset == self.end
        together = codec is not Codec.NONE or magic == 2
        last = self.end + len(records) - 1
        for record in records:
            entry = (last - len(records) + 1, last) if together else (self.end, self.end)
            time_ms = record.timestamp_ms if magic else NO_TIMESTAMP
            self.messages[self.end] = Message(record.value or b"", time_ms, entry)
            self.end += 1

    @rule()
    def roll(self) -> None:
        self.log.roll(self.clock.now_ms())

    @rule()
    def flush(self) -> None:
        assert self.log.flush() == self.end

    @rule()
    def close_and_open(self) -> None:
        self.log.close()
        self.reopen(clean=True)

    @rule()
    def kill(self) -> None:
        self.files.kill_process()
        self.reopen(clean=False)

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        end = offset = data.draw(st.integers(max(0, self.start - 2), self.end))
        while end - 1 in self.messages and self.messages[end - 1].entry[1] >= offset:
            end = self.messages[end - 1].entry[0]
        self.log.truncate_to(offset)
        if offset == self.end:
            return
        self.end = end
        self.messages = {at: message for at, message in self.messages.items() if at < self.end}
        self.start = min(self.start, self.end)
        self.epochs = [entry for entry in self.epochs if entry[1] < self.end]
        assert self.log.end_offset == self.end

    @rule(data=st.data())
    def advance_start(self, data: st.DataObject) -> None:
        self.start = data.draw(st.integers(self.start, self.end))
        self.log.increment_start_offset(self.start)

    @rule(data=st.data(), by_size=st.booleans(), amount=st.integers(0, 200))
    def delete_old(self, data: st.DataObject, by_size: bool, amount: int) -> None:
        up_to = data.draw(st.integers(self.start, self.end))
        config = dataclasses.replace(
            self.config,
            retention_bytes=amount * 20 if by_size else None,
            retention_ms=None if by_size else amount,
        )
        now_ms = self.clock.now_ms()
        before = self.log.segments
        ends = [segment.base_offset for segment in before[1:]] + [self.end]
        sizes = [segment.size for segment in self.log.segments]
        times = [
            max(
                (
                    message.time_ms
                    for at, message in self.messages.items()
                    if segment.base_offset <= at < end and message.time_ms >= 0
                ),
                default=None,
            )
            for segment, end in zip(self.log.segments, ends, strict=True)
        ]
        gone = self.log.delete_old_segments(
            lambda segments: ByAgeAndSize().expired(segments, config, now_ms), up_to, now_ms
        )
        held = self.log.segments[0].base_offset
        count = sum(segment not in self.log.segments for segment in before)
        for number in range(count):
            old = by_size and sum(sizes[number + 1 :]) >= amount * 20
            old |= not by_size and (times[number] is None or now_ms - times[number] > amount)
            assert old or ends[number] <= self.start, f"segment {number} had not to go"
            assert ends[number] <= up_to
        assert bool(gone) == bool(count)
        self.start = max(self.start, held)
        self.messages = {at: message for at, message in self.messages.items() if at >= held}
        for path in gone:
            self.files.remove(path)

    @rule(more=st.integers(0, 3))
    def lead(self, more: int) -> None:
        epoch = self.log.epochs.latest + more
        if more:
            self.epochs = [entry for entry in self.epochs if entry[1] < self.end] + [(epoch, self.end)]
        self.log.epochs.assign(epoch, self.end)

    @rule(epoch=st.integers(-1, 9))
    def ask_for_an_epoch(self, epoch: int) -> None:
        """Look up epochs that began at the log's start or later; older ones may have lost their start."""
        kept = [entry for entry in self.epochs if entry[1] > self.log.segments[0].base_offset]
        ends = [first for _, first in kept[1:]] + [self.end]
        for (known, _), end in zip(kept, ends, strict=False):
            assert self.log.epochs.end_offset_for(known, self.end) == (known, end)
        if epoch > max((known for known, _ in self.epochs), default=-1):
            assert self.log.epochs.end_offset_for(epoch, self.end) == (-1, -1)

    @rule(
        data=st.data(),
        max_bytes=st.sampled_from([1, 60, 300, 10_000]),
        at_least_one=st.booleans(),
        partial=st.booleans(),
    )
    def read(self, data: st.DataObject, max_bytes: int, at_least_one: bool, partial: bool) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        up_to = data.draw(st.none() | st.integers(self.start, self.end))
        found = self.log.read(offset, max_bytes, up_to=up_to, at_least_one=at_least_one, partial=partial)
        bound = self.end if up_to is None else up_to
        entry = self.messages[offset].entry if offset < self.end else None
        if found.slice is None:
            fits = entry is not None and offset < bound and entry[1] < bound
            assert not (fits and at_least_one)
            return
        assert entry is not None
        content = bytes(found.slice.read())
        assert found.size_bytes == len(content) <= max(max_bytes, len(content) if at_least_one else 0)
        records = list(iterate(content))
        if not records:
            assert partial
            assert not at_least_one
            return
        assert (found.first_offset, records[0].offset) == (entry[1], entry[0])
        last = records[-1].offset
        assert [record.offset for record in records] == list(range(entry[0], last + 1))
        assert [record.value for record in records] == [
            self.messages[at].value for at in range(entry[0], last + 1)
        ]
        assert last < bound
        if len(content) > max_bytes:
            assert last == entry[1], "more than one entry is larger than was asked for"

    @rule(offset=st.integers(1, 1 << 40), below=st.booleans())
    def read_outside(self, offset: int, below: bool) -> None:
        with pytest.raises(OffsetOutOfRange) as caught:
            self.log.read(self.start - offset if below else self.end + offset, 100)
        assert (caught.value.start_offset, caught.value.end_offset) == (self.start, self.end)

    @rule(data=st.data(), more_ms=st.integers(-1, 1))
    def find_a_time(self, data: st.DataObject, more_ms: int) -> None:
        readable = {
            at: one.time_ms for at, one in self.messages.items() if at >= self.start and one.time_ms >= 0
        }
        asked = data.draw(st.sampled_from(sorted(readable.values()) or [NOW_MS])) + more_ms
        expected = next(((at, readable[at]) for at in sorted(readable) if readable[at] >= asked), None)
        assert self.log.offset_for_timestamp(asked) == expected

    @rule(count=st.integers(0, 9))
    def list_offsets(self, count: int) -> None:
        segments = self.log.segments
        bases = [max(self.start, segment.base_offset) for segment in segments]
        latest = ([self.end] if segments[-1].size else []) + bases[::-1]
        assert self.log.offsets_before(LATEST, count) == latest[:count]
        assert self.log.offsets_before(EARLIEST, count) == bases[:1][:count]
        now_ms = self.clock.now_ms()
        assert self.log.offsets_before(now_ms, count, now_ms=now_ms) == latest[:count]
        assert self.log.offsets_before(NOW_MS - 1, count) == []

    @invariant()
    def all_is_there(self) -> None:
        if hasattr(self, "log"):
            assert (self.log.start_offset, self.log.end_offset) == (self.start, self.end)
            expected = [(at, self.messages[at].value) for at in range(self.start, self.end)]
            assert [(record.offset, record.value) for record in read_all(self.log)] == expected


TestLog = LogMachine.TestCase
TestLog.settings = settings(stateful_step_count=30)
