"""``metrics()`` of the texts' producer, consumer and simple consumer."""

from __future__ import annotations

import math

import pytest

from minikafka.base.ids import TopicPartition
from minikafka.clients.producer import KeyedMessage
from tests.support.broker_harness import BrokerHarness
from tests.support.connector_harness import ZooKeeperGroupHarness
from tests.support.producer_harness import RecordingEventHandler, make_producer
from tests.support.simple_consumer_harness import SimpleConsumerHarness

FETCH = "consumer-fetch-manager-metrics"


def test_the_producer_shows_what_its_engine_has_sent() -> None:
    with make_producer(BrokerHarness(1, {"t": 1})) as producer:
        producer.send([KeyedMessage("t", b"a"), KeyedMessage("t", b"b")])
        found = producer.metrics()
    assert found["producer-topic-metrics.t"]["record-send-total"] == 2
    assert found["producer-metrics"]["connection-count"] > 0


def test_a_producer_with_an_event_handler_shows_its_connections() -> None:
    with make_producer(BrokerHarness(1, {"t": 1}), event_handler=RecordingEventHandler()) as producer:
        producer.send(KeyedMessage("t", b"a"))
        assert list(producer.metrics()) == ["producer-metrics"]


def test_the_consumer_shows_messages_lag_rebalances_and_commits() -> None:
    harness = ZooKeeperGroupHarness(t=2)
    consumer = harness.consumer("a", client_id="measured").joins(t=1).receives(5)
    for info in consumer.fetcher.infos.values():
        info.high_watermark = 7
    consumer.take(10)
    consumer.take(1)
    consumer.connector.commit_offsets()
    found = consumer.connector.metrics()
    assert found[FETCH]["records-consumed-total"] == found[f"{FETCH}.t"]["records-consumed-total"] == 10
    assert found[FETCH]["bytes-consumed-total"] > 0
    assert found[FETCH]["fetch-total"] > 0
    assert found[FETCH]["records-lag-max"] == 2
    assert found[f"{FETCH}.t-1"]["records-lag"] == consumer.connector.lag[TopicPartition("t", 1)] == 2
    coordinator = found["consumer-coordinator-metrics"]
    assert coordinator["assigned-partitions"] == 2
    assert coordinator["rebalance-total"] >= 1
    assert coordinator["commit-total"] >= 1
    assert math.isnan(coordinator["last-heartbeat-seconds-ago"])
    consumer.connector.shutdown()


@pytest.mark.parametrize("classic", [False, True], ids=["kafka", "classic"])
def test_a_simple_consumer_shows_its_fetches(classic: bool) -> None:
    harness = SimpleConsumerHarness(classic=classic)
    before = harness.consumer.metrics()[FETCH]["fetch-total"]
    harness.simulation.produce("t", b"a", b"b")
    harness.fetch(0, 0)
    found = harness.consumer.metrics()
    assert found[FETCH]["fetch-total"] == before + 1
    assert found[FETCH]["fetch-size-max"] > 0
    assert "records-consumed-total" not in found[FETCH]
    assert ("consumer-node-metrics.node--1" in found) is not classic
    harness.consumer.close()
