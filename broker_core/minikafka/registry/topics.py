"""The replicas of topics, and the leader and ISR of each partition: the znodes below ``/brokers/topics``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from minikafka.base.errors import BrokerError, CoordinationError
from minikafka.base.ids import TopicPartition, check_topic_name, uuid_in, uuid_text
from minikafka.registry import paths
from minikafka.registry.node import Node, dump, id_in
from minikafka.registry.store import Store
from minikafka.registry.znodes import Kind, read_values

_RESERVED_IDS = 1
"""The largest of the topic ids that mean something else: 0 is none, 1 the metadata of KRaft."""
_EPOCH_MAX = (1 << 31) - 1
"""The largest epoch: no other can follow it."""


@dataclass(frozen=True, slots=True)
class TopicAssignment:
    """The replicas of every partition of a topic; the first replica is the preferred leader."""

    partitions: Mapping[int, tuple[int, ...]]
    """Partition number -> broker ids, in ascending order of partitions."""
    topic_id: bytes | None = None
    """None: the topic has none yet, or the cluster has brokers before 2.8, which know no ids."""
    adding: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Partition number -> those of its replicas that a reassignment adds (KIP-455)."""
    removing: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Partition number -> those of its replicas that a reassignment removes."""

    def to_json(self) -> bytes:
        """Return the data for ``topic_path(topic)``: version 3 with an id, 2 in a reassignment, else 1."""
        partitions = {"partitions": _listed(self.partitions)}
        moving = {"adding_replicas": _listed(self.adding), "removing_replicas": _listed(self.removing)}
        if self.topic_id is not None:
            return dump({**partitions, "topic_id": uuid_text(self.topic_id), **moving, "version": 3})
        if self.adding or self.removing:
            return dump({"version": 2, **partitions, **moving})
        return dump({"version": 1, **partitions})

    @classmethod
    def from_json(cls, data: bytes, path: str) -> TopicAssignment:
        """Parse the assignment in ``data``.

        Raises CoordinationError also for a partition without replicas, or with a duplicate broker, and for
        an invalid id. Lists may have different lengths: a running reassignment leaves them so.
        """
        node = Node(data, path)
        text = node.optional_text("topic_id")
        topic_id = None if text is None else uuid_in(text)
        if text is not None and (topic_id is None or int.from_bytes(topic_id, "big") <= _RESERVED_IDS):
            raise node.error("topic_id", "a UUID in URL-safe base64")
        moving = (
            _replicas_in(node, key) if node.value(key) is not None else {}
            for key in ("adding_replicas", "removing_replicas")
        )
        return cls(_replicas_in(node, "partitions"), topic_id, *moving)


def _replicas_in(node: Node, field_name: str) -> dict[int, tuple[int, ...]]:
    replicas = {}
    for key, listed in node.mapping(field_name).items():
        partition = id_in(key)
        if partition is None or key != str(partition):
            raise node.error(field_name, "an object whose keys are partition numbers")
        if listed or field_name == "partitions":
            replicas[partition] = node.replicas(field_name, listed, f"partition {partition}")
    return dict(sorted(replicas.items()))


def _listed(replicas: Mapping[int, tuple[int, ...]]) -> dict[str, list[int]]:
    return {str(partition): list(own) for partition, own in replicas.items()}


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The leader and ISR of a partition. The znode's version guards writes; it is not in the JSON."""

    leader: int
    """Broker id; -1 if there is none."""
    leader_epoch: int
    """Raised at every change of the leader."""
    isr: tuple[int, ...]
    """Ids of the in-sync replicas."""
    controller_epoch: int
    """Epoch of the controller that decided it last."""

    def to_json(self) -> bytes:
        """Return the data for ``partition_state_path(topic, partition)``."""
        return dump(
            {
                "controller_epoch": self.controller_epoch,
                "leader": self.leader,
                "version": 1,
                "leader_epoch": self.leader_epoch,
                "isr": list(self.isr),
            }
        )

    @classmethod
    def from_json(cls, data: bytes, path: str) -> PartitionState:
        """Parse the state in ``data``.

        Raises CoordinationError also for a duplicate broker in the ISR, and for a leader or an epoch out of
        range. The controller checks that leader and ISR fit the replicas.
        """
        node = Node(data, path)
        state = cls(
            leader=node.integer("leader"),
            leader_epoch=node.integer("leader_epoch"),
            isr=node.broker_ids("isr", node.value("isr")),
            controller_epoch=node.integer("controller_epoch"),
        )
        if len(set(state.isr)) < len(state.isr):
            raise node.error("isr", "a list of distinct broker ids")
        if state.leader < -1:
            raise node.error("leader", "a broker id or -1")
        if not 0 <= state.leader_epoch < _EPOCH_MAX:
            raise node.error("leader_epoch", f"a number from 0 to {_EPOCH_MAX - 1}")
        if state.controller_epoch < 0:
            raise node.error("controller_epoch", "0 or more")
        return state


def _decode_topic(data: bytes, path: str) -> TopicAssignment:
    topic = path.rpartition("/")[2]
    try:
        check_topic_name(topic)
    except BrokerError as error:
        raise CoordinationError(f"{path!r} is not a topic: {error.detail}") from None
    return TopicAssignment.from_json(data, path)


TOPIC = Kind(
    f"{paths.BROKER_TOPICS}/T",
    "the replicas of each partition of a topic, and the topic's id",
    "2.8 (version 3) with an id; else 2.4 (version 2) in a reassignment, or 0.10.1 (version 1)",
    _decode_topic,
    TopicAssignment.to_json,
    "the topic is unknown to clients; delete the topic, or fix the znode and restart the brokers",
)

PARTITION_STATE = Kind(
    f"{paths.BROKER_TOPICS}/T/partitions/P/state",
    "the leader and ISR of a partition; written conditionally on the znode's version",
    "0.10.1 (version 1)",
    PartitionState.from_json,
    PartitionState.to_json,
    "the partition has no leader; delete the topic, or fix the znode and restart the brokers",
)


def read_assignments(store: Store, topics: Iterable[str]) -> dict[str, Mapping[int, tuple[int, ...]]]:
    """Return the replicas of each partition of the existing ``topics``, as ``TopicAssignment.partitions``."""
    by_path = {paths.topic_path(topic): topic for topic in topics}
    return {topic: found.partitions for topic, found in read_values(store, by_path, TOPIC).items()}


def read_states(store: Store, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionState]:
    """Return the leader and ISR of those partitions that have had a leader."""
    by_path = {paths.partition_state_path(*partition): partition for partition in partitions}
    return read_values(store, by_path, PARTITION_STATE)
