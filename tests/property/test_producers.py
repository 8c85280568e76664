"""Idempotent producers, and a log that is closed, killed and truncated: no batch is written twice, whatever
is sent again, and the next batches are accepted.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.memory_files import MemoryFiles
from minikafka.log.config import LogConfig
from minikafka.records.append.produced import Limits, LogAppendInfo
from minikafka.records.append.validation import validate
from minikafka.records.format.batch import build_batch
from minikafka.records.format.message_set import Record, iterate
from tests.support.logs import NOW_MS, open_log, valid_set

LARGEST = 0x7FFFFFFF
PRODUCERS = st.integers(0, 3)
CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=100)


@dataclass(slots=True)
class Sent:
    """The batches of a producer's epoch in the log: first sequence, records and first offset of each."""

    epoch: int = 0
    batches: list[tuple[int, int, int]] = field(default_factory=list)
    exact: int = 0
    """So many of the newest must be known with their offsets: those since the last restart, and one."""


class Producers(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.files = MemoryFiles()
        self.log = open_log(self.files, CONFIG)
        self.sent: dict[int, Sent] = {}
        self.written: list[bytes] = []

    @initialize()
    def begin(self) -> None:
        self.send_other(1)

    def send(self, producer: int, epoch: int, first: int, count: int) -> LogAppendInfo:
        records = [
            Record(None, b"%d/%d/%d" % (producer, epoch, (first + number) % (LARGEST + 1)), NOW_MS)
            for number in range(count)
        ]
        data = build_batch(records, producer_id=producer, producer_epoch=epoch, base_sequence=first)
        assigned = self.log.append(validate(bytearray(data), Limits(max_magic=2), NOW_MS), now_ms=NOW_MS)
        if not assigned.duplicate:
            self.written += [record.value or b"" for record in records]
        return assigned

    def refused(self, producer: int, epoch: int, first: int, count: int) -> ErrorCode:
        try:
            assigned = self.send(producer, epoch, first, count)
        except BrokerError as error:
            return error.code
        raise AssertionError(f"{first}+{count} of {producer} was taken: {assigned}")

    @rule(count=st.integers(1, 3))
    def send_other(self, count: int) -> None:
        """Messages of an older format, without a producer."""
        values = [b"%d" % len(self.written)] * count
        self.log.append(valid_set(values))
        self.written += values

    @rule(producer=PRODUCERS, count=st.integers(1, 4))
    def send_next(self, producer: int, count: int) -> None:
        sent = self.sent.setdefault(producer, Sent())
        last = sent.batches[-1] if sent.batches else (0, 0, 0)
        first = (last[0] + last[1]) % (LARGEST + 1)
        assigned = self.send(producer, sent.epoch, first, count)
        assert assigned.first_offset == len(self.written) - count
        sent.batches.append((first, count, assigned.first_offset))
        sent.exact = min(5, sent.exact + 1)

    @precondition(lambda self: self.sent)
    @rule(producer=PRODUCERS, back=st.integers(1, 12))
    def send_again(self, producer: int, back: int) -> None:
        sent = self.sent.get(producer, Sent())
        if back > len(sent.batches):
            return
        first, count, offset = sent.batches[-back]
        if back > sent.exact and not self.is_known(producer, first, count):
            code = self.refused(producer, sent.epoch, first, count)
            # What begins at 0 before five that are known was answered: it is another producer's.
            full = first == 0 and len(self.log.producers.known[producer].batches) == 5
            wanted = ErrorCode.UNKNOWN_PRODUCER_ID if full else ErrorCode.DUPLICATE_SEQUENCE_NUMBER
            assert code is wanted
            return
        assigned = self.send(producer, sent.epoch, first, count)
        assert assigned.duplicate
        assert (assigned.first_offset, assigned.count) == (offset, count)

    def is_known(self, producer: int, first: int, count: int) -> bool:
        """Return True if the last restart recovered its offsets, which depends on the snapshots."""
        batches = self.log.producers.known[producer].batches
        return any(
            (batch.first_sequence, batch.last_sequence) == (first, first + count - 1) for batch in batches
        )

    @rule(producer=PRODUCERS, gap=st.integers(1, 5), count=st.integers(1, 3))
    def skip(self, producer: int, gap: int, count: int) -> None:
        sent = self.sent.get(producer, Sent())
        if not sent.batches:
            assert self.refused(producer, 0, gap, count) is ErrorCode.UNKNOWN_PRODUCER_ID
            return
        first = sent.batches[-1][0] + sent.batches[-1][1] + gap
        code = self.refused(producer, sent.epoch, first, count)
        assert code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    @rule(producer=PRODUCERS)
    def begin_epoch(self, producer: int) -> None:
        sent = self.sent.get(producer, Sent())
        if not sent.batches:
            return
        code = self.refused(producer, sent.epoch + 1, 1, 1)
        assert code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        self.sent[producer] = Sent(sent.epoch + 1)
        self.send_next(producer, 1)
        assert self.refused(producer, sent.epoch, 0, 1) is ErrorCode.INVALID_PRODUCER_EPOCH

    @rule()
    def flush(self) -> None:
        self.log.flush()

    @rule()
    def close_and_open(self) -> None:
        self.log.close()
        self.log = open_log(self.files, CONFIG, clean=True)
        self.forget_offsets()

    @rule(lag=st.integers(0, 40))
    def kill_and_open(self, lag: int) -> None:
        self.files.kill_process()
        point = max(0, self.log.recovery_point - lag)
        self.log = open_log(self.files, CONFIG, recovery_point=point)
        self.forget_offsets()

    def forget_offsets(self) -> None:
        for sent in self.sent.values():
            sent.exact = min(1, len(sent.batches))

    @rule(back=st.integers(1, 30))
    def cut(self, back: int) -> None:
        self.log.truncate_to(max(0, self.log.end_offset - back))
        end = self.log.end_offset
        del self.written[end:]
        for producer, sent in list(self.sent.items()):
            sent.batches = [batch for batch in sent.batches if batch[2] < end]
            if not sent.batches:
                # What it sent under an earlier epoch may be there still: another id goes on.
                del self.sent[producer]
                self.retire(producer)
        self.forget_offsets()

    def retire(self, producer: int) -> None:
        known = self.log.producers.known.get(producer)
        if known is not None:
            self.sent[producer] = Sent(known.epoch + 1)
            self.send_next(producer, 1)

    @invariant()
    def the_log_has_what_was_taken(self) -> None:
        stored = [segment.slice(0, segment.size).read() for segment in self.log.segments]
        assert [record.value for data in stored for record in iterate(data)] == self.written


Producers.TestCase.settings = settings(stateful_step_count=40)
TestProducers = Producers.TestCase
