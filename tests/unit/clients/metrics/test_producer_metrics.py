"""``metrics()`` of the producers: what was sent, how long it took, and over which connections."""

from __future__ import annotations

import math

import pytest

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.clients.produce import BatchingConfig, BatchingProducer
from minikafka.clients.produce.partitioner import StickyPartitioner
from minikafka.clients.produce.transactional_producer import TransactionalProducer
from minikafka.records.format.message_set import Codec
from minikafka.wire.api import ApiKey
from tests.support.broker_harness import BrokerHarness, produce_error

A = TopicPartition("t", 0)


@pytest.fixture
def brokers() -> BrokerHarness:
    return BrokerHarness(2, {"t": 4, "u.v": 1})


def producer_of(brokers: BrokerHarness, **settings: object) -> BatchingProducer:
    config = BatchingConfig(**settings)  # type: ignore[arg-type]
    partitioner = StickyPartitioner(first_turn=0)
    return BatchingProducer(brokers.client(), config, partitioner=partitioner, threads=False)


def test_a_new_producer_has_zeros_and_nan_as_in_kafka(brokers: BrokerHarness) -> None:
    with producer_of(brokers, buffer_bytes=1_000_000) as producer:
        found = producer.metrics()["producer-metrics"]
    assert {found[name] for name in ("record-send-total", "record-send-rate", "connection-count")} == {0}
    assert all(math.isnan(found[name]) for name in ("request-latency-avg", "batch-size-max", "metadata-age"))
    assert found["buffer-available-bytes"] == found["buffer-total-bytes"] == 1_000_000
    assert all(isinstance(value, float) for value in found.values())


def test_sent_records_are_counted_by_topic_and_by_node(brokers: BrokerHarness) -> None:
    with producer_of(brokers) as producer:
        for number in range(10):
            producer.send("t", b"%d" % number, partition=0)
        producer.send("u.v", b"x")
        producer.flush()
        found = producer.metrics()
    assert found["producer-metrics"]["record-send-total"] == 11
    assert found["producer-metrics"]["record-send-rate"] == 11 / 30
    assert found["producer-topic-metrics.t"]["record-send-total"] == 10
    assert found["producer-topic-metrics.u.v"]["record-send-total"] == 1
    sizes = [found[f"producer-topic-metrics.{topic}"]["byte-total"] for topic in ("t", "u.v")]
    assert found["producer-metrics"]["byte-total"] == sum(sizes)
    assert found["producer-metrics"]["batch-size-max"] == sizes[0]
    assert found["producer-metrics"]["compression-rate-avg"] == 1
    nodes = [values for name, values in found.items() if name.startswith("producer-node-metrics.node-")]
    assert sum(node["request-total"] for node in nodes) == found["producer-metrics"]["request-total"] > 0
    assert found["producer-metrics"]["outgoing-byte-total"] > sum(sizes)
    assert found["producer-metrics"]["connection-count"] >= 1


def test_waits_and_latencies_are_in_ms(brokers: BrokerHarness) -> None:
    with producer_of(brokers, linger_ms=20) as producer:
        producer.send("t", b"x", partition=0)
        producer.flush()
        producer.send("t", b"x", partition=0)
        brokers.advance(15)
        producer.flush()
        found = producer.metrics()["producer-metrics"]
    assert found["record-queue-time-max"] == 15
    assert found["record-queue-time-avg"] == 7.5
    assert found["request-latency-avg"] >= 0
    assert found["requests-in-flight"] == 0


def test_compressed_batches_show_their_ratio(brokers: BrokerHarness) -> None:
    with producer_of(brokers, compression=Codec.GZIP) as producer:
        producer.send("t", b"x" * 10_000, partition=0)
        producer.flush()
        assert producer.metrics()["producer-metrics"]["compression-rate-avg"] < 0.1


def test_retries_count_as_sent_again(brokers: BrokerHarness) -> None:
    brokers.script(ApiKey.PRODUCE, produce_error(ErrorCode.NOT_LEADER_FOR_PARTITION))
    with producer_of(brokers) as producer:
        producer.send("t", b"x", partition=0)
        producer.flush()
        found = producer.metrics()["producer-topic-metrics.t"]
    assert (found["record-send-total"], found["record-retry-total"], found["record-error-total"]) == (2, 1, 0)


def test_refused_records_are_errors(brokers: BrokerHarness) -> None:
    brokers.script(ApiKey.PRODUCE, produce_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    with producer_of(brokers) as producer:
        sent = producer.send("t", b"x", partition=0)
        producer.flush()
        with pytest.raises(BrokerError):
            sent.result()
        found = producer.metrics()["producer-metrics"]
    assert (found["record-error-total"], found["record-retry-total"]) == (1, 0)


def test_records_without_acknowledgement_are_counted(brokers: BrokerHarness) -> None:
    with producer_of(brokers, acks=0, idempotence=False) as producer:
        producer.send("t", b"x", partition=0)
        producer.flush()
        found = producer.metrics()["producer-metrics"]
    assert found["record-send-total"] == 1
    assert math.isnan(found["request-latency-avg"])


def test_calls_of_transactions_are_timed(brokers: BrokerHarness) -> None:
    cluster = brokers.client()
    with TransactionalProducer(cluster, transactional_id="copier", threads=False) as producer:
        found = producer.metrics()["producer-metrics"]
    assert found["txn-commit-time-ns-total"] == 0
