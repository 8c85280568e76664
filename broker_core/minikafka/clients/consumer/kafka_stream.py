"""One stream of messages that an application reads."""

from __future__ import annotations

from typing import Generic

from minikafka.clients.consumer.chunk_queue import ChunkQueue
from minikafka.clients.consumer.message_and_metadata import K, V
from minikafka.clients.consumer.streams import ALWAYS_VALID, ConsumerIterator, Validity
from minikafka.clients.serializer import Decoder


class KafkaStream(Generic[K, V]):
    """A stream (``KafkaStream`` of text 004): ``for message in stream``. One thread reads it.

    There is one iterator: a loop that was left is gone on with by the next one.
    """

    def __init__(
        self,
        queue: ChunkQueue,
        consumer_timeout_ms: int,
        key_decoder: Decoder[K],
        value_decoder: Decoder[V],
        client_id: str,
        lease: Validity = ALWAYS_VALID,
    ) -> None:
        self.client_id = client_id
        self._iterator = ConsumerIterator(
            queue, consumer_timeout_ms, key_decoder, value_decoder, client_id, lease
        )

    def iterator(self) -> ConsumerIterator[K, V]:
        """The stream's one iterator."""
        return self._iterator

    def __iter__(self) -> ConsumerIterator[K, V]:
        return self._iterator

    def clear(self) -> None:
        """Forget what was fetched and not handed out: for a rebalance (``clear``)."""
        self._iterator.clear_current_chunk()

    def __repr__(self) -> str:
        return f"<stream of {self.client_id}>"
