"""``clients/group/fetcher``: polls without news, and partitions without a leader."""

from __future__ import annotations

from collections import Counter

from minikafka.wire.api import ApiKey
from tests.support.group_consumer_harness import T0, T1, GroupHarness


def test_polls_without_news_ask_for_no_leader(harness: GroupHarness) -> None:
    consumer = harness.member()
    harness.read(consumer)
    cluster, asked = consumer._cluster, []
    known = cluster.known_leader_and_epoch
    cluster.known_leader_and_epoch = lambda tp: asked.append(tp) or known(tp)  # type: ignore[method-assign, func-returns-value]
    for _ in range(20):
        assert consumer.poll(100) == ()
    assert asked == []
    harness.brokers.fill(T0, b"news")
    assert harness.read(consumer) == Counter([b"news"])


def test_leader_that_is_elected_later_is_found(harness: GroupHarness) -> None:
    harness.brokers.lose_leader(T0)
    consumer = harness.bare()
    consumer.assign([T0, T1])
    consumer.seek(T0, 0)
    consumer.seek(T1, 0)
    assert sum(harness.read(consumer).values()) == 5
    harness.brokers.move_leader(T0, 1)
    assert sum(harness.read(consumer).values()) == 5


def test_look_ups_of_a_partition_without_leader_become_rare(harness: GroupHarness) -> None:
    harness.brokers.lose_leader(T0)
    consumer = harness.bare()
    consumer.assign([T0])
    consumer.seek(T0, 0)
    consumer.poll(2_000)
    before = len(harness.brokers.asked(ApiKey.METADATA))
    consumer.poll(10_000)
    assert len(harness.brokers.asked(ApiKey.METADATA)) - before in range(9, 12)
