"""``perf latency`` on brokers in memory."""

from __future__ import annotations

import itertools

import pytest

from minikafka.base.errors import MinikafkaError
from minikafka.base.ids import TopicPartition
from minikafka.cli.perf import latency_summary, round_trips
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.produce import BatchingProducer
from tests.support.broker_harness import BrokerHarness

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def client(brokers: BrokerHarness) -> ClusterClient:
    return brokers.client(creates_topics=False, unknown_topic_timeout_ms=100)


def test_a_trip_ends_when_the_message_was_read(brokers: BrokerHarness) -> None:
    cluster = client(brokers)
    producer = BatchingProducer(cluster, threads=False)
    times_ms = list(itertools.islice(round_trips(cluster, producer, T0, 20), 5))
    assert all(time_ms > 0 for time_ms in times_ms)
    assert [value and len(value) for value in brokers.logs[T0].values()[5:]] == [20] * 5


def test_a_topic_that_others_write_to_is_refused(brokers: BrokerHarness) -> None:
    cluster = client(brokers)
    passes = round_trips(cluster, BatchingProducer(cluster, threads=False), T0, 20)
    next(passes)
    brokers.fill(T0, b"not ours")
    with pytest.raises(MinikafkaError, match="another client writes to t-0"):
        list(itertools.islice(passes, 3))


def test_the_summary_has_the_percentiles() -> None:
    assert latency_summary([float(number) for number in range(1, 1001)]) == {
        "records": 1_000,
        "mean_ms": 500.5,
        "p50_ms": 501.0,
        "p99_ms": 991.0,
        "p999_ms": 1000.0,
        "max_ms": 1000.0,
    }
