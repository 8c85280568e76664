"""The high-level consumer: a group that shares partitions out through ZooKeeper, as Kafka's consumers of
0.8 to 0.10 do. One class to a file; the names are those of the reference texts in Python's spelling.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minikafka.base.exports import lazy_exports

if TYPE_CHECKING:
    from minikafka.clients.consumer.config import ConsumerConfig
    from minikafka.clients.consumer.connector import Consumer, ConsumerConnector
    from minikafka.clients.consumer.consumer_rebalance_listener import ConsumerRebalanceListener
    from minikafka.clients.consumer.kafka_stream import KafkaStream
    from minikafka.clients.consumer.message_and_metadata import MessageAndMetadata
    from minikafka.clients.consumer.topic_filter import Blacklist, Whitelist

__all__ = [
    "Blacklist",
    "Consumer",
    "ConsumerConfig",
    "ConsumerConnector",
    "ConsumerRebalanceListener",
    "KafkaStream",
    "MessageAndMetadata",
    "Whitelist",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "Blacklist": "minikafka.clients.consumer.topic_filter",
        "Consumer": "minikafka.clients.consumer.connector",
        "ConsumerConfig": "minikafka.clients.consumer.config",
        "ConsumerConnector": "minikafka.clients.consumer.connector",
        "ConsumerRebalanceListener": "minikafka.clients.consumer.consumer_rebalance_listener",
        "KafkaStream": "minikafka.clients.consumer.kafka_stream",
        "MessageAndMetadata": "minikafka.clients.consumer.message_and_metadata",
        "Whitelist": "minikafka.clients.consumer.topic_filter",
    },
)
