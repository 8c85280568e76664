"""The current roles of brokers by ZooKeeper, to choose whom to kill, and the check that all is in sync."""

from __future__ import annotations

from minikafka.base.ids import OFFSETS_TOPIC, TopicPartition
from minikafka.clients import zookeeper_metadata
from minikafka.records.format.hashes import partition_of_group
from minikafka.registry.brokers import live_brokers
from minikafka.registry.controller import ControllerRegistration
from minikafka.registry.paths import CONTROLLER
from minikafka.registry.store import Store
from minikafka.registry.topics import read_states
from tests.support.load import Load


def controller(store: Store) -> int:
    """Return the id of the controller."""
    return ControllerRegistration.from_json(store.read(CONTROLLER)[0]).broker_id


def leader(store: Store, partition: TopicPartition) -> int:
    """Return the id of a partition's leader; -1 if it has none."""
    return read_states(store, [partition])[partition].leader


def coordinator(store: Store, group: str) -> int:
    """Return the id of a group's coordinator."""
    partitions = len(zookeeper_metadata.assigned(store, [OFFSETS_TOPIC]))
    return leader(store, TopicPartition(OFFSETS_TOPIC, partition_of_group(group, partitions)))


def follower(store: Store, partition: TopicPartition) -> int:
    """Return the id of an in-sync replica that is neither leader nor controller."""
    state, head = read_states(store, [partition])[partition], controller(store)
    return next(broker for broker in state.isr if broker not in (state.leader, head))


def all_in_sync(store: Store, replicas: int) -> bool:
    """Return True if every partition has a live leader and ``replicas`` in-sync replicas."""
    live, found = live_brokers(store), read_states(store, zookeeper_metadata.assigned(store))
    return all(state.leader in live and len(state.isr) == replicas for state in found.values())


def run_until_in_sync(load: Load, store: Store, replicas: int) -> None:
    """Go on with ``load`` until all is in sync."""
    load.run_until(lambda: all_in_sync(store, replicas), f"{replicas} replicas in sync")
