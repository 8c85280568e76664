"""The events that the controller takes, and the effects that it returns.

All values; the order of effects is the order to perform them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from minikafka.base.ids import BrokerAddress, TopicPartition
from minikafka.controller.assignment import Assignment
from minikafka.partition.replica import LeaderAndIsr

# --- events -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Elected:
    """This broker is the controller; what ZooKeeper holds at that moment.

    ``sessions``: broker id -> the ZooKeeper session that registered it. ``unclean_election_topics``: topics
    where a replica outside the ISR may lead. ``reassignments``: those of ``/admin/reassign_partitions``.
    ``preferred_elections``: the partitions of ``/admin/preferred_replica_election``. ``bounced_brokers``:
    live brokers of the ISR that were away since the partition's state was written.
    """

    epoch: int
    brokers: Mapping[int, BrokerAddress]
    assignments: Mapping[str, Assignment]
    leaderships: Mapping[TopicPartition, LeaderAndIsr]
    deletions: frozenset[str]
    sessions: Mapping[int, int] = field(default_factory=dict)
    unclean_election_topics: frozenset[str] = frozenset()
    reassignments: Mapping[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    preferred_elections: frozenset[TopicPartition] = frozenset()
    bounced_brokers: Mapping[TopicPartition, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Resigned:
    """This broker is not the controller any more."""


@dataclass(frozen=True, slots=True)
class BrokersChanged:
    """The live brokers, all of them. One with another session than before was restarted in between."""

    brokers: Mapping[int, BrokerAddress]
    sessions: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicsChanged:
    """Topics that are new, or have been written anew, with their assignments, and those that are ``gone``.

    Of a topic that is known only partitions that are new count: other replicas come by reassignment.
    """

    assignments: Mapping[str, Assignment]
    gone: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class LeadershipsWritten:
    """The state znodes of these partitions now hold this: ours, or what was there before us.

    ``gone``: partitions of the same write that have no znode, or one that cannot be read.
    """

    leaderships: Mapping[TopicPartition, LeaderAndIsr]
    gone: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class LeaderEpochsRefused:
    """A broker has heard of newer leader epochs of these partitions than the ones that it was told, or its
    logs have: the epochs that ZooKeeper holds went back.
    """

    partitions: frozenset[TopicPartition]


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
class ReplicaNotDeleted:
    """A broker could not remove its replica: that waits until it says ReplicaDeleted, or comes back."""

    broker_id: int
    topic_partition: TopicPartition


@dataclass(frozen=True, slots=True)
class TopicRemoved:
    """Nothing of the topic is left in ZooKeeper."""

    topic: str


@dataclass(frozen=True, slots=True)
class IsrChanged:
    """Leaders wrote these states themselves (``/isr_change_notification``); what the znodes hold now."""

    leaderships: Mapping[TopicPartition, LeaderAndIsr]


@dataclass(frozen=True, slots=True)
class LogsFailed:
    """A broker cannot write to the logs of these partitions."""

    broker_id: int
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class UncleanElectionChanged:
    """The topics, all of them, where a replica out of sync may lead if none in sync lives."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class ElectionRequested:
    """Partitions that are to be led by their preferred replica, the first one assigned."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class RebalanceDue:
    """Time for the automatic preferred election: on each broker that others lead more than this for."""

    limit_percent: int


@dataclass(frozen=True, slots=True)
class ReassignmentRequested:
    """All that ``/admin/reassign_partitions`` asks for, with the replicas that each partition is to have."""

    reassignments: Mapping[TopicPartition, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class ShutdownRequested:
    """A broker wants to stop, and to be led by others first; see ``Controller.partitions_still_led_by``."""

    broker_id: int


Event = (
    Elected
    | Resigned
    | BrokersChanged
    | TopicsChanged
    | LeadershipsWritten
    | LeaderEpochsRefused
    | DeletionRequested
    | ReplicaDeleted
    | ReplicaNotDeleted
    | TopicRemoved
    | IsrChanged
    | LogsFailed
    | UncleanElectionChanged
    | ElectionRequested
    | RebalanceDue
    | ReassignmentRequested
    | ShutdownRequested
)

# --- effects ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WriteLeaderships:
    """Write the state znodes of partitions; answered by one LeadershipsWritten.

    Each is made (``create``), or replaced if it still has the version before the value's own.
    One effect for all, so that no client ever sees a part of a new topic's partitions.
    """

    leaderships: Mapping[TopicPartition, LeaderAndIsr]
    create: bool


@dataclass(frozen=True, slots=True)
class SendLeaderAndIsr:
    """Tell a broker what it leads or follows."""

    broker_id: int
    leaderships: Mapping[TopicPartition, LeaderAndIsr]


@dataclass(frozen=True, slots=True)
class SendUpdateMetadata:
    """Tell a broker who leads what, so that it can tell clients. A leader of -2 means the topic is going."""

    broker_id: int
    brokers: Mapping[int, BrokerAddress]
    leaderships: Mapping[TopicPartition, LeaderAndIsr]


@dataclass(frozen=True, slots=True)
class SendStopReplica:
    """Tell a broker to stop following; with ``delete``, to drop replicas and their logs.

    A deletion is answered by ReplicaDeleted or ReplicaNotDeleted for each.
    """

    broker_id: int
    partitions: tuple[TopicPartition, ...]
    delete: bool = True


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


@dataclass(frozen=True, slots=True)
class WriteAssignments:
    """Write the replicas of topics. Partitions that their znodes have besides came meanwhile, and stay.

    One effect for all: many topics move at a time, and the controller's other work waits for it.
    """

    assignments: Mapping[str, Assignment]


@dataclass(frozen=True, slots=True)
class DropReassignments:
    """Take partitions out of ``/admin/reassign_partitions``: done or refused, as the reason of each says.

    One effect for all: each would write anew what is left of the request.
    """

    reasons: Mapping[TopicPartition, str]


@dataclass(frozen=True, slots=True)
class DropElections:
    """Remove ``/admin/preferred_replica_election``, with the reason for the log."""

    reason: str


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line for the log."""

    text: str
    warning: bool = False


Effect = (
    WriteLeaderships
    | SendLeaderAndIsr
    | SendUpdateMetadata
    | SendStopReplica
    | RemoveTopic
    | DropDeletionRequest
    | WriteAssignments
    | DropReassignments
    | DropElections
    | LogLine
)
