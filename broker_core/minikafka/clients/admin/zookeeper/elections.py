"""Preferred elections: partitions are led by the first of their replicas again, asked for in ZooKeeper.

``kafka-preferred-replica-election`` of 0.10.1 (text 003, "Preferred replica election"): the request is the
znode ``/admin/preferred_replica_election``, which the controller takes away when it has seen to it. One znode
holds some 25,000 partitions: more are asked for in ``rounds``, each after the one before has ended, as every
partition is elected for itself.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from minikafka.base.errors import ConfigError, CoordinationError, NodeExists
from minikafka.base.ids import TopicPartition
from minikafka.clients import zookeeper_metadata
from minikafka.registry import paths
from minikafka.registry.admin_paths import PreferredElection
from minikafka.registry.store import DATA_MAX_BYTES, Store

OPTION = "partitions"
WHAT = "a preferred election"

_ENTRY = b'{"topic":%b,"partition":%d},'
_FRAME_BYTES = 100
"""For what stands around the partitions."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One partition: who leads it, and who should."""

    topic_partition: TopicPartition
    leader: int | None
    preferred: int
    in_sync: tuple[int, ...]

    @property
    def done(self) -> bool:
        """Whether the preferred replica leads."""
        return self.leader == self.preferred

    @property
    def possible(self) -> bool:
        """Whether the preferred replica is in sync, so that it could lead."""
        return self.preferred in self.in_sync


def read_file(data: bytes, option: str = OPTION, path: str | None = None) -> frozenset[TopicPartition]:
    """The partitions of a JSON file, in the form of the text and of the release: ``{"partitions": [{"topic":
    "t", "partition": 0}]}``, also under ``partition``. Raises ConfigError under the name ``option``, which
    shows the file's ``path`` (None: its beginning).
    """
    try:
        return PreferredElection.from_json(data, "the file").partitions
    except CoordinationError as error:
        value = path or zookeeper_metadata.start_of(data)
        raise ConfigError(option, value, f"nothing was changed: {error}") from None


def candidates(store: Store, partitions: Iterable[TopicPartition] | None = None) -> list[Candidate]:
    """Who leads these partitions and who should. None: all, but for topics marked for deletion.

    ConfigError for one that there is not.
    """
    wanted = None if partitions is None else set(partitions)
    known = zookeeper_metadata.assigned(store, None if wanted is None else {one.topic for one in wanted})
    if wanted is None:
        going = zookeeper_metadata.topics_to_delete(store)
        wanted = {one for one in known if one.topic not in going}
    else:
        zookeeper_metadata.check_known(store, OPTION, wanted, known)
    found = zookeeper_metadata.states(store, wanted)
    return [
        Candidate(
            one,
            found[one].leader if one in found and found[one].leader >= 0 else None,
            known[one][0],
            found[one].isr if one in found else (),
        )
        for one in sorted(wanted)
        if known[one]
    ]


def assigned_partitions(store: Store, topics: Collection[str]) -> frozenset[TopicPartition]:
    """All partitions of topics. ConfigError for a topic that there is not."""
    known = zookeeper_metadata.assigned(store, topics)
    missing = set(topics) - {one.topic for one in known}
    zookeeper_metadata.check_known(store, "topic", [TopicPartition(name, 0) for name in missing], known)
    return frozenset(known)


def rounds(partitions: Iterable[TopicPartition]) -> list[list[TopicPartition]]:
    """The partitions, in order, shared out so that a znode holds each share."""
    shares: list[list[TopicPartition]] = []
    room = 0
    for one in sorted(partitions):
        size = len(_ENTRY % (json.dumps(one.topic, ensure_ascii=False).encode(), one.partition))
        if size > room:
            shares.append([])
            room = DATA_MAX_BYTES - _FRAME_BYTES
        shares[-1].append(one)
        room -= size
    return shares


def request(store: Store, partitions: Collection[TopicPartition]) -> str:
    """Ask the controller for the election; it begins at once, and ``await_end`` waits for its end.

    Returns the JSON that was written for the controller.

    Raises ConfigError (unknown partitions, too many for a znode, none) or CoordinationError (one is under way
    already, there is no controller) before anything is changed.
    """
    if not partitions:
        raise ConfigError(OPTION, None, "there is none to elect a leader for")
    topics = {one.topic for one in partitions}
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
    """Wait until the controller has seen to the request; False when it has not within ``timeout_s``."""
    return zookeeper_metadata.wait_until_removed(store, paths.PREFERRED_ELECTION, timeout_s)
