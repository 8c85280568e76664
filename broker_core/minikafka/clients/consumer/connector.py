"""The high-level consumer's interface and its factory (texts: ``ConsumerConnector``, ``Consumer``)."""

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
    """A consumer of a group that shares topics out among its streams. See ``ZookeeperConsumerConnector``."""

    @overload
    def create_message_streams(
        self, topic_count_map: Mapping[str, int]
    ) -> dict[str, list[KafkaStream[bytes, bytes]]]: ...

    @overload
    def create_message_streams(
        self, topic_count_map: Mapping[str, int], key_decoder: Decoder[K], value_decoder: Decoder[V]
    ) -> dict[str, list[KafkaStream[K, V]]]: ...

    # Without a body of its own here, ``help`` would show that of ``overload``.
    def create_message_streams(
        self,
        topic_count_map: Mapping[str, int],
        key_decoder: Decoder[Any] | None = None,
        value_decoder: Decoder[Any] | None = None,
    ) -> dict[str, list[KafkaStream[Any, Any]]]:
        """Streams for topics: topic -> how many, of which each gets a part of the topic's partitions.

        Keys and values come as the decoders make them; without, as bytes. Once for each connector, and not
        beside ``create_message_streams_by_filter``: MessageStreamsExist. ConsumerRebalanceFailed where the
        partitions that are to be its own are not given up.
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
        """``num_streams`` streams of all topics that ``topic_filter`` (a Whitelist or a Blacklist) chooses,
        also of those that come later; each may have messages of all of them. Otherwise as
        ``create_message_streams``.
        """
        raise NotImplementedError

    def commit_offsets(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit ``offsets``, partition -> offset of the next message; None: all that was handed out, but for
        a last message that could not be decoded.
        """

    def set_consumer_rebalance_listener(self, listener: ConsumerRebalanceListener) -> None:
        """Have ``listener`` called at each rebalance. Before streams are created."""

    def shutdown(self) -> None:
        """Leave the group, and commit what was handed out (auto commit only). A second call does nothing."""


class Consumer:
    """The factory of the texts. Its second form, ``createJavaConsumerConnector``, makes the same for Java's
    collections; one Python form serves for both.
    """

    @staticmethod
    def create(config: ConsumerConfig) -> ConsumerConnector:
        """A connector, connected to ZooKeeper. CoordinationLost where that does not answer, NetworkError or
        BrokerError where the group's coordinator is needed and not found.
        """
        return ZookeeperConsumerConnector(config)
