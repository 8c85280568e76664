"""Apache Kafka's log, protocol and coordination in Python.

The packages are layers ("floors"): each imports only from those below it (see ARCHITECTURE.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minikafka.base import __version__
from minikafka.base.exports import lazy_exports

if TYPE_CHECKING:
    from minikafka.base.ids import TopicPartition
    from minikafka.clients.admin.admin import Admin
    from minikafka.clients.common_client_configs import ClientSecurity
    from minikafka.clients.consumer.zookeeper_connector import Consumer
    from minikafka.clients.group.consumer import GroupConsumer
    from minikafka.clients.network.cluster import ClusterClient
    from minikafka.clients.produce.transactional_producer import TransactionalProducer
    from minikafka.clients.producer.producer import Producer
    from minikafka.clients.simple_consumer.simple_consumer import SimpleConsumer

__all__ = [
    "Admin",
    "ClientSecurity",
    "ClusterClient",
    "Consumer",
    "GroupConsumer",
    "Producer",
    "SimpleConsumer",
    "TopicPartition",
    "TransactionalProducer",
    "__version__",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "Admin": "minikafka.clients.admin.admin",
        "ClientSecurity": "minikafka.clients.common_client_configs",
        "ClusterClient": "minikafka.clients.network.cluster",
        "Consumer": "minikafka.clients.consumer.zookeeper_connector",
        "GroupConsumer": "minikafka.clients.group.consumer",
        "Producer": "minikafka.clients.producer.producer",
        "SimpleConsumer": "minikafka.clients.simple_consumer.simple_consumer",
        "TopicPartition": "minikafka.base.ids",
        "TransactionalProducer": "minikafka.clients.produce.transactional_producer",
    },
)
