"""Partition reassignments that are requested in ZooKeeper, as by ``kafka-reassign-partitions`` of 0.10.1.

The request is the znode ``/admin/reassign_partitions`` (text 003, "Partition reassignment"), from which the
controller removes each partition when all its new replicas are in sync and the old ones are deleted. One
znode holds some 15,000 partitions of three replicas; more are rejected.
"""

from __future__ import annotations

from collections.abc import Mapping

from minikafka.base.errors import ConfigError, CoordinationError, NodeExists
from minikafka.base.ids import TopicPartition
from minikafka.clients import zookeeper_metadata
from minikafka.clients.admin.partitions import Replicas
from minikafka.clients.admin.plan_files import OPTION
from minikafka.registry import paths
from minikafka.registry.controller import REASSIGNMENTS, Reassignments
from minikafka.registry.store import Store
from minikafka.registry.znodes import Znodes


def under_way(store: Store) -> Mapping[TopicPartition, tuple[int, ...]]:
    """Return the partitions of the current request, with their wanted replicas."""
    found = Znodes(store).read(paths.REASSIGN_PARTITIONS, REASSIGNMENTS)
    return {} if found is None else found.partitions


def check(store: Store, wanted: Replicas) -> None:
    """Raise ConfigError (too many for a znode) or CoordinationError (another request, also an invalid one, is
    there, or there is no controller) if ``wanted`` cannot be requested.
    """
    _to_json(wanted)
    _check_no_request(store)
    zookeeper_metadata.check_controller(store)


def request(store: Store, wanted: Replicas) -> None:
    """Request the reassignments from the controller. They start at once."""
    try:
        store.create(paths.REASSIGN_PARTITIONS, _to_json(wanted), make_parents=True)
    except NodeExists:
        _check_no_request(store)
        raise


def _check_no_request(store: Store) -> None:
    zookeeper_metadata.check_not_under_way(store, paths.REASSIGN_PARTITIONS, "a reassignment")


def _to_json(wanted: Replicas) -> bytes:
    try:
        return Reassignments(wanted).to_json()
    except CoordinationError as error:
        raise ConfigError(OPTION, len(wanted), str(error)) from None
