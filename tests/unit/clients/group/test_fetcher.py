"""``clients/group/fetcher``: polls without news, and partitions without a leader."""

from __future__ import annotations

from collections import Counter

import pytest

from minikafka.clients.group.consumer import GroupConsumer
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


def reading(harness: GroupHarness, **settings: object) -> GroupConsumer:
    """A consumer that has read the five records of T0."""
    consumer = harness.bare(**settings)
    consumer.assign([T0])
    assert sum(harness.read(consumer).values()) == 5
    return consumer


def test_new_leader_of_a_response_is_read_without_a_look_up(harness: GroupHarness) -> None:
    consumer = reading(harness)
    asked = len(harness.brokers.asked(ApiKey.METADATA))
    harness.brokers.move_leader(T0, 3 - harness.brokers.leader(T0))
    harness.brokers.fill(T0, b"from the new leader")
    assert harness.read(consumer, rounds=2) == Counter([b"from the new leader"])
    assert len(harness.brokers.asked(ApiKey.METADATA)) == asked


@pytest.mark.parametrize(
    ("written", "expected"), [(3, {b"0", b"1", b"2"}), (8, {b"5", b"6", b"7"})], ids=["shorter", "longer"]
)
def test_topic_made_again_is_read_on_as_by_kafkas_consumer(
    harness: GroupHarness, written: int, expected: set[bytes]
) -> None:
    consumer = reading(harness)
    harness.brokers.delete_topic("t")
    assert harness.read(consumer) == Counter()
    harness.brokers.add_topic("t", 1)
    harness.brokers.fill(T0, *(b"%d" % number for number in range(written)))
    assert set(harness.read(consumer, rounds=60)) == expected


def test_topic_made_again_between_two_polls_is_noticed(harness: GroupHarness) -> None:
    consumer = reading(harness)
    harness.brokers.delete_topic("t")
    harness.brokers.add_topic("t", 1)
    harness.brokers.fill(T0, b"a")
    assert harness.read(consumer, rounds=60) == Counter([b"a"])
