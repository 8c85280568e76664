"""The metadata cache: the brokers, topics and leaders that metadata responses report.

``MetadataCache`` is an immutable value. The core replaces it as a whole, so that any thread may read it
without a lock. ``EncodedMetadata`` keeps encoded responses about all topics: encoding 20,000 partitions takes
0.1 s, and clients of a large cluster request all of them again and again. So it is done once for each version
and listener, until the cluster changes, and all connections share the memory of the response.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from minikafka.base.endpoints import LiveBroker, addresses_on
from minikafka.base.ids import BrokerAddress, TopicPartition, unify_collision_chars
from minikafka.controller.election import LEADER_DURING_DELETE
from minikafka.partition.replica import LeaderAndIsr


@dataclass(frozen=True, slots=True)
class MetadataCache:
    """Brokers, topics and leaders, as the controller last reported them."""

    cluster_id: str
    controller_id: int = -1
    """-1 for none."""
    brokers: Mapping[int, LiveBroker] = field(default_factory=dict)
    topics: Mapping[str, Mapping[int, LeaderAndIsr]] = field(default_factory=dict)
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)
    """The ids of the topics that have one (KIP-516)."""
    topics_by_id: Mapping[bytes, str] = field(default_factory=dict)
    """Topic id -> its topic."""
    ids_changed: int = 0
    """The number of changes of topics' ids so far."""
    names: Mapping[str, str] = field(default_factory=dict)
    """``unify_collision_chars`` of each topic -> its name: a new topic with the same key collides with it."""
    unreadable: frozenset[str] = frozenset()
    """Topics whose znodes cannot be parsed: they can only be deleted."""
    _addresses: dict[str, dict[int, BrokerAddress]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """By listener, as requests have asked for them: a changed cache begins without any."""

    def addresses(self, listener: str) -> Mapping[int, BrokerAddress]:
        """Return the addresses on a listener of the brokers that have it, by broker id."""
        found = self._addresses.get(listener)
        if found is None:
            self._addresses[listener] = found = addresses_on(listener, self.brokers)
        return found

    def leadership(self, topic_partition: TopicPartition) -> LeaderAndIsr | None:
        """Return the leadership of a partition; None if the cluster has no such partition."""
        return self.topics.get(topic_partition.topic, {}).get(topic_partition.partition)

    def alike(self, name: str) -> str | None:
        """Return the topic with which a new topic of this name would collide; None for none."""
        return self.names.get(unify_collision_chars(name))

    def updated(
        self,
        brokers: Mapping[int, LiveBroker],
        leaderships: Mapping[TopicPartition, LeaderAndIsr],
        topic_ids: Mapping[str, bytes],
    ) -> MetadataCache:
        """Return the cache after an UpdateMetadata; a leader of -2 removes the partition.

        A topic with another id than the known one is a later topic of the name: no partition stays.
        """
        by_topic: dict[str, dict[int, LeaderAndIsr]] = {}
        for (topic, partition), leadership in leaderships.items():
            by_topic.setdefault(topic, {})[partition] = leadership
        topics, names, ids = dict(self.topics), dict(self.names), dict(self.topic_ids)
        for topic, changed in by_topic.items():
            known, topic_id = topics.pop(topic, {}), topic_ids.get(topic)
            if topic_id is not None and ids.get(topic, topic_id) != topic_id:
                known = {}
            merged = {**known, **changed}
            kept = {p: merged[p] for p in sorted(merged) if merged[p].leader != LEADER_DURING_DELETE}
            if kept:
                topics[topic] = kept
                names.setdefault(unify_collision_chars(topic), topic)
                if topic_id is not None:
                    ids[topic] = topic_id
                continue
            ids.pop(topic, None)
            if names.get(unify_collision_chars(topic)) == topic:
                del names[unify_collision_chars(topic)]
        found = replace(self, brokers=dict(brokers), topics=topics, names=names)
        if ids == self.topic_ids:
            return found
        by_id = {value: key for key, value in ids.items()}
        return replace(found, topic_ids=ids, topics_by_id=by_id, ids_changed=self.ids_changed + 1)


class EncodedMetadata:
    """Response bodies by version and listener, for one state of the cluster. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._metadata_cache: MetadataCache | None = None
        self._served_version = -1
        self._bodies: dict[tuple[int, str], bytes] = {}

    def get(
        self, metadata_cache: MetadataCache, served_version: int, version: int, listener: str
    ) -> bytes | None:
        """Return the body that was encoded from the same state; None if there is none."""
        with self._lock:
            if self._metadata_cache is not metadata_cache or self._served_version != served_version:
                return None
            return self._bodies.get((version, listener))

    def put(
        self, metadata_cache: MetadataCache, served_version: int, version: int, listener: str, body: bytes
    ) -> None:
        """Keep the body that was encoded from ``metadata_cache`` and the partitions of ``served_version``."""
        with self._lock:
            if self._metadata_cache is not metadata_cache or self._served_version != served_version:
                self._metadata_cache, self._served_version, self._bodies = metadata_cache, served_version, {}
            self._bodies[version, listener] = body
