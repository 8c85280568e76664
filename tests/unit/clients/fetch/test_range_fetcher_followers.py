"""Ranges that are read from a follower in the client's rack (KIP-392)."""

from __future__ import annotations

import pytest

from minikafka.base.ids import TopicPartition
from minikafka.clients.fetch.log_sample import sample_log
from minikafka.clients.fetch.range_fetcher import RangeFetcher
from minikafka.records.format.message_set import iterate
from minikafka.wire.api import ApiKey
from tests.support.broker_harness import BrokerHarness

TP = TopicPartition("t", 0)
LEADER, FOLLOWER = 1, 2
SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
COUNT = 50


@pytest.fixture
def brokers() -> BrokerHarness:
    """Broker 1 in rack a leads a partition of 50 messages, broker 2 in rack b follows."""
    harness = BrokerHarness(
        2, {"t": 1}, replicas=2, racks=("a", "b"), properties={"replica.selector.class": SELECTOR}
    )
    for number in range(COUNT):
        harness.fill(TP, b"%d" % number)
    harness.advance(1_000)  # the follower learns the high watermark
    return harness


def fetcher(brokers: BrokerHarness, rack: str) -> RangeFetcher:
    return RangeFetcher(brokers.client(), TP, 0, COUNT, max_bytes=500, rack=rack)


def read(sets: RangeFetcher) -> list[int]:
    return [record.offset for data in sets for record in iterate(data)]


def asked(brokers: BrokerHarness) -> list[int]:
    """The brokers of the fetches, in order."""
    return [broker for broker, key, _, _ in brokers.requests if key is ApiKey.FETCH]


def test_range_is_read_from_the_follower_in_the_rack(brokers: BrokerHarness) -> None:
    assert read(fetcher(brokers, "b")) == list(range(COUNT))
    first, *others = asked(brokers)
    assert (first, set(others)) == (LEADER, {FOLLOWER})


@pytest.mark.parametrize("rack", ["", "a", "c"])
def test_range_is_read_from_the_leader_without_a_nearer_replica(brokers: BrokerHarness, rack: str) -> None:
    assert read(fetcher(brokers, rack)) == list(range(COUNT))
    assert set(asked(brokers)) == {LEADER}


def test_look_at_a_log_is_at_the_follower_in_the_rack(brokers: BrokerHarness) -> None:
    client = brokers.client()
    assert sample_log(client, TP, 0, client.deadline(), rack="b") is not None
    assert asked(brokers) == [LEADER, FOLLOWER]


def test_rest_of_the_range_comes_from_the_leader_if_the_follower_dies(brokers: BrokerHarness) -> None:
    sets = fetcher(brokers, "b")
    found = [record.offset for record in iterate(next(sets))]
    brokers.stop(FOLLOWER)
    found += read(sets)
    assert found == list(range(COUNT))
    assert asked(brokers)[-1] == LEADER


def test_a_follower_that_lags_is_waited_for_without_a_loss(brokers: BrokerHarness) -> None:
    brokers.fill(TP, b"last")
    sets = RangeFetcher(brokers.client(), TP, 0, COUNT + 1, max_bytes=500, rack="b")
    assert read(sets) == list(range(COUNT + 1))
