"""Which broker of a cluster is what at the moment, by ZooKeeper: whom to kill, and when all is well again."""

from __future__ import annotations

from minikafka.base.ids import OFFSETS_TOPIC, TopicPartition
from minikafka.clients import zookeeper_metadata
from minikafka.records.format.hashes import partition_of_group
from minikafka.registry.brokers import live_brokers
from minikafka.registry.paths import CONTROLLER, ControllerRegistration
from minikafka.registry.store import Store


def controller(store: Store) -> int:
    """The id of the controller."""
    return ControllerRegistration.from_json(store.read(CONTROLLER)[0]).broker_id


def leader(store: Store, partition: TopicPartition) -> int:
    """The id of a partition's leader; -1 where it has none."""
    return zookeeper_metadata.states(store, [partition])[partition].leader


def coordinator(store: Store, group: str) -> int:
    """The id of a group's coordinator."""
    partitions = len(zookeeper_metadata.assigned(store, [OFFSETS_TOPIC]))
    return leader(store, TopicPartition(OFFSETS_TOPIC, partition_of_group(group, partitions)))


def follower(store: Store, partition: TopicPartition) -> int:
    """The id of a replica in sync that is neither leader nor controller."""
    state, head = zookeeper_metadata.states(store, [partition])[partition], controller(store)
    return next(one for one in state.isr if one not in (state.leader, head))


def all_in_sync(store: Store, replicas: int) -> bool:
    """Whether every partition has a leader that lives, and so many replicas in sync."""
    live, found = live_brokers(store), zookeeper_metadata.states(store, zookeeper_metadata.assigned(store))
    return all(one.leader in live and len(one.isr) == replicas for one in found.values())
