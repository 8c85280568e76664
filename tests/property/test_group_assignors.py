"""Shares of any group: every partition exactly once, wanted by whom it goes to, and as even as promised."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.base.ids import TopicPartition
from minikafka.clients.group.assignors import ASSIGNORS, assign_range, assign_round_robin
from minikafka.clients.group.cooperative_sticky import assign_cooperative_sticky
from minikafka.clients.group.member_subscriptions import Assignor, MemberSubscription

TOPICS = ["t0", "t1", "t2", "t3"]
PARTITIONS = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 12))
MEMBERS = st.text("abc", min_size=1, max_size=4)
SUBSCRIPTIONS = st.dictionaries(
    MEMBERS, st.lists(st.sampled_from(TOPICS)).map(tuple).map(MemberSubscription), min_size=1, max_size=6
)


@pytest.mark.parametrize("assign", ASSIGNORS.values(), ids=ASSIGNORS)
@given(subscriptions=SUBSCRIPTIONS, partitions=PARTITIONS)
def test_every_partition_is_assigned_to_one_subscriber(
    assign: Assignor, subscriptions: dict[str, MemberSubscription], partitions: dict[str, int]
) -> None:
    shares = assign(subscriptions, partitions)
    assert set(shares) == set(subscriptions)
    for member, share in shares.items():
        assert {tp.topic for tp in share} <= set(subscriptions[member].topics)
    wanted = {topic for row in subscriptions.values() for topic in row.topics}
    given_out = Counter(tp for share in shares.values() for tp in share)
    assert given_out == Counter(
        TopicPartition(topic, number) for topic in wanted for number in range(partitions.get(topic, 0))
    )


@given(subscriptions=SUBSCRIPTIONS, partitions=PARTITIONS)
def test_range_is_even_in_each_topic_and_gives_neighbours(
    subscriptions: dict[str, MemberSubscription], partitions: dict[str, int]
) -> None:
    shares = assign_range(subscriptions, partitions)
    for topic in TOPICS:
        parts = [
            [tp.partition for tp in shares[member] if tp.topic == topic]
            for member in sorted(subscriptions)
            if topic in subscriptions[member].topics
        ]
        sizes = [len(part) for part in parts]
        assert sizes == sorted(sizes, reverse=True)
        assert not sizes or sizes[0] - sizes[-1] <= 1
        assert [number for part in parts for number in part] == list(range(sum(sizes)))


@given(members=st.sets(MEMBERS, min_size=1, max_size=6), partitions=PARTITIONS)
def test_roundrobin_is_even_for_equal_subscriptions(members: set[str], partitions: dict[str, int]) -> None:
    shares = assign_round_robin(dict.fromkeys(members, MemberSubscription(tuple(TOPICS))), partitions)
    sizes = [len(shares[member]) for member in sorted(members)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= 1


@pytest.mark.parametrize("assign", ASSIGNORS.values(), ids=ASSIGNORS)
@given(subscriptions=SUBSCRIPTIONS, partitions=PARTITIONS, chance=st.randoms())
def test_order_of_members_does_not_matter(
    assign: Assignor, subscriptions: dict[str, MemberSubscription], partitions: dict[str, int], chance: Random
) -> None:
    rows = [
        (member, MemberSubscription(tuple(chance.sample(row.topics, len(row.topics)))))
        for member, row in subscriptions.items()
    ]
    chance.shuffle(rows)
    assert assign(dict(rows), partitions) == assign(subscriptions, partitions)


# --- cooperative-sticky -------------------------------------------------------------------------------------

CLAIMS = st.dictionaries(
    MEMBERS,
    st.builds(
        MemberSubscription,
        st.lists(st.sampled_from(TOPICS)).map(tuple),
        st.lists(st.builds(TopicPartition, st.sampled_from(TOPICS), st.integers(0, 12))).map(tuple),
        st.integers(-1, 3),
    ),
    min_size=1,
    max_size=6,
)


def least_squares(subscriptions: dict[str, MemberSubscription], partitions: dict[str, int]) -> int:
    """The smallest sum of squared loads, by augmenting one partition after the other."""
    loads, owner = dict.fromkeys(subscriptions, 0), dict[TopicPartition, str]()
    for topic, count in partitions.items():
        readers = [member for member, row in subscriptions.items() if topic in row.topics]
        for number in range(count if readers else 0):
            # The least loaded member that a chain of moves reaches from the readers of this partition.
            reached: dict[str, tuple[str, TopicPartition] | None] = dict.fromkeys(readers)
            queue = list(readers)
            for giver in queue:
                for tp in [tp for tp, one in owner.items() if one == giver]:
                    for taker, row in subscriptions.items():
                        if tp.topic in row.topics and taker not in reached:
                            reached[taker] = giver, tp
                            queue.append(taker)
            taker = min(reached, key=loads.__getitem__)
            loads[taker] += 1
            while (step := reached[taker]) is not None:
                giver, tp = step
                owner[tp], taker = taker, giver
            owner[TopicPartition(topic, number)] = taker
    return sum(load**2 for load in loads.values())


@given(subscriptions=SUBSCRIPTIONS, partitions=PARTITIONS)
def test_sticky_loads_are_as_even_as_subscriptions_allow(
    subscriptions: dict[str, MemberSubscription], partitions: dict[str, int]
) -> None:
    shares = assign_cooperative_sticky(subscriptions, partitions)
    assert sum(len(share) ** 2 for share in shares.values()) == least_squares(subscriptions, partitions)


@given(claims=CLAIMS, partitions=PARTITIONS)
def test_no_partition_is_given_away_before_its_owner_gives_it_up(
    claims: dict[str, MemberSubscription], partitions: dict[str, int]
) -> None:
    shares = assign_cooperative_sticky(claims, partitions)
    for member, share in shares.items():
        for tp in share:
            others = [one for one, row in claims.items() if one != member and tp in row.owned]
            assert not others or tp in claims[member].owned


@given(claims=CLAIMS, partitions=PARTITIONS)
def test_second_assignment_gives_all_out_evenly_and_a_third_moves_nothing(
    claims: dict[str, MemberSubscription], partitions: dict[str, int]
) -> None:
    for generation in (10, 11):
        shares = assign_cooperative_sticky(claims, partitions)
        claims = {
            member: MemberSubscription(row.topics, shares[member], generation)
            for member, row in claims.items()
        }
    assert sum(len(share) ** 2 for share in shares.values()) == least_squares(claims, partitions)
    assert assign_cooperative_sticky(claims, partitions) == shares


@given(members=st.sets(MEMBERS, min_size=2, max_size=6), partitions=PARTITIONS, chance=st.randoms())
def test_partitions_of_members_that_stay_move_no_more_than_needed(
    members: set[str], partitions: dict[str, int], chance: Random
) -> None:
    topics = tuple(TOPICS)
    shares = assign_cooperative_sticky(dict.fromkeys(members, MemberSubscription(topics)), partitions)
    stay = chance.sample(sorted(members), chance.randint(1, len(members)))
    after = {member: MemberSubscription(topics, shares[member], 1) for member in stay}
    after |= {f"new{number}": MemberSubscription(topics) for number in range(chance.randint(0, 3))}
    kept = {member: set(share) for member, share in assign_cooperative_sticky(after, partitions).items()}
    most = -(-sum(partitions.values()) // len(after))
    lost = sum(len(set(shares[member]) - kept[member]) for member in stay)
    above = sum(max(0, len(shares[member]) - most) for member in stay)
    fewer = sum(max(0, len(shares[member]) - most + 1) for member in stay)
    assert above <= lost <= fewer
    if len(after) == len(stay):
        assert lost == 0
