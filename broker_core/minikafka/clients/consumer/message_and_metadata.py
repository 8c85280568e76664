"""A message, as a stream returns it."""

from __future__ import annotations

from typing import Generic, TypeVar

from minikafka.base.errors import UndecodableMessage
from minikafka.base.ids import TopicPartition
from minikafka.base.values import fast_value
from minikafka.clients.serializer import Decoder, decoder_name
from minikafka.records.format.headers import read_headers
from minikafka.records.format.record import Headers, TimestampType

K = TypeVar("K")
V = TypeVar("V")


class _Decoded:
    """A flag that a decoder has failed. Unset before, because most messages never need it."""

    __slots__ = ("_failed",)
    _failed: bool


@fast_value
class MessageAndMetadata(_Decoded, Generic[K, V]):
    """A message and its position (``kafka.message.MessageAndMetadata``).

    timestamp_ms     since the epoch; -1 for none (magic 0)
    timestamp_type   create time or log append time
    raw_key          bytes; None for null
    raw_message      bytes; None for null
    raw_headers      encoded as in the record; empty for none
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: TimestampType
    raw_key: bytes | None
    raw_message: bytes | None
    raw_headers: bytes
    key_decoder: Decoder[K]
    value_decoder: Decoder[V]

    @property
    def topic_partition(self) -> TopicPartition:
        """The topic and the partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def key(self) -> K | None:
        """The key, decoded on access; None for null. Raises UndecodableMessage if the decoder raises."""
        if self.raw_key is None:
            return None
        try:
            return self.key_decoder.from_bytes(self.raw_key)
        except Exception as error:
            raise self._undecodable("key", self.raw_key, error) from error

    @property
    def message(self) -> V | None:
        """The value, decoded on access; None for null. Raises UndecodableMessage if the decoder raises."""
        if self.raw_message is None:
            return None
        try:
            return self.value_decoder.from_bytes(self.raw_message)
        except Exception as error:
            raise self._undecodable("value", self.raw_message, error) from error

    @property
    def undecodable(self) -> bool:
        """True if a decoder has failed. The message then counts as consumed only when the next one is
        requested.
        """
        return getattr(self, "_failed", False)

    @property
    def headers(self) -> Headers:
        """Names and values (magic 2), in their order."""
        return read_headers(self.raw_headers)

    def _undecodable(self, part: str, data: bytes, error: Exception) -> UndecodableMessage:
        self._failed = True
        decoder = decoder_name(self.key_decoder if part == "key" else self.value_decoder)
        problem = f"{decoder} failed on the {part} of {len(data)} bytes: {type(error).__name__}: {error}"
        return UndecodableMessage(self.topic, self.partition, self.offset, problem)
