"""What a consumer does when a topic gets more partitions (texts: ``ZKTopicPartitionChangeListener``)."""

from __future__ import annotations

import logging
from collections.abc import Callable

logger = logging.getLogger("minikafka.clients.consumer")


class ZkTopicPartitionChangeListener:
    """Of one consumer, for all topics that it reads. ``rebalance_event_triggered`` has a rebalance made.

    Called on the store's own thread.
    """

    def __init__(self, rebalance_event_triggered: Callable[[], None]) -> None:
        self._triggered = rebalance_event_triggered
        self._seen: set[str] = set()

    def handle_data(self, data_path: str, data: bytes | None, stat: object = None) -> None:
        """What a persistent watch reports: the znode as it is, or that it is not there."""
        if data is not None:
            self._seen.add(data_path)
            self.handle_data_change(data_path, data)
        elif data_path in self._seen:
            self._seen.discard(data_path)
            self.handle_data_deleted(data_path)

    def handle_data_change(self, data_path: str, data: bytes) -> None:
        """The topic is there, or has another assignment than before."""
        logger.debug("%s is %r now", data_path, data)
        self._triggered()

    def handle_data_deleted(self, data_path: str) -> None:
        """The topic was deleted: its partitions are given up.

        Kafka 0.10.1 only warns, and keeps their owners.
        """
        logger.warning("topic %s was deleted while it is read", data_path.rpartition("/")[2])
        self._triggered()
