"""Preferred replica elections: requests in ZooKeeper to move leadership back to the first replicas.

``kafka-preferred-replica-election`` of 0.10.1 (text 003, "Preferred replica election"): the request is the
znode ``/admin/preferred_replica_election``, which the controller removes when it has finished. One znode
holds some 25,000 partitions: more are requested in ``rounds``, one after another, as the elections of
partitions are independent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable

from minikafka.base.errors import ConfigError, CoordinationError, NodeExists
from minikafka.base.ids import TopicPartition
from minikafka.clients import zookeeper_metadata
from minikafka.clients.admin.partitions import ElectionRound
from minikafka.clients.admin.plan_files import OPTION
from minikafka.registry import paths
from minikafka.registry.controller import PreferredElection
from minikafka.registry.store import DATA_MAX_BYTES, Store

WHAT = "a preferred election"

_ENTRY = b'{"topic":%b,"partition":%d},'
_FRAME_BYTES = 100
"""The limit of bytes around the partitions."""


def rounds(partitions: Iterable[TopicPartition]) -> list[list[TopicPartition]]:
    """Return the sorted partitions in lists that each fit into a znode."""
    shares: list[list[TopicPartition]] = []
    room = 0
    for tp in sorted(partitions):
        size = len(_ENTRY % (json.dumps(tp.topic, ensure_ascii=False).encode(), tp.partition))
        if size > room:
            shares.append([])
            room = DATA_MAX_BYTES - _FRAME_BYTES
        shares[-1].append(tp)
        room -= size
    return shares


def elect(
    store: Store,
    partitions: Collection[TopicPartition],
    timeout_s: float,
    report: Callable[[ElectionRound], None],
) -> bool:
    """Elect the preferred replicas, in rounds, each reported. Return False if one has not ended in time."""
    shares = rounds(partitions)
    for number, share in enumerate(shares, 1):
        report(ElectionRound(number, len(shares), share, request(store, share)))
        if not await_end(store, timeout_s):
            return False
    return True


def request(store: Store, partitions: Collection[TopicPartition]) -> str:
    """Request the election from the controller. It starts at once; ``await_end`` waits for its end.

    Returns the JSON of the request.

    Raises ConfigError (too many for a znode, none) or CoordinationError (another election is in progress,
    there is no controller) before anything is changed.
    """
    if not partitions:
        raise ConfigError(OPTION, None, "expected at least one partition")
    try:
        data = PreferredElection(frozenset(partitions)).to_json()
    except CoordinationError as error:
        raise ConfigError(OPTION, len(partitions), str(error)) from None
    zookeeper_metadata.check_not_under_way(store, paths.PREFERRED_ELECTION, WHAT)
    zookeeper_metadata.check_controller(store)
    try:
        store.create(paths.PREFERRED_ELECTION, data, make_parents=True)
    except NodeExists:  # meanwhile
        zookeeper_metadata.check_not_under_way(store, paths.PREFERRED_ELECTION, WHAT)
        raise
    return data.decode()


def await_end(store: Store, timeout_s: float) -> bool:
    """Wait for the end of the election. Return False if it has not ended within ``timeout_s``."""
    return zookeeper_metadata.wait_until_removed(store, paths.PREFERRED_ELECTION, timeout_s)
