"""What the controller is told, and what it wants done.

All values; the order of effects is the order to perform them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from minikafka.base.ids import BrokerAddress, TopicPartition
from minikafka.controller.assignment import Assignment
from minikafka.partition.leadership import Leadership

# --- events -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Elected:
    """This broker is the controller; what ZooKeeper holds at that moment."""

    epoch: int
    brokers: Mapping[int, BrokerAddress]
    assignments: Mapping[str, Assignment]
    leaderships: Mapping[TopicPartition, Leadership]
    deletions: frozenset[str]


@dataclass(frozen=True, slots=True)
class Resigned:
    """This broker is not the controller any more."""


@dataclass(frozen=True, slots=True)
class BrokersChanged:
    """The live brokers, all of them."""

    brokers: Mapping[int, BrokerAddress]


@dataclass(frozen=True, slots=True)
class TopicsChanged:
    """The topics, all of them, with their assignments."""

    assignments: Mapping[str, Assignment]


@dataclass(frozen=True, slots=True)
class LeadershipsWritten:
    """The state znodes of these partitions now hold this: ours, or what was there before us."""

    leaderships: Mapping[TopicPartition, Leadership]


@dataclass(frozen=True, slots=True)
class DeletionRequested:
    """Topics named under ``/admin/delete_topics``."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class ReplicaDeleted:
    """A broker has removed its replica of a partition."""

    broker_id: int
    topic_partition: TopicPartition


@dataclass(frozen=True, slots=True)
class TopicRemoved:
    """Nothing of the topic is left in ZooKeeper."""

    topic: str


Event = (
    Elected
    | Resigned
    | BrokersChanged
    | TopicsChanged
    | LeadershipsWritten
    | DeletionRequested
    | ReplicaDeleted
    | TopicRemoved
)

# --- effects ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WriteLeaderships:
    """Write the state znodes of partitions; answered by one LeadershipsWritten.

    One effect for all, so that no client ever sees a part of a new topic's partitions.
    """

    leaderships: Mapping[TopicPartition, Leadership]
    create: bool


@dataclass(frozen=True, slots=True)
class SendLeaderAndIsr:
    """Tell a broker what it leads or follows."""

    broker_id: int
    leaderships: Mapping[TopicPartition, Leadership]


@dataclass(frozen=True, slots=True)
class SendUpdateMetadata:
    """Tell a broker who leads what, so that it can tell clients. A leader of -2 means the topic is going."""

    broker_id: int
    brokers: Mapping[int, BrokerAddress]
    leaderships: Mapping[TopicPartition, Leadership]


@dataclass(frozen=True, slots=True)
class SendStopReplica:
    """Tell a broker to drop replicas and their logs; answered by ReplicaDeleted for each."""

    broker_id: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class RemoveTopic:
    """Remove every znode of a topic; answered by TopicRemoved."""

    topic: str


@dataclass(frozen=True, slots=True)
class DropDeletionRequest:
    """Remove a request under ``/admin/delete_topics`` that cannot be carried out, with the reason for the
    log.
    """

    topic: str
    reason: str


Effect = (
    WriteLeaderships
    | SendLeaderAndIsr
    | SendUpdateMetadata
    | SendStopReplica
    | RemoveTopic
    | DropDeletionRequest
)
