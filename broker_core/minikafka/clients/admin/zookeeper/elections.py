"""Preferred replica elections: requests in ZooKeeper to move leadership back to the first replicas.

``kafka-preferred-replica-election`` of 0.10.1 (text 003, "Preferred replica election"): the request is the
znode ``/admin/preferred_replica_election``, which the controller removes when it has finished. One znode
holds some 25,000 partitions: more are requested in ``rounds``, one after another, as the elections of
partitions are independent.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from minikafka.base.errors import ConfigError, CoordinationError, NodeExists
from minikafka.base.ids import TopicPartition
from minikafka.clients import zookeeper_metadata
from minikafka.registry import paths
from minikafka.registry.controller import PreferredElection
from minikafka.registry.store import DATA_MAX_BYTES, Store
from minikafka.registry.topics import read_states

OPTION = "partitions"
WHAT = "a preferred election"

_ENTRY = b'{"topic":%b,"partition":%d},'
_FRAME_BYTES = 100
"""The limit of bytes around the partitions."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One partition with its leader and its preferred leader."""

    topic_partition: TopicPartition
    leader: int | None
    preferred: int
    in_sync: tuple[int, ...]

    @property
    def done(self) -> bool:
        """True if the preferred replica is the leader."""
        return self.leader == self.preferred

    @property
    def possible(self) -> bool:
        """True if the preferred replica is in sync, so that it can become the leader."""
        return self.preferred in self.in_sync


def read_file(data: bytes, option: str = OPTION, path: str | None = None) -> frozenset[TopicPartition]:
    """Return the partitions in a JSON file, in the form that the text and the release's tool use:
    ``{"partitions": [{"topic": "t", "partition": 0}]}``, also under ``partition``. Raises ConfigError under
    the name ``option``, which shows the file's ``path`` (None: its start).
    """
    try:
        return PreferredElection.from_json(data, "the file").partitions
    except CoordinationError as error:
        value = path or zookeeper_metadata.start_of(data)
        raise ConfigError(option, value, f"nothing was changed: {error}") from None


def candidates(store: Store, partitions: Iterable[TopicPartition] | None = None) -> list[Candidate]:
    """Return leaders and preferred leaders of partitions. None: all, except of topics marked for deletion.

    Raises ConfigError for a partition that does not exist.
    """
    wanted = None if partitions is None else set(partitions)
    known = zookeeper_metadata.assigned(store, None if wanted is None else {tp.topic for tp in wanted})
    if wanted is None:
        deleted = zookeeper_metadata.topics_to_delete(store)
        wanted = {tp for tp in known if tp.topic not in deleted}
    else:
        zookeeper_metadata.check_known(store, OPTION, wanted, known)
    found = read_states(store, wanted)
    return [
        Candidate(
            tp,
            found[tp].leader if tp in found and found[tp].leader >= 0 else None,
            known[tp][0],
            found[tp].isr if tp in found else (),
        )
        for tp in sorted(wanted)
        if known[tp]
    ]


def assigned_partitions(store: Store, topics: Collection[str]) -> frozenset[TopicPartition]:
    """Return all partitions of topics. Raises ConfigError for a topic that does not exist."""
    return frozenset(zookeeper_metadata.replicas_of(store, topics))


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


def request(store: Store, partitions: Collection[TopicPartition]) -> str:
    """Request the election from the controller. It starts at once; ``await_end`` waits for its end.

    Returns the JSON of the request.

    Raises ConfigError (unknown partitions, too many for a znode, none) or CoordinationError (another election
    is in progress, there is no controller) before anything is changed.
    """
    if not partitions:
        raise ConfigError(OPTION, None, "expected at least one partition")
    topics = {tp.topic for tp in partitions}
    zookeeper_metadata.check_known(store, OPTION, partitions, zookeeper_metadata.assigned(store, topics))
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
