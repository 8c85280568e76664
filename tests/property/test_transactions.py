"""Transactions of several producers in a log that is closed, killed, cut, cleaned and copied: the aborted
transactions of every part are those of a simple oracle.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from minikafka.base.memory_files import MemoryFiles
from minikafka.log.config import LogConfig
from minikafka.log.index.transaction_index import AbortedTransaction
from minikafka.log.log import Log
from minikafka.log.transactions import aborted_between, aborted_steps
from minikafka.records.append.produced import Limits
from minikafka.records.append.replicated import replicated
from minikafka.records.append.validation import validate
from minikafka.records.format.batch import build_batch
from minikafka.records.format.message_set import Record
from tests.oracles.transactions import Transaction, aborted_in
from tests.support.logs import NOW_MS, open_log

PRODUCERS = st.integers(0, 3)
CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=100)
COPY = "data/copy_0"


@dataclass(frozen=True)
class Written:
    """A batch, or a marker: ``commit`` is None for a batch."""

    producer: int
    first: int
    last: int
    commit: bool | None = None


class Transactions(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.files = MemoryFiles()
        self.log = open_log(self.files, CONFIG)
        self.copy = open_log(self.files, replace(CONFIG, segment_bytes=900), directory=COPY)
        for directory in ("", "data"):
            self.files.sync_dir(directory)
        self.written: list[Written] = []
        self.high_watermark = 0
        self.decided = 0
        """Markers below this offset count, whatever the high watermark is: it is not known to be lower."""
        self.know_high_watermark()

    @initialize()
    def begin(self) -> None:
        self.write_outside(1)

    # The log.

    @rule(count=st.integers(1, 3))
    def write_outside(self, count: int) -> None:
        self.append(-1, count)

    @rule(producer=PRODUCERS, count=st.integers(1, 3))
    def write(self, producer: int, count: int) -> None:
        first = self.log.end_offset
        self.append(producer, count)
        self.written.append(Written(producer, first, self.log.end_offset - 1))

    def append(self, producer: int, count: int) -> None:
        known = self.log.producers.known.get(producer)
        epoch = -1 if producer < 0 else max(0, known.epoch if known else 0)
        sequence = -1 if producer < 0 else (known.last_sequence + 1 if known else 0)
        data = build_batch(
            [Record(None, b"%d" % number, NOW_MS) for number in range(count)],
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=producer >= 0,
        )
        self.log.append(validate(bytearray(data), Limits(max_magic=2), NOW_MS), now_ms=NOW_MS)

    @rule(producer=PRODUCERS, commit=st.booleans(), raises=st.booleans())
    def end(self, producer: int, commit: bool, raises: bool) -> None:
        known = self.log.producers.known.get(producer)
        epoch = max(0, known.epoch if known else 0) + raises
        at = self.log.append_end_marker(producer, epoch, 0, commit=commit, now_ms=NOW_MS).first_offset
        self.written.append(Written(producer, at, at, commit))

    @rule(back=st.integers(0, 20))
    def advance_high_watermark(self, back: int) -> None:
        self.high_watermark = max(self.high_watermark, self.log.end_offset - back)
        self.log.producers.high_watermark = self.high_watermark

    def know_high_watermark(self) -> None:
        """After the log was opened or cut."""
        self.decided = self.log.end_offset
        self.high_watermark = min(self.high_watermark, self.log.end_offset)
        self.log.producers.high_watermark = self.high_watermark

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def flush(self) -> None:
        self.log.flush()

    @rule(back=st.integers(1, 20))
    def cut(self, back: int) -> None:
        self.log.truncate_to(max(0, self.log.end_offset - back))
        self.forget()

    @rule()
    def close_and_open(self) -> None:
        self.log.close()
        self.copy.close()
        self.log = open_log(self.files, CONFIG, clean=True)
        self.copy = open_log(self.files, self.copy.config, clean=True, directory=COPY)
        self.know_high_watermark()

    @rule(lag=st.integers(0, 20))
    def kill_and_open(self, lag: int) -> None:
        self.files.kill_process()
        self.recover(lag)

    @rule(seed=st.none() | st.integers(0, 1000))
    def cut_power_and_open(self, seed: int | None) -> None:
        self.files.power_cut(None if seed is None else random.Random(seed))
        self.recover(0)

    def recover(self, lag: int) -> None:
        point = max(0, self.log.recovery_point - lag)
        self.log = open_log(self.files, CONFIG, recovery_point=point)
        point = self.copy.recovery_point
        self.copy = open_log(self.files, self.copy.config, recovery_point=point, directory=COPY)
        self.forget()

    def forget(self) -> None:
        end = self.log.end_offset
        self.written = [each for each in self.written if each.last < end]
        self.copy.truncate_to(min(self.copy.end_offset, end))
        self.know_high_watermark()

    @rule(max_bytes=st.integers(100, 2000))
    def copy_to_follower(self, max_bytes: int) -> None:
        while self.copy.end_offset < self.log.end_offset:
            found = self.log.read(self.copy.end_offset, max_bytes, partial=False)
            assert found.slice is not None
            copied = replicated(found.slice.read(), self.copy.end_offset)
            assert copied is not None
            self.copy.append_as_follower(copied)

    # The oracle.

    def expected(self, end: int) -> list[AbortedTransaction]:
        opened: dict[int, int] = {}
        found = []
        for each in self.written:
            if each.last >= end:
                break
            if each.commit is None:
                opened.setdefault(each.producer, each.first)
                continue
            first = opened.pop(each.producer, None)
            if first is not None and not each.commit:
                stable = min(opened.values(), default=each.last + 1)
                found.append(AbortedTransaction(each.producer, first, each.last, stable))
        return found

    def undecided(self, high_watermark: int) -> int | None:
        """The first offset of a transaction without a marker below that offset."""
        opened: dict[int, int] = {}
        for each in self.written:
            if each.commit is None:
                opened.setdefault(each.producer, each.first)
            elif each.last < high_watermark:
                opened.pop(each.producer, None)
        return min(opened.values(), default=None)

    @invariant()
    def indexes_have_the_aborted_transactions(self) -> None:
        for log in (self.log, self.copy):
            expected = self.expected(log.end_offset)
            indexes = [segment.transactions.index() for segment in log.segments]
            assert [entry for index in indexes if index for entry in index.entries()] == expected
            for segment, index in zip(log.segments, indexes, strict=True):
                for entry in index.entries() if index else ():
                    assert segment.base_offset <= entry.last_offset < segment.next_offset()

    @invariant()
    def every_part_has_its_aborted_transactions(self) -> None:
        for log in (self.log, self.copy):
            history = [
                Transaction(entry.producer_id, entry.first_offset, entry.last_offset, aborted=True)
                for entry in self.expected(log.end_offset)
            ]
            for start in range(0, log.end_offset, 3):
                for end in (start + 1, start + 4, log.end_offset):
                    self.check_part(log, history, start, end)
                self.check_read(log, history, start)

    def check_part(self, log: Log, history: list[Transaction], start: int, end: int) -> None:
        segment = [segment for segment in log.segments if segment.base_offset <= start][-1]
        found = aborted_between(log, segment, start, end)
        if found is None:
            inside = range(segment.base_offset, segment.next_offset())
            assert not any(each.first in inside for each in self.written)
            return
        expected = aborted_in(history, start, end)
        assert [(entry.producer_id, entry.first_offset) for entry in found] == expected

    def check_read(self, log: Log, history: list[Transaction], start: int) -> None:
        read = log.read(start, 200, partial=False)
        assert read.slice is not None
        copied = replicated(read.slice.read(), start)
        assert copied is not None
        steps = aborted_steps(log, read)
        try:
            while True:
                next(steps)
        except StopIteration as stop:
            found = set(stop.value)
        parts = [each for each in self.written if start <= each.last < copied.next_offset]
        needed = {
            (ended.producer_id, ended.first)
            for ended in history
            if any(
                ended.producer_id == each.producer and ended.first <= each.first <= ended.last
                for each in parts
            )
        }
        assert needed <= found <= set(aborted_in(history, start, log.end_offset))

    @invariant()
    def unstable_offsets_are_those_of_the_oracle(self) -> None:
        producers = self.log.producers
        assert producers.first_undecided_offset == self.undecided(self.log.end_offset)
        for high_watermark in range(self.high_watermark, self.log.end_offset + 1):
            at = max(high_watermark, self.decided) if high_watermark < self.log.end_offset else high_watermark
            assert producers.first_unstable_offset(high_watermark) == self.undecided(at)


Transactions.TestCase.settings = settings(stateful_step_count=30)
TestTransactions = Transactions.TestCase
