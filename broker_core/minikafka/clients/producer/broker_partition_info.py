"""``kafka.producer.BrokerPartitionInfo``: the metadata of topics, its refreshes, and partitions for messages
without a key.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError, NetworkError, RemoteWireError
from minikafka.base.ids import TopicPartition
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.metadata import NO_LEADER, TopicMetadata
from minikafka.clients.network.retry import unreachable_error
from minikafka.clients.producer.producer_config import EACH, ProducerConfig

logger = logging.getLogger("minikafka.clients.producer")


class BrokerPartitionInfo:
    """The partitions of topics, refreshed every ``topic.metadata.refresh.interval.ms``, and the sticky one
    of messages without a key. Not thread-safe. The engine refreshes after failures.
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

    def refresh_if_due(self, topic: str) -> None:
        """Refresh the metadata if it is due, before messages are sent to ``topic``; messages without a key
        then go to another partition.
        """
        self._seen.add(topic)
        interval_ms = self._config.topic_metadata_refresh_interval_ms
        now_ms = self._cluster.clock.monotonic_ms()
        if 0 <= interval_ms <= now_ms - self._refreshed_ms:
            self._refreshed_ms = now_ms
            self._sticky_partitions.clear()
            self.refresh(self._seen, self._config.request_timeout_ms)
            self._seen = set()

    def refresh(self, topics: Iterable[str], timeout_ms: int) -> NetworkError | None:
        """Refresh the metadata now. A failure is logged; return it if no broker was reached."""
        try:
            self._cluster.metadata(topics, refresh=True, timeout_ms=timeout_ms)
        except MinikafkaError as error:
            logger.warning("minikafka: metadata refresh of a producer failed: %s", error)
            return _unreachable(error)
        return None

    def topic(self, name: str) -> TopicMetadata:
        """Return the topic's metadata, without a request if it is known. An unknown topic is looked up, with
        retries, as it may be under creation, for the time that the attempts for a batch may take. Raises the
        reason if there is no metadata: NetworkError if no broker answers.
        """
        known = self._cluster.known_topic(name)
        if known is not None:
            return known
        attempts = self._config.message_send_max_retries + 1
        try:
            return self._cluster.topic(name, attempts * self._config.request_timeout_ms)
        except MinikafkaError as error:
            raise _unreachable(error) or error from None

    def partitions_without_key(self, topic: TopicMetadata, count: int) -> NDArray[np.int32]:
        """Return partitions for ``count`` messages without a key, int32[count], as ``null.key.partition``
        says, chosen at random from those with a leader; from all of them if none has one.
        """
        if self._config.null_key_partition == EACH:
            return np.array(self._random.choices(_candidates(topic), k=count), dtype=np.int32)
        return np.full(count, self.partition_without_key(topic), dtype=np.int32)

    def partition_without_key(self, topic: TopicMetadata) -> int:
        """Return the sticky partition of messages without a key; one without a leader is replaced."""
        chosen = self._sticky_partitions.get(topic.name)
        kept = None if chosen is None else topic.partition(chosen)
        if kept is None or kept.leader_id == NO_LEADER:
            chosen = self._sticky_partitions[topic.name] = self._random.choice(_candidates(topic))
        assert chosen is not None
        return chosen

    def other_partition(self, tp: TopicPartition) -> int:
        """Return a partition with a leader for messages without a key whose attempt at ``tp`` has failed:
        another one, if there are several. Raises LEADER_NOT_AVAILABLE if there is none.
        """
        topic = self._cluster.known_topic(tp.topic)
        available = () if topic is None else topic.available
        if topic is None or not available:
            raise BrokerError(
                ErrorCode.LEADER_NOT_AVAILABLE, f"no partition of topic {tp.topic!r} has a leader"
            )
        others = tuple(number for number in available if number != tp.partition) or available
        if self._config.null_key_partition == EACH:
            return self._random.choice(others)
        if self._sticky_partitions.get(tp.topic) == tp.partition:
            self._sticky_partitions[tp.topic] = self._random.choice(others)
        return self.partition_without_key(topic)


def _candidates(topic: TopicMetadata) -> tuple[int, ...]:
    return topic.available or tuple(p.topic_partition.partition for p in topic.partitions)


def _unreachable(error: MinikafkaError) -> NetworkError | None:
    """Return the error if it says that no broker was reached."""
    if isinstance(error, (NetworkError, RemoteWireError)):
        return unreachable_error(error)
    return None
