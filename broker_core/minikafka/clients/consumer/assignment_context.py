"""What an assignor needs to know of a group (texts: ``AssignmentContext``).

It is read in one sweep: the consumers, what each has registered, the topics, and their partitions. A
consumer that goes meanwhile counts as gone. Whatever changes later is noticed by the watches, and leads to
another sweep.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from minikafka.base.errors import NoNode
from minikafka.clients.consumer.assignment import (
    ThreadIds,
    make_consumer_thread_ids_per_topic,
    topic_count_of,
    topics_in,
)
from minikafka.clients.consumer.consumer_thread_id import ConsumerThreadId, in_java_order
from minikafka.clients.zookeeper_metadata import readable_assignments
from minikafka.registry import paths
from minikafka.registry.store import Store


class AssignmentContext:
    """What the consumers of ``group`` read at one moment, as ``consumer_id`` has to know it.

    Raises NoNode where the consumer itself is not registered (any more), and CoordinationError, which names
    the znode, for a registration that cannot be read: without it nobody knows what is left for the others.
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
    """Topic that ``consumer_id`` reads to its partitions, in order; none of a topic that is not there, or
    cannot be read.
    """
    consumers: tuple[str, ...]
    """Ids of all consumers of the group, in order."""

    def __init__(self, group: str, consumer_id: str, exclude_internal_topics: bool, store: Store) -> None:
        mine = paths.consumer_id_path(group, consumer_id)
        try:
            ids = store.children(paths.consumer_ids_path(group))
        except NoNode:
            ids = []
        registered = store.read_all(paths.consumer_id_path(group, one) for one in ids)
        if mine not in registered:
            raise NoNode(f"{mine}: consumer {consumer_id!r} is not registered")
        topics = topics_in(store)
        threads = {
            path.rpartition("/")[2]: topic_count_of(
                data, path, exclude_internal_topics, lambda: topics
            ).get_consumer_thread_ids_per_topic()
            for path, (data, _) in registered.items()
        }
        self._fill(group, consumer_id, threads, readable_assignments(store, threads[consumer_id]))

    @classmethod
    def of(
        cls,
        group: str,
        consumer_id: str,
        consumers: Mapping[str, Mapping[str, int]],
        partitions: Mapping[str, Iterable[int]],
    ) -> AssignmentContext:
        """The same from plain values: consumer to topic to number of threads, and topic to partitions."""
        context = cls.__new__(cls)
        threads = {one: make_consumer_thread_ids_per_topic(one, count) for one, count in consumers.items()}
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
        self.consumers = tuple(sorted(threads, key=in_java_order))
        self.my_topic_thread_ids = threads[consumer_id]
        readers: dict[str, list[ConsumerThreadId]] = {}
        for one in self.consumers:
            for topic, ids in threads[one].items():
                readers.setdefault(topic, []).extend(ids)
        self.consumers_for_topic = {topic: tuple(sorted(readers[topic])) for topic in sorted(readers)}
        self.partitions_for_topic = {
            topic: tuple(sorted(partitions.get(topic, ()))) for topic in sorted(self.my_topic_thread_ids)
        }
