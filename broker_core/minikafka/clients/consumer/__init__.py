"""The high-level consumer: a group that shares partitions through ZooKeeper, as Kafka's consumers of 0.8 to
0.10 do. Classes have the names of the reference texts in Python's spelling.

    connector             ConsumerConnector, the interface
    zookeeper_connector   ZookeeperConsumerConnector: streams, commits, shutdown; and Consumer, its factory
    config, arguments     settings, and checks of the arguments of public methods
    topic_filter          Whitelist and Blacklist
    rebalancer            the rebalance: read, close, release, claim, start
    assignment            subscriptions, and the assignors
    registration          the lease of the consumer's session (``registry.consumer_session``)
    topic_registry        the partitions that are read, with their streams and queues
    listeners             listeners for rebalances and for the list of topics
    offsets               committed offsets in ZooKeeper and at the coordinator
    fetcher_manager, fetcher_thread, leader_finder   the threads that fetch
    chunks                fetched chunks on their way to a stream
    streams               KafkaStream and its iterator
    message_and_metadata  one message
    runtime               steps, scheduler, threads
    stats                 meters

Imports ``clients.network``, ``clients.fetch``, ``clients.group``, ``registry`` and ``records``, none of which
imports this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minikafka.base.exports import lazy_exports

if TYPE_CHECKING:
    from minikafka.clients.consumer.config import ConsumerConfig
    from minikafka.clients.consumer.connector import ConsumerConnector
    from minikafka.clients.consumer.listeners import ConsumerRebalanceListener
    from minikafka.clients.consumer.message_and_metadata import MessageAndMetadata
    from minikafka.clients.consumer.streams import KafkaStream
    from minikafka.clients.consumer.topic_filter import Blacklist, Whitelist
    from minikafka.clients.consumer.zookeeper_connector import Consumer

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
        "Consumer": "minikafka.clients.consumer.zookeeper_connector",
        "ConsumerConfig": "minikafka.clients.consumer.config",
        "ConsumerConnector": "minikafka.clients.consumer.connector",
        "ConsumerRebalanceListener": "minikafka.clients.consumer.listeners",
        "KafkaStream": "minikafka.clients.consumer.streams",
        "MessageAndMetadata": "minikafka.clients.consumer.message_and_metadata",
        "Whitelist": "minikafka.clients.consumer.topic_filter",
    },
)
