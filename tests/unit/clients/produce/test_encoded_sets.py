"""``BatchingProducer.send_encoded_sets``: message sets of several partitions that are queued together."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.base.errors import BrokerError, ErrorCode, NetworkError
from minikafka.base.ids import TopicPartition
from minikafka.clients.produce import BatchingConfig, BatchingProducer
from minikafka.records.format.message_set import Record, build_message_set
from minikafka.wire.api import ApiKey
from tests.support.broker_harness import BrokerHarness

PARTITIONS = [TopicPartition("t", number) for number in range(4)]


@pytest.fixture
def brokers() -> BrokerHarness:
    return BrokerHarness(1, {"t": 4})


def producer_of(brokers: BrokerHarness, **settings: Any) -> BatchingProducer:
    return BatchingProducer(brokers.client(), BatchingConfig(**settings), threads=False)


def sets(*partitions: TopicPartition, count: int = 3) -> list[tuple[TopicPartition, bytes, int]]:
    return [
        (tp, build_message_set([Record(None, b"%d" % n) for n in range(count)], magic=2), count)
        for tp in partitions
    ]


def test_sets_queued_together_go_in_one_request_also_with_threads(brokers: BrokerHarness) -> None:
    with BatchingProducer(brokers.client(), BatchingConfig(max_in_flight=1)) as producer:
        futures = producer.send_encoded_sets(sets(*PARTITIONS))
        assert [future.result(20_000).topic_partition for future in futures] == PARTITIONS
    (request,) = brokers.asked(ApiKey.PRODUCE)
    assert [part.index for topic in request.topics for part in topic.partitions] == [0, 1, 2, 3]


def test_sets_of_one_partition_keep_their_order(brokers: BrokerHarness) -> None:
    with producer_of(brokers) as producer:
        first, second = producer.send_encoded_sets(sets(PARTITIONS[1], PARTITIONS[1]))
    assert [first.result().offset, second.result().offset] == [0, 3]


def test_no_set_is_queued_if_one_names_an_unknown_partition(brokers: BrokerHarness) -> None:
    producer = producer_of(brokers)
    with pytest.raises(BrokerError, match="there is no partition 9") as caught:
        producer.send_encoded_sets(sets(PARTITIONS[0], TopicPartition("t", 9)))
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    producer.close()
    assert brokers.asked(ApiKey.PRODUCE) == []


def test_no_set_is_queued_if_one_is_empty(brokers: BrokerHarness) -> None:
    producer = producer_of(brokers)
    with pytest.raises(ValueError, match="empty message set for t-1"):
        producer.send_encoded_sets([*sets(PARTITIONS[0]), (PARTITIONS[1], b"", 0)])
    producer.close()
    assert brokers.asked(ApiKey.PRODUCE) == []


def test_more_than_the_buffer_holds_waits_for_the_first_sets(brokers: BrokerHarness) -> None:
    given = sets(*PARTITIONS, count=20)
    with producer_of(brokers, buffer_bytes=len(given[0][1]) + 1) as producer:
        futures = producer.send_encoded_sets(given)
        assert [future.done for future in futures] == [True, True, True, False]
    assert all(brokers.logs[tp].values() == [b"%d" % n for n in range(20)] for tp in PARTITIONS)


def test_a_buffer_that_stays_full_fails_the_call(brokers: BrokerHarness) -> None:
    given = sets(*PARTITIONS, count=20)
    producer = producer_of(brokers, buffer_bytes=len(given[0][1]), max_block_ms=2_000)
    producer.send_encoded_sets(given[:1])
    producer.flush()
    brokers.stop(1)
    with pytest.raises(NetworkError, match=r"after 2000 ms waiting for .* bytes of memory"):
        producer.send_encoded_sets(given)
    producer.close(timeout_ms=0)
