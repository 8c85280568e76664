"""The metadata cache: the brokers, topics and leaders that metadata responses report.

The cache is an immutable value. The core replaces it as a whole, so that any thread may read it without a
lock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from minikafka.base.ids import BrokerAddress, TopicPartition, unify_collision_chars
from minikafka.controller.election import LEADER_DURING_DELETE
from minikafka.partition.replica import LeaderAndIsr


@dataclass(frozen=True, slots=True)
class MetadataCache:
    """Brokers, topics and leaders, as the controller last reported them."""

    cluster_id: str
    controller_id: int = -1
    brokers: Mapping[int, BrokerAddress] = field(default_factory=dict)
    topics: Mapping[str, Mapping[int, LeaderAndIsr]] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    """``unify_collision_chars`` of each topic -> its name: a new topic with the same key collides with it."""
    unreadable: frozenset[str] = frozenset()
    """Topics whose znodes cannot be parsed: they can only be deleted."""

    def leadership(self, topic_partition: TopicPartition) -> LeaderAndIsr | None:
        """Return the leadership of a partition; None if the cluster has no such partition."""
        return self.topics.get(topic_partition.topic, {}).get(topic_partition.partition)

    def alike(self, name: str) -> str | None:
        """Return the topic with which a new topic of this name would collide; None for none."""
        return self.names.get(unify_collision_chars(name))

    def with_controller(self, controller_id: int) -> MetadataCache:
        """Return a copy with another controller; -1 for none."""
        return replace(self, controller_id=controller_id)

    def with_unreadable(self, topics: frozenset[str]) -> MetadataCache:
        """Return a copy with other unreadable topics."""
        return replace(self, unreadable=topics)

    def updated(
        self, brokers: Mapping[int, BrokerAddress], leaderships: Mapping[TopicPartition, LeaderAndIsr]
    ) -> MetadataCache:
        """Return the cache after an UpdateMetadata; a leader of -2 removes the partition."""
        by_topic: dict[str, dict[int, LeaderAndIsr]] = {}
        for (topic, partition), leadership in leaderships.items():
            by_topic.setdefault(topic, {})[partition] = leadership
        topics, names = dict(self.topics), dict(self.names)
        for topic, changed in by_topic.items():
            merged = {**topics.pop(topic, {}), **changed}
            kept = {p: merged[p] for p in sorted(merged) if merged[p].leader != LEADER_DURING_DELETE}
            if kept:
                topics[topic] = kept
                names.setdefault(unify_collision_chars(topic), topic)
            elif names.get(unify_collision_chars(topic)) == topic:
                del names[unify_collision_chars(topic)]
        return replace(self, brokers=dict(brokers), topics=topics, names=names)
