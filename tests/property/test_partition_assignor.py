"""Owners in any group of consumers in ZooKeeper: every partition exactly one, among those that read it, as
evenly as promised, and the same whoever works it out.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from minikafka.base.errors import ConfigError
from minikafka.base.ids import TopicPartition
from minikafka.clients.consumer.assignment import (
    AssignmentContext,
    ConsumerThreadId,
    Owners,
    RangeAssignor,
    RoundRobinAssignor,
)

TOPICS = ["t0", "t1", "Aa", "BB"]
"""The last two have one hash."""
IDS = st.text("abc-1", min_size=1, max_size=4)
STREAMS = st.integers(1, 12)
COUNTS = st.dictionaries(st.sampled_from(TOPICS), STREAMS)
CONSUMERS = st.dictionaries(IDS, COUNTS, min_size=1, max_size=5)
PARTITIONS = st.dictionaries(st.sampled_from(TOPICS), st.sets(st.integers(0, 30), max_size=20))
ALIKE = st.tuples(
    st.dictionaries(IDS, STREAMS, min_size=1, max_size=5), st.sets(st.sampled_from(TOPICS), min_size=1)
)

Consumers = dict[str, dict[str, int]]
Partitions = dict[str, set[int]]


def of(consumers: Consumers, partitions: Partitions, me: str) -> AssignmentContext:
    return AssignmentContext.of("g", me, consumers, partitions)


def shuffled(consumers: Consumers, partitions: Partitions, chance: Random) -> tuple[Consumers, Partitions]:
    """The same in another order."""
    ids, topics = list(consumers), list(partitions)
    chance.shuffle(ids)
    chance.shuffle(topics)
    others = {
        consumer: dict(sorted(consumers[consumer].items(), key=lambda _: chance.random())) for consumer in ids
    }
    return others, {topic: set(partitions[topic]) for topic in topics}


def alike(streams: dict[str, int], topics: set[str]) -> Consumers:
    """Consumers that all read the same topics, each with its own number of streams."""
    return {consumer: dict.fromkeys(topics, count) for consumer, count in streams.items()}


def threads_of(consumers: Consumers, topic: str) -> list[ConsumerThreadId]:
    """Return the threads that read a topic, in order."""
    return sorted(
        ConsumerThreadId(consumer, n)
        for consumer in consumers
        for n in range(consumers[consumer].get(topic, 0))
    )


def owned(owners: Owners) -> dict[TopicPartition, ConsumerThreadId]:
    """All partitions with their owners; none stands with another consumer than its thread's."""
    for consumer, share in owners.items():
        assert {thread.consumer for thread in share.values()} <= {consumer}
    assert sum(map(len, owners.values())) == len({tp for share in owners.values() for tp in share})
    return {tp: thread for share in owners.values() for tp, thread in share.items()}


@given(consumers=CONSUMERS, partitions=PARTITIONS)
def test_range_assigns_every_partition_to_one_of_its_threads(
    consumers: Consumers, partitions: Partitions
) -> None:
    for me, mine in consumers.items():
        owners = RangeAssignor().assign(of(consumers, partitions, me))
        assert set(owners) == set(consumers)
        found = owned(owners)
        assert set(found) == {TopicPartition(topic, n) for topic in mine for n in partitions.get(topic, ())}
        for tp, thread in found.items():
            assert thread.thread_id in range(consumers[thread.consumer][tp.topic])


@given(consumers=CONSUMERS, partitions=PARTITIONS)
def test_range_is_even_contiguous_and_favours_the_first_threads(
    consumers: Consumers, partitions: Partitions
) -> None:
    for me, mine in consumers.items():
        found = owned(RangeAssignor().assign(of(consumers, partitions, me)))
        for topic in mine:
            parts = [
                sorted(tp.partition for tp in found if (tp.topic, found[tp]) == (topic, thread))
                for thread in threads_of(consumers, topic)
            ]
            sizes = [len(part) for part in parts]
            assert sizes == sorted(sizes, reverse=True)
            assert sizes[0] - sizes[-1] <= 1
            assert [number for part in parts for number in part] == sorted(partitions.get(topic, ()))


@given(consumers=CONSUMERS, partitions=PARTITIONS, chance=st.randoms())
def test_range_does_not_depend_on_the_order_of_consumers(
    consumers: Consumers, partitions: Partitions, chance: Random
) -> None:
    everything: dict[TopicPartition, ConsumerThreadId] = {}
    for me in consumers:
        found = owned(RangeAssignor().assign(of(consumers, partitions, me)))
        assert owned(RangeAssignor().assign(of(*shuffled(consumers, partitions, chance), me))) == found
        for tp, thread in found.items():
            assert everything.setdefault(tp, thread) == thread


@given(group=ALIKE, partitions=PARTITIONS)
def test_roundrobin_assigns_every_partition_once_and_evenly(
    group: tuple[dict[str, int], set[str]], partitions: Partitions
) -> None:
    consumers = alike(*group)
    owners = RoundRobinAssignor().assign(of(consumers, partitions, min(consumers)))
    assert set(owners) == set(consumers)
    found = owned(owners)
    assert set(found) == {TopicPartition(topic, n) for topic in group[1] for n in partitions.get(topic, ())}
    threads = threads_of(consumers, min(group[1]))
    counts = Counter(found.values())
    sizes = [counts[thread] for thread in threads]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= 1
    assert sum(sizes) == len(found)


@given(group=ALIKE, partitions=PARTITIONS, chance=st.randoms())
def test_roundrobin_does_not_depend_on_the_order_of_consumers(
    group: tuple[dict[str, int], set[str]], partitions: Partitions, chance: Random
) -> None:
    consumers = alike(*group)
    first = RoundRobinAssignor().assign(of(consumers, partitions, min(consumers)))
    for me in consumers:
        assert RoundRobinAssignor().assign(of(*shuffled(consumers, partitions, chance), me)) == first


@given(consumers=CONSUMERS, partitions=PARTITIONS)
def test_roundrobin_refuses_for_all_consumers_or_for_none(
    consumers: Consumers, partitions: Partitions
) -> None:
    assume(any(consumers.values()))
    per_topic = {
        topic: {(one, count[topic]) for one, count in consumers.items() if topic in count}
        for topic in TOPICS
        if any(topic in count for count in consumers.values())
    }
    uneven = len({frozenset(threads) for threads in per_topic.values()}) > 1
    for me in consumers:
        if uneven:
            with pytest.raises(ConfigError, match="must read the same topics"):
                RoundRobinAssignor().assign(of(consumers, partitions, me))
        else:
            RoundRobinAssignor().assign(of(consumers, partitions, me))
