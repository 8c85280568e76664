"""Shares of any group: every partition exactly once, wanted by whom it goes to, and as even as promised."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.base.ids import TopicPartition
from minikafka.clients.group.assignors import ASSIGNORS, Assignor, assign_range, assign_round_robin

TOPICS = ["t0", "t1", "t2", "t3"]
PARTITIONS = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 12))
MEMBERS = st.text("abc", min_size=1, max_size=4)
SUBSCRIPTIONS = st.dictionaries(MEMBERS, st.lists(st.sampled_from(TOPICS)), min_size=1, max_size=6)


@pytest.mark.parametrize("assign", ASSIGNORS.values(), ids=ASSIGNORS)
@given(subscriptions=SUBSCRIPTIONS, partitions=PARTITIONS)
def test_every_partition_is_assigned_to_one_subscriber(
    assign: Assignor, subscriptions: dict[str, list[str]], partitions: dict[str, int]
) -> None:
    shares = assign(subscriptions, partitions)
    assert set(shares) == set(subscriptions)
    for member, share in shares.items():
        assert {tp.topic for tp in share} <= set(subscriptions[member])
    wanted = {topic for topics in subscriptions.values() for topic in topics}
    given_out = Counter(tp for share in shares.values() for tp in share)
    assert given_out == Counter(
        TopicPartition(topic, number) for topic in wanted for number in range(partitions.get(topic, 0))
    )


@given(subscriptions=SUBSCRIPTIONS, partitions=PARTITIONS)
def test_range_is_even_in_each_topic_and_gives_neighbours(
    subscriptions: dict[str, list[str]], partitions: dict[str, int]
) -> None:
    shares = assign_range(subscriptions, partitions)
    for topic in TOPICS:
        parts = [
            [tp.partition for tp in shares[member] if tp.topic == topic]
            for member in sorted(subscriptions)
            if topic in subscriptions[member]
        ]
        sizes = [len(part) for part in parts]
        assert sizes == sorted(sizes, reverse=True)
        assert not sizes or sizes[0] - sizes[-1] <= 1
        assert [number for part in parts for number in part] == list(range(sum(sizes)))


@given(members=st.sets(MEMBERS, min_size=1, max_size=6), partitions=PARTITIONS)
def test_roundrobin_is_even_for_equal_subscriptions(members: set[str], partitions: dict[str, int]) -> None:
    shares = assign_round_robin(dict.fromkeys(members, TOPICS), partitions)
    sizes = [len(shares[member]) for member in sorted(members)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= 1


@pytest.mark.parametrize("assign", ASSIGNORS.values(), ids=ASSIGNORS)
@given(subscriptions=SUBSCRIPTIONS, partitions=PARTITIONS, chance=st.randoms())
def test_order_of_members_does_not_matter(
    assign: Assignor, subscriptions: dict[str, list[str]], partitions: dict[str, int], chance: Random
) -> None:
    rows = [(member, chance.sample(topics, len(topics))) for member, topics in subscriptions.items()]
    chance.shuffle(rows)
    assert assign(dict(rows), partitions) == assign(subscriptions, partitions)
