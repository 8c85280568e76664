"""The znodes in which the controller is asked for something, or told, as Kafka 0.10.1 writes them.

    /admin/reassign_partitions          Reassignments; partitions leave it as they are done, then it goes
    /admin/preferred_replica_election   PreferredElection; goes once the controller has seen to it
    /isr_change_notification/isr_change_N   IsrChange, sequential; the controller removes what it has read
    /log_dir_event_notification/log_dir_event_N   LogFailures, the same; Kafka has it from 1.0 on, for all
                                                  that lies in a directory and with no partitions named

One znode holds a request as a whole, so ``to_json`` refuses what one cannot hold: some 15,000 partitions with
three replicas each, some 25,000 to elect. ``from_json`` is as in ``paths``.
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
    """Which partitions are to have other replicas."""

    partitions: Mapping[TopicPartition, tuple[int, ...]]
    """Partition -> all its brokers, the preferred leader first."""

    def to_json(self) -> bytes:
        """Bytes for ``REASSIGN_PARTITIONS``. CoordinationError when they are too many."""
        return _request(
            REASSIGN_PARTITIONS,
            [{**_named(tp), "replicas": list(self.partitions[tp])} for tp in sorted(self.partitions)],
        )

    @classmethod
    def from_json(cls, data: bytes, path: str = REASSIGN_PARTITIONS) -> Reassignments:
        """The reassignments in ``data``. CoordinationError also where a partition is named twice, or a
        broker for one partition, or none is.
        """
        node = Node(data, path)
        partitions: dict[TopicPartition, tuple[int, ...]] = {}
        for fields in node.objects("partitions"):
            tp = node.topic_partition("partitions", fields)
            replicas = node.broker_ids("replicas", fields.get("replicas"))
            if not replicas or len(set(replicas)) < len(replicas):
                raise CoordinationError(f"{path}: {tp} cannot have the replicas {list(replicas)}")
            if tp in partitions:
                raise _twice(path, tp)
            partitions[tp] = replicas
        return cls(partitions)


@dataclass(frozen=True, slots=True)
class PreferredElection:
    """Which partitions are to be led by their first replica."""

    partitions: frozenset[TopicPartition]

    def to_json(self) -> bytes:
        """Bytes for ``PREFERRED_ELECTION``. CoordinationError when they are too many."""
        return _request(PREFERRED_ELECTION, [_named(tp) for tp in sorted(self.partitions)])

    @classmethod
    def from_json(cls, data: bytes, path: str = PREFERRED_ELECTION) -> PreferredElection:
        """The election in ``data``; the list may also be called ``partition``, as the texts' example has it.
        CoordinationError also where a partition is named twice.
        """
        node = Node(data, path)
        key = "partition" if node.value("partitions") is None else "partitions"
        partitions: set[TopicPartition] = set()
        for tp in _partitions(node, key):
            if tp in partitions:
                raise _twice(path, tp)
            partitions.add(tp)
        return cls(frozenset(partitions))


@dataclass(frozen=True, slots=True)
class IsrChange:
    """The news that the leaders of these partitions have changed the in-sync replicas in their states."""

    partitions: frozenset[TopicPartition]

    def to_json(self) -> bytes:
        """Bytes for a new znode under ``ISR_CHANGES``. CoordinationError when they are too many."""
        return _request(ISR_CHANGES, [_named(tp) for tp in sorted(self.partitions)])

    @classmethod
    def from_json(cls, data: bytes, path: str) -> IsrChange:
        """The news in ``data``."""
        return cls(frozenset(_partitions(Node(data, path), "partitions")))


@dataclass(frozen=True, slots=True)
class LogFailures:
    """The news that a broker cannot write to the logs of these partitions."""

    broker_id: int
    partitions: frozenset[TopicPartition]

    def to_json(self) -> bytes:
        """Bytes for a new znode under ``LOG_FAILURES``."""
        named = [_named(tp) for tp in sorted(self.partitions)]
        return dump({"version": 1, "broker": self.broker_id, "event": _LOG_FAILURE, "partitions": named})

    @classmethod
    def from_json(cls, data: bytes, path: str) -> LogFailures:
        """The news in ``data``."""
        node = Node(data, path)
        if node.integer("event") != _LOG_FAILURE:
            raise node.error("event", f"{_LOG_FAILURE}, a failure")
        return cls(node.integer("broker"), frozenset(_partitions(node, "partitions")))


def _named(tp: TopicPartition) -> dict[str, object]:
    return {"topic": tp.topic, "partition": tp.partition}


def _partitions(node: Node, key: str) -> Iterable[TopicPartition]:
    return (node.topic_partition(key, fields) for fields in node.objects(key))


def _twice(path: str, tp: TopicPartition) -> CoordinationError:
    return CoordinationError(f"{path}: {tp} is named twice")


def _request(path: str, partitions: list[dict[str, Any]]) -> bytes:
    data = dump({"version": 1, "partitions": partitions})
    if len(data) > DATA_MAX_BYTES:
        raise CoordinationError(
            f"{path} cannot take {len(partitions)} partitions at once: they are {len(data)} bytes, and a "
            f"znode has at most {DATA_MAX_BYTES}; ask for fewer at a time"
        )
    return data
