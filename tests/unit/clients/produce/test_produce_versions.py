"""``clients/produce/producer``: what the responses of newer Produce versions tell."""

from __future__ import annotations

import pytest

from minikafka.base.ids import TopicPartition
from minikafka.clients.produce import BatchingProducer
from minikafka.wire.api import ApiKey
from tests.support.broker_harness import BrokerHarness

A = TopicPartition("t", 0)


@pytest.fixture
def brokers() -> BrokerHarness:
    return BrokerHarness(2, {"t": 4})


@pytest.fixture
def producer(brokers: BrokerHarness) -> BatchingProducer:
    return BatchingProducer(brokers.client(), threads=False)


@pytest.mark.parametrize(("version", "lookups"), [(9, 1), (10, 0), (11, 0)])
def test_leader_that_the_old_one_names_needs_no_lookup(
    brokers: BrokerHarness, producer: BatchingProducer, version: int, lookups: int
) -> None:
    brokers.newest[ApiKey.PRODUCE] = version
    with producer:
        producer.send("t", b"first", partition=0)
        producer.flush()
        brokers.move_leader(A, 2)
        asked = len(brokers.asked(ApiKey.METADATA))
        sent = producer.send("t", b"second", partition=0)
        producer.flush()
        assert sent.result().offset == 1
        assert len(brokers.asked(ApiKey.METADATA)) == asked + lookups
    assert brokers.logs[A].values() == [b"first", b"second"]


@pytest.mark.parametrize("version", [7, 8, 11])
def test_record_that_a_compacted_topic_refuses_is_named(
    brokers: BrokerHarness, producer: BatchingProducer, version: int
) -> None:
    brokers.newest[ApiKey.PRODUCE] = version
    brokers.configure("t", "cleanup.policy", "compact")
    with producer:
        sent = [producer.send("t", b"v", key=key, partition=0) for key in (b"a", None, b"c")]
        producer.flush()
        texts = [str(future.error) for future in sent]
        assert texts[0] == texts[2]
        assert ("rejected record 1 (the first is 0) of 3 records for t-0: " in texts[1]) is (version >= 8)
        assert ("rejected 3 records for t-0: record 1: " in texts[0]) is (version >= 8)
        later = producer.send("t", b"v", key=b"d", partition=0)
        producer.flush()
        assert later.result().offset == 0
