"""The topics of a controller's request, as ZooKeeper has them, beside the topics of the logs on this broker.

One name may be used by several topics (``topic_incarnations``). A broker asks ZooKeeper itself which of them
is there now: the controller may be a 0.10.1, and a request may be late. From version 5 on LeaderAndIsr has
the ids of the topics that the controller means; one for another topic than the current one is refused with
INCONSISTENT_TOPIC_ID and changes nothing. (Kafka compares the id with the log's instead, and refuses for ever
a log of an earlier topic; here such a log is set aside.)
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from minikafka.base.ids import TopicPartition, uuid_text
from minikafka.log.checkpoints.topic_incarnations import TopicIncarnation, TopicIncarnations
from minikafka.server.zookeeper.counters import observe_topics
from minikafka.server.zookeeper.zookeeper_client import ZooKeeperClient

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CurrentTopics:
    """The topics of one request."""

    logs: TopicIncarnations
    current: Mapping[str, TopicIncarnation]
    """Those that ZooKeeper has."""
    sent: Mapping[str, bytes]
    """The ids in the request."""

    @classmethod
    def read(
        cls,
        zk_client: ZooKeeperClient,
        logs: TopicIncarnations,
        topics: Iterable[str],
        sent: Mapping[str, bytes],
    ) -> CurrentTopics:
        """Read the topics from ZooKeeper, as they were after the request was sent, or later."""
        observe_topics(zk_client.store, logs)  # this waits until the server is up to date
        return cls(logs, zk_client.topics.incarnations(topics), sent)

    def inconsistent(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Return the partitions for whose current topics the request is not. Each is logged."""
        found = set()
        for key in partitions:
            sent, current = self.sent.get(key.topic), self.current.get(key.topic)
            # Without its znode it is unknown which topic came later: the log stays as it is.
            known = self.logs.of(key).topic_id if current is None else current.topic_id
            if sent is not None and known is not None and known != sent:
                found.add(key)
                _log.warning(
                    "ignored a leadership of %s of the topic with id %s: %s has id %s",
                    key,
                    uuid_text(sent),
                    "its log" if current is None else "the topic in ZooKeeper",
                    uuid_text(known),
                )
        return found

    def is_of_another(self, partition: TopicPartition) -> bool:
        """Return whether a log certainly belongs to another topic than the current one."""
        current = self.current.get(partition.topic)
        return current is not None and self.logs.is_of_another(partition, current)

    def lost(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions whose logs may belong to topics that ZooKeeper lost when it was restored."""
        return sorted(
            key
            for key in partitions
            if key.topic in self.current and self.logs.is_of_later(key, self.current[key.topic])
        )

    def created_before(self, zxid: int, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions whose topics were created before a change of ZooKeeper."""
        return [
            key
            for key in partitions
            if (topic := self.current.get(key.topic)) is not None and (topic.created or 0) < zxid
        ]

    def to_record(
        self, opened: Iterable[TopicPartition], served: Iterable[TopicPartition]
    ) -> dict[TopicPartition, TopicIncarnation]:
        """Return the topics to record of the logs that were ``opened``, and the ids that the topics of those
        ``served`` since before have been given.
        """
        topics = {}
        for key in opened:
            topics[key] = self.current.get(key.topic) or TopicIncarnation(None, self.sent.get(key.topic))
        for key in served:
            topic = self.current.get(key.topic)
            if topic is not None and topic.created == self.logs.of(key).created:
                topics.setdefault(key, topic)
        return topics
