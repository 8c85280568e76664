"""A consumer that reads in all ways and seeks in between: it returns the log's records from its position on,
once and in order, and commits the position after them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from minikafka.base.ids import TopicPartition
from minikafka.clients.group.consumer import GroupConsumer, GroupConsumerConfig, Reset
from minikafka.records.format.message_set import Codec, Record, build_message_set
from tests.support.broker_harness import BrokerHarness
from tests.support.partition_log import split_entries

PLACES = tuple(TopicPartition("t", number) for number in range(3))
CODECS = {1: [Codec.NONE, Codec.GZIP, Codec.SNAPPY], 2: [Codec.NONE, Codec.LZ4, Codec.GZIP]}

NOWHERE = 1 << 40
WAIT_MS = 100
"""Of a clock that no one waits for: enough for all that a poll has to look up before."""

Given = list[tuple[TopicPartition, int, bytes | None]]

FILLS = st.tuples(
    st.just("fill"), st.sampled_from(PLACES), st.integers(1, 9), st.sampled_from([1, 2]), st.integers(0, 2)
)
READS = st.one_of(
    st.tuples(st.just("records"), st.integers(1, 5)),
    st.tuples(st.just("table"), st.integers(1, 5), st.booleans()),
    st.tuples(st.just("iterate"), st.integers(1, 5)),
)
STEPS = st.one_of(
    READS,
    READS,
    FILLS,
    st.tuples(st.just("sets")),
    st.tuples(st.just("table"), st.none(), st.booleans()),
    st.tuples(st.just("seek"), st.sampled_from(PLACES), st.integers(0, 30)),
    st.tuples(st.just("beginning"), st.sampled_from(PLACES)),
    st.tuples(st.just("end"), st.sampled_from(PLACES)),
    st.tuples(st.just("pause"), st.sampled_from(PLACES)),
    st.tuples(st.just("resume"), st.sampled_from(PLACES)),
    st.tuples(st.just("assign"), st.sets(st.sampled_from(PLACES), min_size=1)),
    st.tuples(st.just("commit")),
)


class ConsumerHarness:
    """A consumer of three partitions, and the records that it must return."""

    def __init__(self) -> None:
        self.brokers = BrokerHarness(2, {"t": len(PLACES)})
        config = GroupConsumerConfig(
            "g", auto_commit=False, auto_offset_reset=Reset.EARLIEST, max_poll_records=4
        )
        self.consumer = GroupConsumer(self.brokers.client(), config, threads=False)
        self.consumer.assign(PLACES)
        self.position = dict.fromkeys(PLACES, 0)
        self.values_of: dict[TopicPartition, dict[int, bytes | None]] = {tp: {} for tp in PLACES}
        self.written = 0

    def step(self, what: str, *how: Any) -> None:
        getattr(self, what)(*how)
        for tp in self.consumer.assignment:
            known = self.consumer.position(tp)
            # There is nothing in between: compaction has removed it.
            assert known is None or self.next_of(tp, self.position[tp]) == self.next_of(tp, known), tp

    def offsets(self, tp: TopicPartition) -> dict[int, bytes | None]:
        return self.values_of[tp]

    def next_of(self, tp: TopicPartition, offset: int) -> int:
        """Return the offset of the first record from there on; NOWHERE for none."""
        return min((known for known in self.offsets(tp) if known >= offset), default=NOWHERE)

    def took(self, given: Given) -> None:
        paused = self.consumer.paused
        for tp, offset, value in given:
            assert tp in self.consumer.assignment
            assert tp not in paused
            assert offset == self.next_of(tp, self.position[tp])
            assert value == self.offsets(tp)[offset]
            self.position[tp] = offset + 1

    # The steps.

    def fill(self, tp: TopicPartition, count: int, magic: int, codec: int) -> None:
        log, before = self.brokers.logs[tp], self.brokers.logs[tp].end_offset
        values = [b"%d" % (self.written + number) for number in range(count)]
        self.written += count
        if CODECS[magic][codec] is Codec.NONE and magic == 1:
            records = [Record(b"k", value, 1_000) for value in values]
            entries = split_entries(build_message_set(records, base_offset=before))
            log.copy(b"".join(entry for number, entry in enumerate(entries) if number not in {1, 4}))
        else:
            self.brokers.fill(tp, *values, codec=CODECS[magic][codec], magic=magic)
        self.values_of[tp] = {record.offset: record.value for record in log.records()}

    def sets(self) -> None:
        self.took(
            [
                (fetched.topic_partition, record.offset, record.value)
                for fetched in self.consumer.poll(WAIT_MS)
                for record in fetched.records()
            ]
        )

    def records(self, most: int) -> None:
        found = self.consumer.poll_records(WAIT_MS, most)
        assert len(found) <= most
        self.took([(record.topic_partition, record.offset, record.value) for record in found])

    def table(self, most: int | None, headers: bool) -> None:
        found = self.consumer.poll_table(WAIT_MS, max_records=most, headers=headers)
        assert most is None or found.num_rows <= most
        names = ("topic", "partition", "offset", "value")
        rows = zip(*(found.column(name).to_pylist() for name in names), strict=True)
        self.took([(TopicPartition(topic, number), offset, value) for topic, number, offset, value in rows])

    def iterate(self, count: int) -> None:
        there = sum(
            offset >= self.position[tp]
            for tp in self.consumer.assignment
            if tp not in self.consumer.paused
            for offset in self.offsets(tp)
        )
        with self.patience():
            for record in islice(self.consumer, min(count, there)):
                self.took([(record.topic_partition, record.offset, record.value)])

    @contextlib.contextmanager
    def patience(self) -> Iterator[None]:
        """End an iteration, which would wait for ever, by ``wakeup``."""
        clock = self.brokers.clock
        advance, latest_ms = clock.advance, clock.monotonic_ms() + 60_000

        def advancing(milliseconds: int) -> None:
            advance(milliseconds)
            if clock.monotonic_ms() > latest_ms:
                self.consumer.wakeup()

        clock.advance = advancing  # type: ignore[method-assign]
        try:
            yield
        finally:
            clock.advance = advance  # type: ignore[method-assign]

    def seek(self, tp: TopicPartition, offset: int) -> None:
        end = self.brokers.logs[tp].end_offset
        self.on(tp, lambda: self.consumer.seek(tp, min(offset, end)), min(offset, end))

    def beginning(self, tp: TopicPartition) -> None:
        self.on(tp, lambda: self.consumer.seek_to_beginning(tp), 0)

    def end(self, tp: TopicPartition) -> None:
        """Seek to the end, which the next poll looks up: no event may come between."""
        if tp in self.consumer.assignment:
            self.consumer.seek_to_end(tp)
            self.position[tp] = self.brokers.logs[tp].end_offset
            self.records(7)

    def on(self, tp: TopicPartition, move: Callable[[], None], position: int) -> None:
        if tp in self.consumer.assignment:
            move()
            self.position[tp] = position

    def pause(self, tp: TopicPartition) -> None:
        if tp in self.consumer.assignment:
            self.consumer.pause(tp)

    def resume(self, tp: TopicPartition) -> None:
        if tp in self.consumer.assignment:
            self.consumer.resume(tp)

    def assign(self, places: set[TopicPartition]) -> None:
        committed = self.brokers.committed("g")
        for tp in places - set(self.consumer.assignment):
            self.position[tp] = committed.get(tp, 0)
        self.consumer.assign(places)

    def commit(self) -> None:
        self.consumer.commit_sync()
        committed = self.brokers.committed("g")
        for tp in self.consumer.assignment:
            known = self.consumer.position(tp)
            if known is not None:
                assert committed[tp] == known

    def rest(self) -> None:
        """Read all remaining records."""
        self.assign(set(PLACES))
        self.consumer.resume(*PLACES)
        for _ in range(100):
            if all(self.next_of(tp, self.position[tp]) == NOWHERE for tp in PLACES):
                break
            self.records(7)
        else:
            raise AssertionError(f"{self.position} and nothing more comes")
        self.consumer.close()


@given(st.lists(FILLS, min_size=2, max_size=6), st.lists(STEPS, min_size=5, max_size=25))
def test_consumer_returns_the_log_once_and_in_order(
    fills: list[tuple[Any, ...]], steps: list[tuple[Any, ...]]
) -> None:
    harness = ConsumerHarness()
    for step in [*fills, *steps]:
        harness.step(*step)
    harness.rest()
