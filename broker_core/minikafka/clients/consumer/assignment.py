"""The assignment of partitions to consumer threads: the group's consumers and their subscriptions, the range
and round-robin assignors, and the changes that one consumer has to make.

A consumer's subscription is in its registration, which the other consumers of its group read:

    {"version":1,"subscription":{"orders":2},"pattern":"static","timestamp":"1795241013651"}
    {"version":1,"subscription":{"ord.*|pay.*":1},"pattern":"white_list","timestamp":"1795241013937"}

``subscription`` maps topics to numbers of threads, or one pattern to the number of threads for every topic
that matches. A pattern that is neither ``white_list`` nor ``black_list``, and an empty subscription, are read
as ``static``, as 0.10.1 does.

Assignors are pure: the same context yields the same owners in every consumer of the group, of this project
and of Kafka 0.10.1, so each consumer computes its share without the others. Each consumer changes only its
own share: it releases the partitions that are no longer assigned to it, and claims its new partitions once
they are free.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import total_ordering
from itertools import cycle
from typing import ClassVar, Protocol

from minikafka.base.errors import ConfigError, CoordinationError, NoNode
from minikafka.base.ids import TopicPartition
from minikafka.clients.consumer.topic_filter import Blacklist, TopicFilter, Whitelist
from minikafka.records.format.hashes import string_hash
from minikafka.registry import paths
from minikafka.registry.consumer_session import PartitionOwner
from minikafka.registry.consumers import CONSUMER, ConsumerRegistration
from minikafka.registry.store import Store
from minikafka.registry.topics import read_assignments
from minikafka.registry.znodes import children


@total_ordering
@dataclass(frozen=True, slots=True)
class ConsumerThreadId:
    """A thread of a consumer, as the owners' znodes name it (``ConsumerThreadId`` of text 004); its text is
    ``CONSUMER-N``.

    Ordered by that text, as in 0.10.1: thread 10 comes before thread 2.
    """

    consumer: str
    """The consumer's id in its group's registry."""
    thread_id: int
    """Counts from 0."""

    def __str__(self) -> str:
        return make_thread_id(self.consumer, self.thread_id)

    def __lt__(self, other: ConsumerThreadId) -> bool:
        return java_order_key(str(self)) < java_order_key(str(other))


def make_thread_id(consumer_id: str, thread_id: int) -> str:
    """Return the name of a consumer's thread."""
    return f"{consumer_id}-{thread_id}"


def java_order_key(text: str) -> bytes:
    """Return a sort key with the order of Java's ``String.compareTo``: by UTF-16 code units.

    All consumers of a group must agree on the order, in whatever language they are written.
    """
    return text.encode("utf-16-be", "surrogatepass")


ThreadIds = dict[str, tuple[ConsumerThreadId, ...]]
"""Topic to the threads of one consumer that read it, in order of their numbers."""


@dataclass(frozen=True, slots=True)
class StaticTopicCount:
    """Topics by name, each with its own number of threads.

    Raises ConfigError for a topic without a thread.
    """

    pattern: ClassVar[str] = "static"
    consumer_id: str
    topic_count_map: Mapping[str, int]

    def __post_init__(self) -> None:
        for topic, streams in self.topic_count_map.items():
            _check_streams(topic, streams)

    def get_consumer_thread_ids_per_topic(self) -> ThreadIds:
        """Return the threads for each topic, whether the topic exists or not."""
        return make_consumer_thread_ids_per_topic(self.consumer_id, self.topic_count_map)

    def get_topic_count_map(self) -> dict[str, int]:
        """Return the topics with their numbers of threads."""
        return dict(self.topic_count_map)


@dataclass(frozen=True, slots=True)
class WildcardTopicCount:
    """Topics that a filter allows, all with the same number of threads. Raises ConfigError if that is less
    than one.
    """

    consumer_id: str
    topic_filter: TopicFilter
    num_streams: int
    exclude_internal_topics: bool
    topics: Callable[[], Iterable[str]] = field(compare=False, repr=False)
    """Returns the names of all present topics, such as ``list_topics(store)``."""

    def __post_init__(self) -> None:
        _check_streams(self.topic_filter.regex, self.num_streams)

    @property
    def pattern(self) -> str:
        """``white_list`` or ``black_list``."""
        return self.topic_filter.pattern

    def get_consumer_thread_ids_per_topic(self) -> ThreadIds:
        """Return the threads for each present topic that the filter allows."""
        chosen = (
            topic
            for topic in self.topics()
            if self.topic_filter.is_topic_allowed(topic, self.exclude_internal_topics)
        )
        return make_consumer_thread_ids_per_topic(self.consumer_id, dict.fromkeys(chosen, self.num_streams))

    def get_topic_count_map(self) -> dict[str, int]:
        """Return the pattern with the number of threads."""
        return {self.topic_filter.regex: self.num_streams}


TopicCount = StaticTopicCount | WildcardTopicCount
"""The subscription of one consumer (``TopicCount`` of text 004)."""


def make_consumer_thread_ids_per_topic(consumer_id: str, topic_count_map: Mapping[str, int]) -> ThreadIds:
    """Return the threads of the consumer for each topic, as many as ``topic_count_map`` says, numbered from
    0.
    """
    return {
        topic: tuple(ConsumerThreadId(consumer_id, number) for number in range(streams))
        for topic, streams in topic_count_map.items()
    }


def construct_topic_count(
    registration: ConsumerRegistration,
    path: str,
    exclude_internal_topics: bool,
    topics: Callable[[], Iterable[str]],
) -> TopicCount:
    """Return the subscription of the consumer that is registered at ``path``, whose last part is its id. (The
    texts' two other forms are the constructors of the two classes.)

    Raises CoordinationError, which names the znode, for a pattern that would not mean the same here as in
    Java.
    """
    consumer_id = path.rpartition("/")[2]
    kind = next((kind for kind in (Whitelist, Blacklist) if kind.pattern == registration.pattern), None)
    try:
        if kind is None or not registration.subscription:
            return StaticTopicCount(consumer_id, registration.subscription)
        regex, streams = next(iter(registration.subscription.items()))
        return WildcardTopicCount(consumer_id, kind(regex), streams, exclude_internal_topics, topics)
    except ConfigError as error:
        raise CoordinationError(f"{path}: {error}") from None


def make_registration(topic_count: TopicCount, now_ms: int) -> ConsumerRegistration:
    """Return the registration of a consumer with the subscription ``topic_count``."""
    return ConsumerRegistration(topic_count.get_topic_count_map(), now_ms, topic_count.pattern)


def list_topics(store: Store) -> list[str]:
    """Return the names of all topics, sorted; none if no topic was ever created."""
    return children(store, paths.BROKER_TOPICS)


def _check_streams(topic: str, streams: int) -> None:
    if type(streams) is not int or streams < 1:
        raise ConfigError(f"number of streams for {topic!r}", streams, "must be a whole number of 1 or more")


class AssignmentContext:
    """The subscriptions of a group's consumers at one moment, and the partitions that ``consumer_id`` may own
    (``AssignmentContext`` of text 004).

    All znodes are read in one pass: the consumers, their registrations, the topics, and their partitions. A
    consumer that leaves during the pass is left out. The watches report later changes, which lead to another
    pass.

    Raises NoNode if the consumer itself is not registered, and CoordinationError, which names the znode, for
    an invalid registration, without which the assignment of the others is unknown.
    """

    __slots__ = (
        "consumer_id",
        "consumers",
        "consumers_for_topic",
        "group",
        "my_topic_thread_ids",
        "partitions_for_topic",
    )

    group: str
    consumer_id: str
    my_topic_thread_ids: ThreadIds
    """Topic to the threads of ``consumer_id`` that read it."""
    consumers_for_topic: dict[str, tuple[ConsumerThreadId, ...]]
    """Topic to the threads of all consumers that read it, in their order."""
    partitions_for_topic: dict[str, tuple[int, ...]]
    """Topic that ``consumer_id`` reads to its partitions, in order; empty for a topic that does not exist or
    cannot be read.
    """
    consumers: tuple[str, ...]
    """Ids of all consumers of the group, in order."""

    def __init__(self, group: str, consumer_id: str, exclude_internal_topics: bool, store: Store) -> None:
        mine = paths.consumer_id_path(group, consumer_id)
        ids = children(store, paths.consumer_ids_path(group))
        registered = store.read_all(paths.consumer_id_path(group, member) for member in ids)
        if mine not in registered:
            raise NoNode(f"{mine}: consumer {consumer_id!r} is not registered")
        topics = list_topics(store)
        threads = {
            path.rpartition("/")[2]: construct_topic_count(
                CONSUMER.decode(data, path), path, exclude_internal_topics, lambda: topics
            ).get_consumer_thread_ids_per_topic()
            for path, (data, _) in registered.items()
        }
        self._fill(group, consumer_id, threads, read_assignments(store, threads[consumer_id]))

    @property
    def my_partitions(self) -> set[TopicPartition]:
        """The partitions of all topics that ``consumer_id`` reads."""
        topics = self.partitions_for_topic.items()
        return {TopicPartition(topic, number) for topic, numbers in topics for number in numbers}

    @classmethod
    def of(
        cls,
        group: str,
        consumer_id: str,
        consumers: Mapping[str, Mapping[str, int]],
        partitions: Mapping[str, Iterable[int]],
    ) -> AssignmentContext:
        """Return a context from plain values: consumer to topic to number of threads, and topic to
        partitions.
        """
        context = cls.__new__(cls)
        threads = {
            consumer: make_consumer_thread_ids_per_topic(consumer, count)
            for consumer, count in consumers.items()
        }
        context._fill(group, consumer_id, threads, partitions)
        return context

    def _fill(
        self,
        group: str,
        consumer_id: str,
        threads: Mapping[str, ThreadIds],
        partitions: Mapping[str, Iterable[int]],
    ) -> None:
        self.group = group
        self.consumer_id = consumer_id
        self.consumers = tuple(sorted(threads, key=java_order_key))
        self.my_topic_thread_ids = threads[consumer_id]
        readers: dict[str, list[ConsumerThreadId]] = {}
        for consumer in self.consumers:
            for topic, ids in threads[consumer].items():
                readers.setdefault(topic, []).extend(ids)
        self.consumers_for_topic = {topic: tuple(sorted(readers[topic])) for topic in sorted(readers)}
        self.partitions_for_topic = {
            topic: tuple(sorted(partitions.get(topic, ()))) for topic in sorted(self.my_topic_thread_ids)
        }


logger = logging.getLogger(__name__)

STRATEGY = "partition.assignment.strategy"

Owners = dict[str, dict[TopicPartition, ConsumerThreadId]]
"""Consumer id to its partitions, each with the thread that owns it; has an entry for every consumer of the
group.
"""


class PartitionAssignor(Protocol):
    """Assigns the partitions of the topics that ``ctx.consumer_id`` reads to all threads that read them
    (``PartitionAssignor`` of text 004).
    """

    def assign(self, ctx: AssignmentContext) -> Owners:
        """Return the owners. Pure, except for the log."""


class RangeAssignor:
    """Assigns a range of each topic's partitions to each thread; if the division leaves a remainder, each of
    the first threads gets one more.

    Partitions are in order of their numbers, threads in order of their names. With 10 partitions c1-0, c2-0
    and c2-1 get four, three and three.
    """

    def assign(self, ctx: AssignmentContext) -> Owners:
        """Return the owners; threads of the consumer itself that get no partition are logged."""
        _warn_missing_topics(ctx)
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
            _warn_idle_threads(ctx, topic, owners)
        return owners


class RoundRobinAssignor:
    """Assigns the partitions of all topics to the threads of the group in turn.

    Partitions are in the order of Java's signed hash of ``[TOPIC,PARTITION]``, so that a topic's partitions
    spread over threads. Partitions with equal hashes are in order of topic and partition (in 0.10.1, in the
    order of its hash table).
    """

    def assign(self, ctx: AssignmentContext) -> Owners:
        """Return the owners. Raises ConfigError, with two topics and their threads, unless the same threads
        read every topic of the group.
        """
        _warn_missing_topics(ctx)
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
                    f"with the same number of streams; topic {first!r} is read by "
                    f"{_format_threads(threads)}, topic {topic!r} by {_format_threads(others)}",
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
"""The values of ``partition.assignment.strategy``."""


def create_assignor(name: str) -> PartitionAssignor:
    """Return the assignor of a ``partition.assignment.strategy``. Raises ConfigError for an unknown name."""
    try:
        return _ASSIGNORS[name]()
    except KeyError:
        raise ConfigError(STRATEGY, name, f"must be one of {', '.join(STRATEGIES)}") from None


def _hash_order(tp: TopicPartition) -> tuple[int, TopicPartition]:
    return string_hash(f"[{tp.topic},{tp.partition}]"), tp


def _warn_idle_threads(ctx: AssignmentContext, topic: str, owners: Owners) -> None:
    """Log the threads of the consumer itself that get no partition of a topic."""
    busy = {thread for tp, thread in owners[ctx.consumer_id].items() if tp.topic == topic}
    if not ctx.partitions_for_topic[topic]:
        return
    idle = tuple(thread for thread in ctx.my_topic_thread_ids[topic] if thread not in busy)
    if idle:
        logger.warning("no partition of topic %r is assigned to %s", topic, _format_threads(idle))


def _warn_missing_topics(ctx: AssignmentContext) -> None:
    """Log the topics that do not exist yet."""
    for topic, partitions in ctx.partitions_for_topic.items():
        if not partitions:
            logger.warning("topic %r does not exist yet", topic)


def _format_threads(threads: tuple[ConsumerThreadId, ...]) -> str:
    return "{" + ", ".join(map(str, threads)) + "}"


@dataclass(frozen=True, slots=True)
class RebalancePlan:
    """The changes of ownership that one consumer has to make, with partitions in order."""

    assignment: Mapping[str, Mapping[TopicPartition, ConsumerThreadId]]
    """The assignment of the whole group: consumer -> partition -> thread."""
    my_assignment: Mapping[TopicPartition, ConsumerThreadId]
    """The assignment of this consumer."""
    release: tuple[TopicPartition, ...]
    """Partitions that this session owns and has to release, perhaps to claim them for another thread."""
    claim: tuple[TopicPartition, ...]
    """Partitions to own that this session, or the assigned thread, does not own yet."""

    @property
    def is_unchanged(self) -> bool:
        """True if the consumer already owns exactly its assignment."""
        return not self.release and not self.claim


def rebalance_plan(
    context: AssignmentContext,
    assignor: PartitionAssignor,
    owners: Mapping[TopicPartition, PartitionOwner],
    session_id: int,
) -> RebalancePlan:
    """Return the plan of the consumer of ``context``, whose session is ``session_id``.

    ``owners`` are the present owners in ZooKeeper: an owner with this session is the consumer itself, even if
    the consumer's own state differs. Raises the errors of the assignor.
    """
    assignment = assignor.assign(context)
    share = dict(sorted(assignment.get(context.consumer_id, {}).items()))
    mine = {tp: owner.thread for tp, owner in owners.items() if owner.session_id == session_id}
    own = tuple(tp for tp, thread in share.items() if mine.get(tp) != str(thread))
    return RebalancePlan(
        assignment=assignment,
        my_assignment=share,
        release=tuple(tp for tp in sorted(mine) if str(share.get(tp)) != mine[tp]),
        claim=own,
    )
