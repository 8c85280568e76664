"""The partition assignors of a group's leader; range and roundrobin, as in Kafka's consumer.

Pure functions. The same members, topics and partitions give the same assignment in every client, in any
language: static members come first, by instance id, then the others by member id; topics are sorted by name
(``RangeAssignor`` and ``RoundRobinAssignor`` of 0.10.1; later releases keep both for members without a rack).
"""

from __future__ import annotations

from collections.abc import Mapping

from minikafka.base.ids import TopicPartition
from minikafka.clients.group.cooperative_sticky import assign_cooperative_sticky
from minikafka.clients.group.member_subscriptions import (
    Assignments,
    Assignor,
    Subscriptions,
    in_order,
    readers_of,
)


def assign_range(subscriptions: Subscriptions, partitions: Mapping[str, int]) -> Assignments:
    """Assign each topic on its own: members get consecutive partitions, and the first members one more each
    if the number is not divisible.

    ``partitions`` has the number of partitions of each topic; a topic that is not in it has none.
    """
    assignments: dict[str, list[TopicPartition]] = {member: [] for member in in_order(subscriptions)}
    for topic, members in readers_of(subscriptions):
        each, extra = divmod(partitions.get(topic, 0), len(members))
        start = 0
        for position, member in enumerate(members):
            end = start + each + (position < extra)
            assignments[member] += [TopicPartition(topic, number) for number in range(start, end)]
            start = end
    return _frozen(assignments)


def assign_round_robin(subscriptions: Subscriptions, partitions: Mapping[str, int]) -> Assignments:
    """Assign each partition of all topics in turn to the next member that subscribes to the topic.

    With equal subscriptions the numbers of partitions differ by one at most.
    """
    assignments: dict[str, list[TopicPartition]] = {member: [] for member in in_order(subscriptions)}
    wanted = {member: frozenset(subscription.topics) for member, subscription in subscriptions.items()}
    ring = list(assignments)
    turn = 0
    for topic, _ in readers_of(subscriptions):
        for number in range(partitions.get(topic, 0)):
            while topic not in wanted[ring[turn]]:
                turn = (turn + 1) % len(ring)
            assignments[ring[turn]].append(TopicPartition(topic, number))
            turn = (turn + 1) % len(ring)
    return _frozen(assignments)


ASSIGNORS: dict[str, Assignor] = {
    "range": assign_range,
    "roundrobin": assign_round_robin,
    "cooperative-sticky": assign_cooperative_sticky,
}
"""The assignors by their names in JoinGroup; the group uses one that all members support."""
COOPERATIVE = frozenset({"cooperative-sticky"})
"""The assignors whose members keep their partitions while they rejoin, if they offer no other ones."""


def _frozen(assignments: dict[str, list[TopicPartition]]) -> Assignments:
    return {member: tuple(partitions) for member, partitions in assignments.items()}
