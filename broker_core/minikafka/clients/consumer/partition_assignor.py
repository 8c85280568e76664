"""Which consumer thread of a group owns which partition (texts: ``PartitionAssignor`` and its two kinds).

Pure: the same context gives the same owners to every consumer of the group, of ours and of Kafka 0.10.1, so
that each finds its own share without asking the others.
"""

from __future__ import annotations

import logging
from itertools import cycle
from typing import Protocol

from minikafka.base.errors import ConfigError
from minikafka.base.ids import TopicPartition
from minikafka.clients.consumer.assignment_context import AssignmentContext
from minikafka.clients.consumer.consumer_thread_id import ConsumerThreadId
from minikafka.records.format.hashes import string_hash

_log = logging.getLogger(__name__)

STRATEGY = "partition.assignment.strategy"

Owners = dict[str, dict[TopicPartition, ConsumerThreadId]]
"""Consumer id to its partitions, each with the thread that owns it; an entry for every consumer of the
group.
"""


class PartitionAssignor(Protocol):
    """Shares the partitions of the topics that ``ctx.consumer_id`` reads out among all that read them."""

    def assign(self, ctx: AssignmentContext) -> Owners:
        """The owners. Pure but for the log."""


class RangeAssignor:
    """Each topic for itself: neighbouring partitions for each thread, one more for each of the first threads
    where it does not come out even.

    Partitions stand in order of their numbers, threads in order of their names. With 10 partitions c1-0, c2-0
    and c2-1 get four, three and three.
    """

    def assign(self, ctx: AssignmentContext) -> Owners:
        """The owners; the consumer's own threads that are left without any are named in the log."""
        _warn_of_missing(ctx)
        owners: Owners = {consumer: {} for consumer in ctx.consumers}
        for topic, partitions in ctx.partitions_for_topic.items():
            threads = ctx.consumers_for_topic[topic]
            each, more = divmod(len(partitions), len(threads))
            start = 0
            for position, thread in enumerate(threads):
                end = start + each + (position < more)
                for number in partitions[start:end]:
                    owners[thread.consumer][TopicPartition(topic, number)] = thread
                start = end
            _warn_of_idle(ctx, topic, owners)
        return owners


class RoundRobinAssignor:
    """All partitions of all topics, one after the other, to the next thread of the group.

    They stand in the order of Java's hash of ``[TOPIC,PARTITION]``, signed, so that not all of a topic come
    to the same thread; equal hashes stand in order of topic and partition (0.10.1 leaves those to its hash
    table).
    """

    def assign(self, ctx: AssignmentContext) -> Owners:
        """The owners. Raises ConfigError, with two topics and their threads, unless the same threads read
        every topic of the group.
        """
        _warn_of_missing(ctx)
        owners: Owners = {consumer: {} for consumer in ctx.consumers}
        if not ctx.consumers_for_topic:
            return owners
        first, threads = next(iter(ctx.consumers_for_topic.items()))
        for topic, others in ctx.consumers_for_topic.items():
            if others != threads:
                raise ConfigError(
                    STRATEGY,
                    "roundrobin",
                    f"all consumers of group {ctx.group!r} must read the same topics, and each all of them "
                    f"with the same number of streams; topic {first!r} is read by {_listed(threads)}, "
                    f"topic {topic!r} by {_listed(others)}",
                )
        placed = (
            TopicPartition(topic, number)
            for topic, partitions in ctx.partitions_for_topic.items()
            for number in partitions
        )
        for tp, thread in zip(sorted(placed, key=_hash_order), cycle(threads), strict=False):
            owners[thread.consumer][tp] = thread
        return owners


_ASSIGNORS: dict[str, type[RangeAssignor] | type[RoundRobinAssignor]] = {
    "range": RangeAssignor,
    "roundrobin": RoundRobinAssignor,
}
STRATEGIES = tuple(_ASSIGNORS)
"""What ``partition.assignment.strategy`` may be."""


def create(name: str) -> PartitionAssignor:
    """The assignor of a ``partition.assignment.strategy``. Raises ConfigError for a name that is none."""
    try:
        return _ASSIGNORS[name]()
    except KeyError:
        raise ConfigError(STRATEGY, name, f"one of {', '.join(STRATEGIES)}") from None


def _hash_order(tp: TopicPartition) -> tuple[int, TopicPartition]:
    return string_hash(f"[{tp.topic},{tp.partition}]"), tp


def _warn_of_idle(ctx: AssignmentContext, topic: str, owners: Owners) -> None:
    """Say which threads of the consumer itself are left without a partition of a topic."""
    busy = {thread for tp, thread in owners[ctx.consumer_id].items() if tp.topic == topic}
    if not ctx.partitions_for_topic[topic]:
        return
    idle = tuple(thread for thread in ctx.my_topic_thread_ids[topic] if thread not in busy)
    if idle:
        _log.warning("no partition of topic %r is left for %s", topic, _listed(idle))


def _warn_of_missing(ctx: AssignmentContext) -> None:
    """Say which topics the consumer waits for."""
    for topic, partitions in ctx.partitions_for_topic.items():
        if not partitions:
            _log.warning("there is no topic %r yet", topic)


def _listed(threads: tuple[ConsumerThreadId, ...]) -> str:
    return "{" + ", ".join(map(str, threads)) + "}"
