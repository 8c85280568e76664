"""The high-level consumer's interface, ``ConsumerConnector``, and its factory, ``Consumer`` (text 004)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar, overload

from minikafka.base.ids import TopicPartition
from minikafka.clients.consumer.config import ConsumerConfig
from minikafka.clients.consumer.listeners import ConsumerRebalanceListener
from minikafka.clients.consumer.streams import KafkaStream
from minikafka.clients.consumer.topic_filter import TopicFilter
from minikafka.clients.consumer.zookeeper_connector import ZookeeperConsumerConnector
from minikafka.clients.serializer import Decoder

K = TypeVar("K")
V = TypeVar("V")


class ConsumerConnector(Protocol):
    """A consumer of a group, whose streams share the topics. See ``ZookeeperConsumerConnector``."""

    @overload
    def create_message_streams(
        self, topic_count_map: Mapping[str, int]
    ) -> dict[str, list[KafkaStream[bytes, bytes]]]: ...

    @overload
    def create_message_streams(
        self, topic_count_map: Mapping[str, int], key_decoder: Decoder[K], value_decoder: Decoder[V]
    ) -> dict[str, list[KafkaStream[K, V]]]: ...

    # Without this body, ``help`` would show the one of ``overload``.
    def create_message_streams(
        self,
        topic_count_map: Mapping[str, int],
        key_decoder: Decoder[Any] | None = None,
        value_decoder: Decoder[Any] | None = None,
    ) -> dict[str, list[KafkaStream[Any, Any]]]:
        """Return streams for topics. ``topic_count_map`` maps each topic to its number of streams; each
        stream gets a part of the topic's partitions.

        The decoders decode keys and values, which are bytes without them. May be called once for each
        connector, and not together with ``create_message_streams_by_filter``: MessageStreamsExist. Raises
        ConsumerRebalanceFailed if other consumers do not release the partitions that this consumer is to own.
        """
        raise NotImplementedError

    @overload
    def create_message_streams_by_filter(
        self, topic_filter: TopicFilter, num_streams: int = 1
    ) -> list[KafkaStream[bytes, bytes]]: ...

    @overload
    def create_message_streams_by_filter(
        self,
        topic_filter: TopicFilter,
        num_streams: int,
        key_decoder: Decoder[K],
        value_decoder: Decoder[V],
    ) -> list[KafkaStream[K, V]]: ...

    def create_message_streams_by_filter(
        self,
        topic_filter: TopicFilter,
        num_streams: int = 1,
        key_decoder: Decoder[Any] | None = None,
        value_decoder: Decoder[Any] | None = None,
    ) -> list[KafkaStream[Any, Any]]:
        """Return ``num_streams`` streams of all topics that ``topic_filter`` (a Whitelist or a Blacklist)
        allows, including topics created later. Each stream may return messages of all of them. Otherwise as
        ``create_message_streams``.
        """
        raise NotImplementedError

    def commit_offsets(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit ``offsets``, which maps partitions to the offset of the next message. None commits all
        delivered messages, except a last message that could not be decoded.
        """

    def set_consumer_rebalance_listener(self, listener: ConsumerRebalanceListener) -> None:
        """Set the listener that each rebalance calls. Call this before streams are created."""

    def shutdown(self) -> None:
        """Leave the group, after a commit of all delivered messages (auto commit only). A second call does
        nothing.
        """


class Consumer:
    """The factory of connectors. The texts' second method, ``createJavaConsumerConnector``, returns Java's
    collections; in Python ``create`` serves for both.
    """

    @staticmethod
    def create(config: ConsumerConfig) -> ConsumerConnector:
        """Return a connector that is connected to ZooKeeper. Raises CoordinationLost if ZooKeeper does not
        answer, and NetworkError or BrokerError if the group's coordinator is needed and not found.
        """
        return ZookeeperConsumerConnector(config)
