"""One message as a stream gives it out."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from minikafka.base.values import fast_value
from minikafka.clients.serializer import Decoder
from minikafka.records.headers import read_headers
from minikafka.records.record import Headers, TimestampType

K = TypeVar("K")
V = TypeVar("V")


@fast_value
class MessageAndMetadata(Generic[K, V]):
    """A message, and where it stood (``kafka.message.MessageAndMetadata``).

    timestamp_ms     since the epoch; -1 for none (magic 0)
    timestamp_type   what it means
    raw_key          bytes; None for null
    raw_message      bytes; None for null
    raw_headers      as they stand in the record; empty for none
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
    def key(self) -> K | None:
        """The key, decoded now; None for null. Raises what the decoder raises."""
        return None if self.raw_key is None else self.key_decoder.from_bytes(self.raw_key)

    @property
    def message(self) -> V | None:
        """The value, decoded now; None for null. Raises what the decoder raises."""
        return None if self.raw_message is None else self.value_decoder.from_bytes(self.raw_message)

    @property
    def headers(self) -> Headers:
        """Names and values (magic 2), in their order."""
        return read_headers(self.raw_headers)


AnyMessage = MessageAndMetadata[Any, Any]
