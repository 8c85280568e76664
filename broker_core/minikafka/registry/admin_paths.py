"""The znodes of requests and notifications to the controller, as Kafka 0.10.1 writes them.

    /admin/reassign_partitions          Reassignments; shrinks as partitions are done, deleted after the last
    /admin/preferred_replica_election   PreferredElection; the controller deletes it when it is done
    /isr_change_notification/isr_change_N   IsrChange, sequential; the controller deletes it when it is read
    /log_dir_event_notification/log_dir_event_N   LogFailures, likewise; Kafka has it from 1.0 on, for a whole
                                                  directory and without partitions

A request is in one znode, so ``to_json`` refuses one that is too large: the limit is about 15,000 partitions
with three replicas each, or 25,000 partitions to elect. ``from_json`` is as in ``paths``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from minikafka.base.errors import CoordinationError
from minikafka.base.ids import TopicPartition
from minikafka.registry.node import Node, dump
from minikafka.registry.paths import ISR_CHANGES, PREFERRED_ELECTION, REASSIGN_PARTITIONS
from minikafka.registry.store import DATA_MAX_BYTES

_LOG_FAILURE = 1


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
            replicas = node.broker_ids("replicas", fields.get("replicas"))
            if not replicas or len(set(replicas)) < len(replicas):
                raise CoordinationError(
                    f"{path}: invalid replicas {list(replicas)} for {tp}: "
                    "expected one or more distinct brokers"
                )
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


def _duplicate(path: str, tp: TopicPartition) -> CoordinationError:
    return CoordinationError(f"{path}: duplicate partition {tp}")


def _request(path: str, partitions: list[dict[str, Any]]) -> bytes:
    data = dump({"version": 1, "partitions": partitions})
    if len(data) > DATA_MAX_BYTES:
        raise CoordinationError(
            f"too many partitions for {path}: {len(partitions)} partitions are {len(data)} bytes, "
            f"the limit of a znode is {DATA_MAX_BYTES}; request fewer at a time"
        )
    return data
