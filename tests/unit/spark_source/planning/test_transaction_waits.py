"""The open transactions for which a stream waits: what is looked up, logged and reported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from minikafka.base.clock import ManualClock
from minikafka.base.errors import NetworkError
from minikafka.base.ids import TopicPartition
from pyspark_minikafka.monitoring.query_progress import query_progress, summary
from pyspark_minikafka.offsets import StreamOffset
from pyspark_minikafka.planning.transaction_waits import (
    TransactionWait,
    TransactionWatch,
    Waits,
    parse_waits,
    waits_key,
)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
STREAM = "org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStream@1"


class Watched:
    """A watch over two partitions that are read to offset 5."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.lines: list[str] = []
        self.marks = {T0: 5, T1: 5}
        self.opened: Waits = {T0: TransactionWait(5, 7, "copier", 99)}
        self.looked = 0
        self.fails = False
        self.watch = TransactionWatch(self, self.clock, self.lines.append)

    def high_watermarks(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        self.looked += 1
        return {tp: self.marks[tp] for tp in partitions}

    def open_transactions(self, partitions: Iterable[TopicPartition]) -> Waits:
        if self.fails:
            raise NetworkError("nobody answers")
        return {tp: self.opened[tp] for tp in partitions if tp in self.opened}

    def observe(self, seconds: int = 0, end: int = 5, position: int = 5) -> None:
        for _ in range(seconds):
            self.clock.advance(1_000)
            self.watch.observe({T0: position, T1: position}, {T0: end, T1: end})
        if not seconds:
            self.watch.observe({T0: position, T1: position}, {T0: end, T1: end})


def test_a_wait_is_logged_after_ten_seconds_and_every_minute() -> None:
    watched = Watched()
    watched.marks[T0] = 8
    watched.observe(10)
    assert watched.lines == []
    watched.observe(1)
    (line,) = watched.lines
    assert line == (
        "t-0: waiting for 10 s for the end of the transaction of producer 7 (transactional id 'copier'): 3 "
        "offsets from 5 on cannot be read with isolation.level=read_committed"
    )
    watched.observe(59)
    assert len(watched.lines) == 1
    watched.observe(1)
    assert watched.lines[1].startswith("t-0: waiting for 70 s")


def test_the_end_of_a_logged_wait_is_logged() -> None:
    watched = Watched()
    watched.marks[T0] = 8
    watched.observe(21)
    watched.observe(end=9)
    assert watched.lines[1:] == [
        "t-0: the transaction of producer 7 (transactional id 'copier') has ended; waited for 20 s"
    ]
    assert watched.watch.waits == {}


def test_a_short_transaction_is_not_mentioned() -> None:
    watched = Watched()
    watched.marks[T0] = 8
    watched.observe(3)
    assert watched.watch.waits == {T0: TransactionWait(5, for_ms=2_000)}
    watched.observe(end=9)
    assert (watched.lines, dict(watched.watch.waits)) == ([], {})


def test_a_producer_without_a_known_id_may_be_hanging() -> None:
    watched = Watched()
    watched.marks[T0] = 8
    watched.opened = {T0: TransactionWait(5, 7)}
    watched.observe(11)
    assert "of producer 7 (no known id)" in watched.lines[0]
    assert watched.lines[0].endswith("; see `minikafka txn find-hanging --topic t`")


def test_a_failed_look_up_is_part_of_the_line() -> None:
    watched = Watched()
    watched.marks[T0], watched.fails = 8, True
    watched.observe(11)
    assert "of an unknown producer (its producer cannot be looked up: nobody answers" in watched.lines[0]


def test_a_query_with_records_to_read_looks_up_nothing() -> None:
    watched = Watched()
    watched.observe(5, end=5, position=3)
    assert watched.looked == 0


def test_brokers_are_asked_once_a_second_at_most() -> None:
    watched = Watched()
    for _ in range(10):
        watched.clock.advance(200)
        watched.observe()
    assert watched.looked == 2


def test_waits_travel_in_the_key_of_the_newest_offset() -> None:
    waits = {T0: TransactionWait(5, 7, "a:b;c=ü", 12_000), T1: TransactionWait(6)}
    document: dict[str, Any] = {"t": {"0": 5, "1": 6}, waits_key(waits): {}}
    assert parse_waits(document) == waits
    assert StreamOffset.from_json(document).positions == {T0: 5, T1: 6}


def test_a_progress_shows_what_the_query_waits_for() -> None:
    positions = {"t": {"0": 5, "1": 6}}
    key = waits_key({T0: TransactionWait(5, 7, "copier", 12_000)})
    reported = {
        "description": STREAM,
        "startOffset": positions,
        "endOffset": positions,
        "latestOffset": {**positions, key: {}},
        "numInputRows": 1,
    }
    found = query_progress("id", "q", {"batchId": 1, "timestamp": "T", "sources": [reported]})
    assert [partition.topic_partition for partition in found.waiting] == [T0]
    text = "t-0 waits for the transaction of producer 7 (transactional id 'copier') at offset 5, for 12.0 s"
    assert str(found).endswith(text)
    assert summary(found, 3.0).endswith(f"; {text}")
