"""The controller in ZooKeeper, and the requests and notifications to it.

A request is in one znode, so ``to_json`` refuses one that is too large: the limit is about 15,000 partitions
with three replicas each, or 25,000 partitions to elect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from minikafka.base.errors import CoordinationError
from minikafka.base.ids import TopicPartition
from minikafka.registry.node import InvalidNode, Node, dump, id_in, invalid
from minikafka.registry.paths import (
    CONTROLLER,
    CONTROLLER_EPOCH,
    ISR_CHANGE_PREFIX,
    ISR_CHANGES,
    LOG_FAILURE_PREFIX,
    LOG_FAILURES,
    PREFERRED_ELECTION,
    REASSIGN_PARTITIONS,
)
from minikafka.registry.store import DATA_MAX_BYTES
from minikafka.registry.znodes import Kind

_LOG_FAILURE = 1


@dataclass(frozen=True, slots=True)
class ControllerRegistration:
    """The broker that is the controller."""

    broker_id: int
    timestamp_ms: int
    """The time at which it was elected; -1 if the znode does not say."""

    def to_json(self) -> bytes:
        """Return the data for ``CONTROLLER``."""
        return dump({"version": 1, "brokerid": self.broker_id, "timestamp": str(self.timestamp_ms)})

    @classmethod
    def from_json(cls, data: bytes, path: str = CONTROLLER) -> ControllerRegistration:
        """Parse the registration in ``data``; releases before 0.8.1 wrote the bare broker id."""
        broker_id = id_in(data.strip())
        if broker_id is not None:
            return cls(broker_id, -1)
        node = Node(data, path)
        return cls(node.integer("brokerid"), node.number_as_text("timestamp", -1))


@dataclass(frozen=True, slots=True)
class ControllerEpoch:
    """The number of controller elections so far. The first controller has epoch 1."""

    epoch: int

    def to_json(self) -> bytes:
        """Return the data for ``CONTROLLER_EPOCH``: the bare number."""
        return b"%d" % self.epoch

    @classmethod
    def from_json(cls, data: bytes, path: str = CONTROLLER_EPOCH) -> ControllerEpoch:
        """Parse the epoch in ``data``."""
        epoch = id_in(data.strip())
        if epoch is None:
            raise invalid(path, "expected a number", data)
        return cls(epoch)


@dataclass(frozen=True, slots=True)
class Reassignments:
    """The new replicas of partitions that are to be reassigned."""

    partitions: Mapping[TopicPartition, tuple[int, ...]]
    """Partition -> all its brokers, the preferred leader first."""

    def to_json(self) -> bytes:
        """Return the data for ``REASSIGN_PARTITIONS``. Raises CoordinationError for too many partitions."""
        return _request(
            REASSIGN_PARTITIONS,
            [{**_named(tp), "replicas": list(self.partitions[tp])} for tp in sorted(self.partitions)],
        )

    @classmethod
    def from_json(cls, data: bytes, path: str = REASSIGN_PARTITIONS) -> Reassignments:
        """Parse the reassignments in ``data``.

        Raises CoordinationError also for a duplicate partition, a duplicate broker of a partition, or a
        partition without brokers.
        """
        node = Node(data, path)
        partitions: dict[TopicPartition, tuple[int, ...]] = {}
        for fields in node.objects("partitions"):
            tp = node.topic_partition("partitions", fields)
            replicas = node.replicas("replicas", fields.get("replicas"), str(tp))
            if tp in partitions:
                raise _duplicate(path, tp)
            partitions[tp] = replicas
        return cls(partitions)


@dataclass(frozen=True, slots=True)
class PreferredElection:
    """The partitions that are to be led by their preferred replica, the first one."""

    partitions: frozenset[TopicPartition]

    def to_json(self) -> bytes:
        """Return the data for ``PREFERRED_ELECTION``. Raises CoordinationError for too many partitions."""
        return _request(PREFERRED_ELECTION, [_named(tp) for tp in sorted(self.partitions)])

    @classmethod
    def from_json(cls, data: bytes, path: str = PREFERRED_ELECTION) -> PreferredElection:
        """Parse the election in ``data``; the list may also be called ``partition``, as the texts' example
        has it. Raises CoordinationError also for a duplicate partition.
        """
        node = Node(data, path)
        key = "partition" if node.value("partitions") is None else "partitions"
        partitions: set[TopicPartition] = set()
        for tp in _partitions(node, key):
            if tp in partitions:
                raise _duplicate(path, tp)
            partitions.add(tp)
        return cls(frozenset(partitions))


@dataclass(frozen=True, slots=True)
class IsrChange:
    """The notification that leaders have changed the ISRs of these partitions in their state znodes."""

    partitions: frozenset[TopicPartition]

    def to_json(self) -> bytes:
        """Return the data for a new znode under ``ISR_CHANGES``.

        Raises CoordinationError for too many partitions.
        """
        return _request(ISR_CHANGES, [_named(tp) for tp in sorted(self.partitions)])

    @classmethod
    def from_json(cls, data: bytes, path: str) -> IsrChange:
        """Parse the notification in ``data``."""
        return cls(frozenset(_partitions(Node(data, path), "partitions")))


@dataclass(frozen=True, slots=True)
class LogFailures:
    """The notification that a broker cannot write to the logs of these partitions."""

    broker_id: int
    partitions: frozenset[TopicPartition]

    def to_json(self) -> bytes:
        """Return the data for a new znode under ``LOG_FAILURES``."""
        named = [_named(tp) for tp in sorted(self.partitions)]
        return dump({"version": 1, "broker": self.broker_id, "event": _LOG_FAILURE, "partitions": named})

    @classmethod
    def from_json(cls, data: bytes, path: str) -> LogFailures:
        """Parse the notification in ``data``."""
        node = Node(data, path)
        if node.integer("event") != _LOG_FAILURE:
            raise node.error("event", f"{_LOG_FAILURE} (log failure)")
        return cls(node.integer("broker"), frozenset(_partitions(node, "partitions")))


def _named(tp: TopicPartition) -> dict[str, object]:
    return {"topic": tp.topic, "partition": tp.partition}


def _partitions(node: Node, key: str) -> Iterable[TopicPartition]:
    return (node.topic_partition(key, fields) for fields in node.objects(key))


def _duplicate(path: str, tp: TopicPartition) -> InvalidNode:
    return InvalidNode(path, f"duplicate partition {tp}")


def _request(path: str, partitions: list[dict[str, Any]]) -> bytes:
    data = dump({"version": 1, "partitions": partitions})
    if len(data) > DATA_MAX_BYTES:
        raise CoordinationError(
            f"too many partitions for {path}: {len(partitions)} partitions are {len(data)} bytes, "
            f"the limit of a znode is {DATA_MAX_BYTES}; request fewer at a time"
        )
    return data


CONTROLLER_REGISTRATION = Kind(
    CONTROLLER,
    "the broker that is the controller; ephemeral",
    "0.10.1 (version 1); the bare id of 0.8.0 is read",
    ControllerRegistration.from_json,
    ControllerRegistration.to_json,
    "the controller is unknown until its owner rewrites the znode; if it has no owner (ephemeralOwner 0), "
    "there is no election until you remove it",
)
"""The controller itself rewrites its own znode if that is invalid: it would not be found."""

EPOCH = Kind(
    CONTROLLER_EPOCH,
    "the number of controller elections; a bare number",
    "0.10.1",
    ControllerEpoch.from_json,
    ControllerEpoch.to_json,
    "the controller is elected again, with an epoch above all that the partitions' states have",
)
"""A new controller does not pass it over: brokers refuse an epoch that is too low
(``server.zookeeper.counters``).
"""

_DROPPED = "the request is removed, as tools take it for one in progress; request it again"

REASSIGNMENTS = Kind(
    REASSIGN_PARTITIONS,
    "the new replicas of partitions; shrinks as they are done, deleted after the last",
    "0.10.1 (version 1)",
    Reassignments.from_json,
    Reassignments.to_json,
    _DROPPED,
)
ELECTION = Kind(
    PREFERRED_ELECTION,
    "the partitions to be led by their preferred replica; the controller deletes it when it is done",
    "0.10.1 (version 1)",
    PreferredElection.from_json,
    PreferredElection.to_json,
    _DROPPED,
)
ISR_CHANGE = Kind(
    f"{ISR_CHANGES}/{ISR_CHANGE_PREFIX}N",
    "the partitions whose leaders have changed the ISR; sequential, the controller deletes it",
    "0.10.1 (version 1)",
    IsrChange.from_json,
    IsrChange.to_json,
    "the notification is removed; the controller learns of the change at its next read of the states",
)
LOG_FAILURE = Kind(
    f"{LOG_FAILURES}/{LOG_FAILURE_PREFIX}N",
    "the partitions whose logs a broker cannot write; sequential, the controller deletes it",
    "1.0 (version 1), with the partitions, which 1.0 leaves out",
    LogFailures.from_json,
    LogFailures.to_json,
    "the notification is removed; restart the broker whose log failed",
)
