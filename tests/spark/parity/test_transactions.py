"""Records of transactions, which only Apache Kafka's brokers take: what was committed, and everything."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import LATEST
from minikafka.clients.fetch.isolation_level import IsolationLevel
from tests.spark.parity.conftest import OURS_ON_THEIRS, THEIRS, Source
from tests.spark.parity.records import each, numbers

COMMITTED = {"kafka__isolation__level": "read_committed", "startingOffsets": "earliest"}

pytestmark = pytest.mark.parametrize(
    "source",
    [pytest.param(pair, marks=pytest.mark.interop) for pair in (THEIRS, OURS_ON_THEIRS)],
    indirect=True,
)


def sent(source: Source, topic: str, *transactions: tuple[str, int]) -> Any:
    """Transactions of ten records each, ``("commit" | "abort" | "open", first number)``; the producer."""
    confluent = pytest.importorskip("confluent_kafka")
    settings = {"bootstrap.servers": source.kafka.servers, "transactional.id": topic}
    producer = confluent.Producer(settings)
    producer.init_transactions(60)
    for end, first in transactions:
        producer.begin_transaction()
        for number in range(first, first + 10):
            producer.produce(topic, str(number).encode(), partition=0)
        producer.flush(60)
        if end != "open":
            getattr(producer, f"{end}_transaction")(60)
    return producer


def ends(source: Source, topic: str) -> Iterator[int]:
    """The last stable offset and the high watermark."""
    tp = TopicPartition(topic, 0)
    for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED):
        end = source.kafka.admin.offsets({tp: LATEST}, isolation=level)[tp]
        assert end is not None
        yield end


def wait_for(source: Source, topic: str, stable: int, high: int) -> None:
    # The broker answers the end of a transaction before its mark is in the log.
    deadline = time.monotonic() + 60
    while tuple(ends(source, topic)) != (stable, high):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_batch_reads_what_was_committed_or_everything(source: Source) -> None:
    topic = source.kafka.topic(1)
    sent(source, topic, ("commit", 0), ("abort", 10), ("commit", 20), ("open", 30))
    wait_for(source, topic, stable=33, high=43)
    assert source.values(subscribe=topic, **COMMITTED) == numbers(range(10), range(20, 30))
    assert source.values(subscribe=topic) == numbers(range(40))


def test_offsets_of_marks_and_of_what_was_aborted_are_passed_over(source: Source) -> None:
    topic = source.kafka.topic(1)
    sent(source, topic, ("abort", 0), ("commit", 10), ("abort", 20))
    wait_for(source, topic, stable=33, high=33)
    ending = {"endingOffsets": each(topic, 11)}
    assert source.values(subscribe=topic, **COMMITTED, **ending) == []
    split = {"minPartitions": 7}
    assert source.values(subscribe=topic, **COMMITTED, **split) == numbers(range(10, 20))


def test_a_stream_reads_a_transaction_once_it_is_committed(source: Source) -> None:
    topic = source.kafka.topic(1)
    producer = sent(source, topic, ("commit", 0), ("abort", 10), ("open", 20))
    wait_for(source, topic, stable=22, high=32)
    query = source.stream(subscribe=topic, **COMMITTED)
    assert query.read() == numbers(range(10))
    producer.commit_transaction(60)
    wait_for(source, topic, stable=33, high=33)
    assert query.read() == numbers(range(10), range(20, 30))
