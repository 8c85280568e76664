"""The high-level consumer's interface, ``ConsumerConnector`` (text 004), and the checks of its arguments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, TypeVar, overload

from minikafka.base.ids import TopicPartition
from minikafka.clients.consumer import arguments
from minikafka.clients.consumer.listeners import ConsumerRebalanceListener
from minikafka.clients.consumer.stats import ConsumerTopicStats, FetchRequestAndResponseStats
from minikafka.clients.consumer.streams import KafkaStream
from minikafka.clients.consumer.topic_filter import TopicFilter
from minikafka.clients.metrics.registry import Metrics
from minikafka.clients.serializer import AnyDecoder, Decoder, DefaultDecoder, as_decoder

K = TypeVar("K")
V = TypeVar("V")
Self = TypeVar("Self", bound="ConsumerConnector")

Decoders = tuple[Decoder[Any], Decoder[Any]]
"""The decoders of keys and of values."""


class ConsumerConnector(ABC):
    """A consumer of a group, whose streams share the topics. See ``ZookeeperConsumerConnector``.

    A context manager: it shuts down at the end of the block. If the block raised, the messages in process do
    not count as consumed, and are delivered again.
    """

    def __enter__(self: Self) -> Self:
        return self

    @abstractmethod
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    @property
    @abstractmethod
    def owned_partitions(self) -> tuple[TopicPartition, ...]:
        """The partitions that this consumer reads, in order; none before the first rebalance."""

    @property
    @abstractmethod
    def positions(self) -> Mapping[TopicPartition, int]:
        """The owned partitions, with the offset after their last processed message; -1 if it is unknown."""

    @property
    @abstractmethod
    def lag(self) -> Mapping[TopicPartition, int]:
        """The owned partitions, with the number of messages after their position, as far as the last response
        to a fetch tells; 0 before the first.
        """

    @property
    @abstractmethod
    def topic_stats(self) -> ConsumerTopicStats:
        """Counts and rates of messages and bytes, for each topic and for all."""

    @property
    @abstractmethod
    def fetch_stats(self) -> FetchRequestAndResponseStats:
        """Counts, times and sizes of fetches, for each broker and for all."""

    @abstractmethod
    def metrics(self) -> Metrics:
        """Return the same numbers under the names of Kafka's newer clients: group -> name -> value."""

    @overload
    def create_message_streams(
        self, topic_count_map: Mapping[str, int]
    ) -> dict[str, list[KafkaStream[bytes, bytes]]]: ...

    @overload
    def create_message_streams(
        self, topic_count_map: Mapping[str, int], key_decoder: AnyDecoder[K], value_decoder: None = None
    ) -> dict[str, list[KafkaStream[K, bytes]]]: ...

    @overload
    def create_message_streams(
        self, topic_count_map: Mapping[str, int], key_decoder: None = None, value_decoder: AnyDecoder[V] = ...
    ) -> dict[str, list[KafkaStream[bytes, V]]]: ...

    @overload
    def create_message_streams(
        self, topic_count_map: Mapping[str, int], key_decoder: AnyDecoder[K], value_decoder: AnyDecoder[V]
    ) -> dict[str, list[KafkaStream[K, V]]]: ...

    # Without this body, ``help`` would show the one of ``overload``.
    def create_message_streams(
        self,
        topic_count_map: Mapping[str, int],
        key_decoder: AnyDecoder[Any] | None = None,
        value_decoder: AnyDecoder[Any] | None = None,
    ) -> dict[str, list[KafkaStream[Any, Any]]]:
        """Return streams for topics. ``topic_count_map`` maps each topic to its number of streams; each
        stream gets a part of the topic's partitions.

        The decoders decode keys and values, which are bytes without them: they are objects such as
        ``StringDecoder()``, or functions such as ``json.loads``. May be called once for each connector, and
        not together with ``create_message_streams_by_filter``: MessageStreamsExist. Raises
        ConsumerRebalanceFailed if other consumers do not release the partitions that this consumer is to own.
        """
        arguments.check_topic_counts(topic_count_map)
        return self._create_message_streams(dict(topic_count_map), _decoders(key_decoder, value_decoder))

    @overload
    def create_message_streams_by_filter(
        self, topic_filter: TopicFilter, num_streams: int = 1
    ) -> list[KafkaStream[bytes, bytes]]: ...

    @overload
    def create_message_streams_by_filter(
        self,
        topic_filter: TopicFilter,
        num_streams: int = 1,
        key_decoder: AnyDecoder[K] = ...,
        value_decoder: None = None,
    ) -> list[KafkaStream[K, bytes]]: ...

    @overload
    def create_message_streams_by_filter(
        self,
        topic_filter: TopicFilter,
        num_streams: int = 1,
        key_decoder: None = None,
        value_decoder: AnyDecoder[V] = ...,
    ) -> list[KafkaStream[bytes, V]]: ...

    @overload
    def create_message_streams_by_filter(
        self,
        topic_filter: TopicFilter,
        num_streams: int = 1,
        key_decoder: AnyDecoder[K] = ...,
        value_decoder: AnyDecoder[V] = ...,
    ) -> list[KafkaStream[K, V]]: ...

    def create_message_streams_by_filter(
        self,
        topic_filter: TopicFilter,
        num_streams: int = 1,
        key_decoder: AnyDecoder[Any] | None = None,
        value_decoder: AnyDecoder[Any] | None = None,
    ) -> list[KafkaStream[Any, Any]]:
        """Return ``num_streams`` streams of all topics that ``topic_filter`` (a Whitelist or a Blacklist)
        allows, including topics created later. Each stream may return messages of all of them. Otherwise as
        ``create_message_streams``.
        """
        arguments.check_filter(topic_filter)
        return self._create_streams_by_filter(
            topic_filter, num_streams, _decoders(key_decoder, value_decoder)
        )

    @abstractmethod
    def _create_message_streams(
        self, topic_count_map: dict[str, int], decoders: Decoders
    ) -> dict[str, list[KafkaStream[Any, Any]]]: ...

    @abstractmethod
    def _create_streams_by_filter(
        self, topic_filter: TopicFilter, num_streams: int, decoders: Decoders
    ) -> list[KafkaStream[Any, Any]]: ...

    @abstractmethod
    def commit_offsets(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit ``offsets``, which maps partitions to the offset of the next message. None commits all
        delivered messages, except a last message that could not be decoded.
        """

    @abstractmethod
    def fetch_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the group's committed offsets of ``partitions``, without partitions that have none."""

    @abstractmethod
    def set_consumer_rebalance_listener(self, listener: ConsumerRebalanceListener) -> None:
        """Set the listener that each rebalance calls. Call this before streams are created."""

    @abstractmethod
    def shutdown(self) -> None:
        """Leave the group, after a commit of all delivered messages (auto commit only). A second call does
        nothing.
        """


def _decoders(key_decoder: AnyDecoder[Any] | None, value_decoder: AnyDecoder[Any] | None) -> Decoders:
    arguments.check_decoders(key_decoder, value_decoder)
    return as_decoder(key_decoder or DefaultDecoder()), as_decoder(value_decoder or DefaultDecoder())
