"""The properties of a connector: owned ones, positions, lag, stats."""

from __future__ import annotations

import pytest

from minikafka.base.ids import TopicPartition
from tests.support.connector_harness import ZooKeeperGroupHarness, cut_off

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


@pytest.fixture
def harness() -> ZooKeeperGroupHarness:
    return ZooKeeperGroupHarness(t=4)


def test_positions_and_lag_are_those_of_the_owned_partitions(harness: ZooKeeperGroupHarness) -> None:
    a, b = harness.consumer("a").reads(t=1), harness.consumer("b").reads(t=1)
    harness.go()
    assert a.connector.positions == {T0: -1, T1: -1}
    assert len({*a.connector.owned_partitions, *b.connector.owned_partitions}) == 4
    a.fetcher.deliver(5)
    for info in a.fetcher.infos.values():
        info.high_watermark = 7
    a.take(8)
    assert a.connector.positions == {T0: 5, T1: 2}
    assert a.connector.lag == {T0: 2, T1: 5}


def test_connector_has_its_own_stats(harness: ZooKeeperGroupHarness) -> None:
    consumer = harness.consumer("a", client_id="a-client").joins(t=1).receives(5)
    consumer.take(20)
    consumer.take(1)
    assert consumer.connector.topic_stats.client_id == "a-client"
    assert consumer.connector.topic_stats.topic("t").messages.count == 20
    assert consumer.connector.fetch_stats.all_brokers.requests.count > 0


def test_partitions_are_owned_until_they_are_released() -> None:
    harness = ZooKeeperGroupHarness(t=2, u=1)
    a = harness.consumer("a").reads(t=1, u=1)
    assert a.connector.owned_partitions == ()
    harness.go()
    assert a.connector.owned_partitions == (T0, T1, U0)
    b = harness.consumer("b").joins(t=1)
    assert a.connector.owned_partitions == (T0, U0)
    cut_off(harness, a)
    harness.zookeeper.resume(a.store)
    harness.zookeeper.deliver()
    a.connector.step()
    assert a.connector.owned_partitions == ()
    harness.go()
    b.connector.shutdown()
    assert b.connector.owned_partitions == ()
