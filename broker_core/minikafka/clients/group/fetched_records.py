"""A record as a consumer gives it out."""

from __future__ import annotations

from typing import NamedTuple

from minikafka.base.ids import TopicPartition
from minikafka.records.format.record import Headers


class ConsumerRecord(NamedTuple):
    """One record, and where it lies (``ConsumerRecord`` of Kafka's consumers).

    ``timestamp`` is in ms since the epoch, -1 for none. A tuple, as these are made by the million.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()

    @property
    def topic_partition(self) -> TopicPartition:
        """Where it lies."""
        return TopicPartition(self.topic, self.partition)
