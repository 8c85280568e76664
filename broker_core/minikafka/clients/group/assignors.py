"""How the leader of a group shares partitions among its members: range and roundrobin, as Kafka's consumer.

Pure. The same members, topics and partitions give the same shares in every client, in any language: members
are sorted by id, topics by name (``RangeAssignor`` and ``RoundRobinAssignor`` of 0.10.1; later releases keep
both for members that name neither a rack nor an instance).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from minikafka.base.ids import TopicPartition

Subscriptions = Mapping[str, Iterable[str]]
"""Member id to the topics that it wants."""
Assignments = dict[str, tuple[TopicPartition, ...]]
"""Member id to its partitions; a row for every member."""
Assignor = Callable[[Subscriptions, Mapping[str, int]], Assignments]


def assign_range(subscriptions: Subscriptions, partitions: Mapping[str, int]) -> Assignments:
    """Each topic for itself: its members get neighbouring partitions, the first members one more each where
    it does not come out even.

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
    """All partitions of all topics one after another to the next member that wants the topic.

    With equal subscriptions no member has more than one partition more than another.
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
"""By the names that members send; they agree on one that all of them have."""


def _readers(subscriptions: Subscriptions) -> list[tuple[str, list[str]]]:
    """Topics in order, each with the members that want it, in order."""
    readers: dict[str, list[str]] = {}
    for member in sorted(subscriptions):
        for topic in set(subscriptions[member]):
            readers.setdefault(topic, []).append(member)
    return sorted(readers.items())


def _frozen(assignments: dict[str, list[TopicPartition]]) -> Assignments:
    return {member: tuple(partitions) for member, partitions in assignments.items()}
