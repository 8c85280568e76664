"""``kafka.producer.BrokerPartitionInfo``: the old producer's metadata of topics, and its refreshes."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError, NetworkError, RemoteWireError
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.metadata import TopicMetadata
from minikafka.clients.producer.producer_config import EACH, ProducerConfig

logger = logging.getLogger("minikafka.clients.producer")


class BrokerPartitionInfo:
    """The topics' partitions and leaders, refreshed every ``topic.metadata.refresh.interval.ms`` and after
    failures; and the sticky partition of messages without a key. Not thread-safe.
    """

    def __init__(
        self, config: ProducerConfig, cluster: ClusterClient, source: random.Random | None = None
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._random = source or random.Random()
        self._refreshed_ms = cluster.clock.monotonic_ms()
        self._seen: set[str] = set()
        self._sticky_partitions: dict[str, int] = {}
        self.unreachable: NetworkError | None = None
        """The error of the last look-up, if it reached no broker; else None."""

    def refresh_if_due(self, topics: Iterable[str]) -> None:
        """Refresh the metadata if it is due, before messages are sent to ``topics``."""
        self.unreachable = None
        self._seen.update(topics)
        interval_ms = self._config.topic_metadata_refresh_interval_ms
        now_ms = self._cluster.clock.monotonic_ms()
        if 0 <= interval_ms <= now_ms - self._refreshed_ms:
            self._refreshed_ms = now_ms
            self.refresh(self._seen)
            self._seen = set()

    def refresh(self, topics: Iterable[str], timeout_ms: int | None = None) -> None:
        """Refresh the metadata now; messages without a key then go to another partition. A failure is only
        logged, and kept in ``unreachable``. timeout_ms: default ``request.timeout.ms``.
        """
        self._sticky_partitions.clear()
        timeout_ms = self._config.request_timeout_ms if timeout_ms is None else timeout_ms
        self.unreachable = None
        try:
            self._cluster.metadata(topics, refresh=True, timeout_ms=timeout_ms)
        except MinikafkaError as error:
            self._record_unreachable(error)
            logger.warning("minikafka: metadata refresh of a producer failed: %s", error)

    def topic(self, name: str, *, wait: bool) -> TopicMetadata:
        """Return the topic's metadata, without a request if it is known. With ``wait`` an unknown topic is
        looked up, with retries, as it may be under creation. Raises the reason if there is no metadata:
        NetworkError if no broker answers, for all topics of one attempt.
        """
        known = self._cluster.known_topic(name)
        if known is not None:
            return known
        if self.unreachable is None and wait:
            try:
                return self._cluster.topic(name, self._config.request_timeout_ms)
            except MinikafkaError as error:
                self._record_unreachable(error)
                if self.unreachable is None:
                    raise
        if self.unreachable is not None:
            raise NetworkError(str(self.unreachable))
        raise self._cluster.why_unusable(name)

    def _record_unreachable(self, error: MinikafkaError) -> None:
        if isinstance(error, (NetworkError, RemoteWireError)):
            self.unreachable = NetworkError(f"no broker could be reached: {error}")

    def partitions_without_key(self, topic: TopicMetadata, count: int) -> NDArray[np.int32]:
        """Return partitions for ``count`` messages without a key, int32[count], chosen at random from those
        with a leader.

        Raises LEADER_NOT_AVAILABLE if there are none. A sticky partition is kept while its leader is
        unavailable; the refresh after a failure selects another one.
        """
        if self._config.null_key_partition == EACH:
            return np.array(self._random.choices(self._available(topic), k=count), dtype=np.int32)
        chosen = self._sticky_partitions.get(topic.name)
        if chosen is None:
            chosen = self._sticky_partitions[topic.name] = self._random.choice(self._available(topic))
        return np.full(count, chosen, dtype=np.int32)

    def _available(self, topic: TopicMetadata) -> tuple[int, ...]:
        if not topic.available:
            raise BrokerError(
                ErrorCode.LEADER_NOT_AVAILABLE, f"no partition of topic {topic.name!r} has a leader"
            )
        return topic.available
