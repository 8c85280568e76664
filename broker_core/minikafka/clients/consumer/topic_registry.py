"""The partitions that one consumer reads, and the streams and queues through which their messages reach the
application (``topicRegistry`` and ``topicThreadIdAndQueues`` of text 004).
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from minikafka.base.errors import MinikafkaError
from minikafka.base.ids import TopicPartition
from minikafka.clients.consumer.assignment import ConsumerThreadId, ThreadIds
from minikafka.clients.consumer.chunks import ChunkQueue, PartitionPosition, PartitionTopicInfo, error_chunk
from minikafka.clients.consumer.config import ConsumerConfig
from minikafka.clients.consumer.streams import ConsumerIterator, KafkaStream, LeaseState
from minikafka.clients.serializer import Decoder


class TopicRegistry:
    """The streams of one consumer and the partitions that they read."""

    def __init__(self, config: ConsumerConfig, lease: LeaseState) -> None:
        self._config = config
        self._lease = lease
        self.lock = threading.RLock()
        """Held during a commit, and while the partitions change: so a commit covers only owned ones."""
        self.partitions: Mapping[TopicPartition, PartitionTopicInfo] = {}
        """The partitions that are read; during a rebalance, those that are kept."""
        self.streams: list[KafkaStream[Any, Any]] = []
        self.topic_thread_id_and_queues: dict[tuple[str, ConsumerThreadId], ChunkQueue] = {}
        self._queues: dict[str | None, list[ChunkQueue]] = {}
        """Queues by topic, in the order of threads; the topics of a filter share those under None."""

    def create_streams(
        self, topic: str | None, number: int, key_decoder: Decoder[Any], value_decoder: Decoder[Any]
    ) -> list[KafkaStream[Any, Any]]:
        """Return new streams of ``topic``, or (None) of all topics that have no streams of their own."""
        queues = [ChunkQueue(self._config.queued_max_message_chunks) for _ in range(number)]
        streams = [self._new_stream(queue, key_decoder, value_decoder) for queue in queues]
        self._queues[topic] = queues
        self.streams += streams
        return streams

    def _new_stream(
        self, queue: ChunkQueue, key_decoder: Decoder[Any], value_decoder: Decoder[Any]
    ) -> KafkaStream[Any, Any]:
        config = self._config
        iterator = ConsumerIterator(
            queue, config.consumer_timeout_ms, key_decoder, value_decoder, config.client_id, self._lease
        )
        return KafkaStream(iterator)

    def assign_queues(self, threads: ThreadIds) -> None:
        """Give each thread the queue of its stream, for the topics that the consumer reads now."""
        self.topic_thread_id_and_queues = {
            (topic, thread): self._queues[topic if topic in self._queues else None][thread.thread_id]
            for topic, ids in threads.items()
            for thread in ids
        }

    def lag(self) -> dict[TopicPartition, int]:
        """Return the number of messages that each partition has after its position."""
        return {tp: info.lag for tp, info in self.partitions.items()}

    def replace(self, infos: Iterable[PartitionTopicInfo]) -> None:
        """Read these partitions from now on, and no others."""
        with self.lock:
            self.partitions = {info.topic_partition: info for info in infos}

    def positions(self) -> dict[TopicPartition, int]:
        """Return the offset to commit of each partition; -1 if it is unknown yet."""
        return {tp: info.consumed_offset for tp, info in self.partitions.items()}

    def mark_delivered_consumed(self) -> None:
        """Count all delivered messages as consumed."""
        for stream in self.streams:
            stream.iterator().mark_delivered_consumed()

    def clear_fetcher_queues(self) -> None:
        """Clear the queues, and the chunks that iterators are reading."""
        for stream in self.streams:
            stream.clear()

    def processed(self, kept: Collection[PartitionPosition]) -> bool:
        """Return True if the application is processing no message, or one of a partition in ``kept``."""
        return {stream.iterator().processing_partition for stream in self.streams} <= {None, *kept}

    def send_shutdown_to_all_queues(self, error: MinikafkaError | None, *, mark_consumed: bool) -> None:
        """End all streams, or make them raise ``error``. No message is delivered after this returns. With
        ``mark_consumed`` all delivered messages count as consumed.
        """
        self.clear_fetcher_queues()
        if mark_consumed:
            self.mark_delivered_consumed()
        for queues in self._queues.values():
            for queue in queues:
                queue.close(None if error is None else error_chunk(error, queue))
