"""The partition assignors of a group's leader: range and roundrobin, as in Kafka's consumer.

Pure functions. The same members, topics and partitions give the same assignment in every client, in any
language: members are sorted by id, topics by name (``RangeAssignor`` and ``RoundRobinAssignor`` of 0.10.1;
later releases keep both for members without a rack or an instance id).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from minikafka.base.ids import TopicPartition

Subscriptions = Mapping[str, Iterable[str]]
"""Member id to its subscribed topics."""
Assignments = dict[str, tuple[TopicPartition, ...]]
"""Member id to its partitions; a row for every member."""
Assignor = Callable[[Subscriptions, Mapping[str, int]], Assignments]


def assign_range(subscriptions: Subscriptions, partitions: Mapping[str, int]) -> Assignments:
    """Assign each topic on its own: members get consecutive partitions, and the first members one more each
    if the number is not divisible.

    ``partitions`` has the number of partitions of each topic; a topic that is not in it has none.
    """
    assignments: dict[str, list[TopicPartition]] = {member: [] for member in sorted(subscriptions)}
    for topic, members in _readers(subscriptions):
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
    assignments: dict[str, list[TopicPartition]] = {member: [] for member in sorted(subscriptions)}
    wanted = {member: frozenset(topics) for member, topics in subscriptions.items()}
    ring = list(assignments)
    turn = 0
    for topic, _ in _readers(subscriptions):
        for number in range(partitions.get(topic, 0)):
            while topic not in wanted[ring[turn]]:
                turn = (turn + 1) % len(ring)
            assignments[ring[turn]].append(TopicPartition(topic, number))
            turn = (turn + 1) % len(ring)
    return _frozen(assignments)


ASSIGNORS: dict[str, Assignor] = {"range": assign_range, "roundrobin": assign_round_robin}
"""The assignors by their names in JoinGroup; the group uses one that all members support."""


def _readers(subscriptions: Subscriptions) -> list[tuple[str, list[str]]]:
    """Return the topics in order, each with its subscribed members in order."""
    readers: dict[str, list[str]] = {}
    for member in sorted(subscriptions):
        for topic in set(subscriptions[member]):
            readers.setdefault(topic, []).append(member)
    return sorted(readers.items())


def _frozen(assignments: dict[str, list[TopicPartition]]) -> Assignments:
    return {member: tuple(partitions) for member, partitions in assignments.items()}
