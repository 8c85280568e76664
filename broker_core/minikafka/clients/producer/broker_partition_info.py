"""``kafka.producer.BrokerPartitionInfo``: what the old producer knows of topics, and when it asks again."""

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
    """Topics' partitions and leaders, refreshed at ``topic.metadata.refresh.interval.ms`` and after failures;
    and the partition where messages without a key go until then. Not thread-safe.
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
        """Why the last look for topics brought nothing: there was no broker to be asked."""

    def refresh_if_due(self, topics: Iterable[str]) -> None:
        """Something is to be sent to ``topics``: ask again where it is time to."""
        self.unreachable = None
        self._seen.update(topics)
        interval_ms = self._config.topic_metadata_refresh_interval_ms
        now_ms = self._cluster.clock.monotonic_ms()
        if 0 <= interval_ms <= now_ms - self._refreshed_ms:
            self._refreshed_ms = now_ms
            self.refresh(self._seen)
            self._seen = set()

    def refresh(self, topics: Iterable[str], timeout_ms: int | None = None) -> None:
        """Ask again now; messages without a key go to another partition. What fails is only logged, and kept
        in ``unreachable``. timeout_ms: ``request.timeout.ms`` where it is not given.
        """
        self._sticky_partitions.clear()
        timeout_ms = self._config.request_timeout_ms if timeout_ms is None else timeout_ms
        self.unreachable = None
        try:
            self._cluster.metadata(topics, refresh=True, timeout_ms=timeout_ms)
        except MinikafkaError as error:
            self._record_unreachable(error)
            logger.warning("minikafka: the topics of a producer could not be looked up: %s", error)

    def topic(self, name: str, *, wait: bool) -> TopicMetadata:
        """The topic, as far as is known without asking. One that nobody knows is asked for; it is waited for
        where that is ``wait``, as it may be in the making. Raises why there is none: NetworkError where no
        broker can tell, for all topics that are looked for in one attempt.
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
        """Partitions for ``count`` messages without a key, int32[count]: available ones by chance.

        LEADER_NOT_AVAILABLE where there is none. One that is kept stays while its leader is away: what fails
        there has another one chosen.
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
