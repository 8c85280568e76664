"""A ZooKeeper in memory that holds a cluster: live brokers, a controller, topics and who leads them."""

from __future__ import annotations

from collections.abc import Mapping

from minikafka.base.endpoints import LiveBroker
from minikafka.registry import paths
from minikafka.registry.brokers import BrokerRegistration
from minikafka.registry.controller import ControllerRegistration
from minikafka.registry.memory import MemoryStore, MemoryZooKeeper
from minikafka.registry.topics import PartitionState, TopicAssignment

Topics = Mapping[str, Mapping[int, tuple[int, ...]]]


def cluster(topics: Topics, brokers: int = 3, leader: int | None = None) -> MemoryStore:
    """All replicas in sync; led by their first replica, or by ``leader``."""
    store = MemoryZooKeeper().connect()
    for path in paths.PERSISTENT_PATHS:
        store.create(path, make_parents=True)
    store.create(paths.CONTROLLER, ControllerRegistration(0, 1).to_json())
    for number in range(brokers):
        registration = BrokerRegistration(LiveBroker.plaintext(number, "h", 9000 + number), 1)
        store.create(paths.broker_path(number), registration.to_json())
    for topic, partitions in topics.items():
        store.create(paths.topic_path(topic), TopicAssignment(partitions).to_json())
        for partition, replicas in partitions.items():
            set_state(store, topic, partition, replicas[0] if leader is None else leader, replicas)
    return store


def set_state(store: MemoryStore, topic: str, partition: int, leader: int, isr: tuple[int, ...]) -> None:
    """Another leader, or other replicas in sync."""
    path, data = paths.partition_state_path(topic, partition), PartitionState(leader, 1, isr, 1).to_json()
    if store.exists(path) is None:
        store.create(path, data, make_parents=True)
    else:
        store.write(path, data)


def assign(store: MemoryStore, topic: str, partitions: Mapping[int, tuple[int, ...]]) -> None:
    """Other replicas, as the controller writes them."""
    store.write(paths.topic_path(topic), TopicAssignment(partitions).to_json())
