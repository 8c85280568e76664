"""The events that the controller takes, and the effects that it returns.

All values; the order of effects is the order to perform them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from minikafka.base.endpoints import LiveBroker
from minikafka.base.ids import TopicPartition
from minikafka.controller.assignment import Assignment, OngoingReassignment, Replicas
from minikafka.partition.replica import LeaderAndIsr

# --- events -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Elected:
    """This broker has become the controller. The fields are the content of ZooKeeper at that moment.

    ``sessions``: broker id -> the ZooKeeper session that registered it. ``unclean_election_topics``: topics
    where a replica outside the ISR may lead. ``reassignments``: those of ``/admin/reassign_partitions``.
    ``preferred_elections``: the partitions of ``/admin/preferred_replica_election``. ``bounced_brokers``:
    live brokers of the ISR that were away since the partition's state was written. ``topic_ids``: of the
    topics that have one. ``ongoing``: the reassignments that the topics' znodes show.
    """

    epoch: int
    brokers: Mapping[int, LiveBroker]
    assignments: Mapping[str, Assignment]
    leaderships: Mapping[TopicPartition, LeaderAndIsr]
    deletions: frozenset[str]
    sessions: Mapping[int, int] = field(default_factory=dict)
    unclean_election_topics: frozenset[str] = frozenset()
    reassignments: Mapping[TopicPartition, Replicas] = field(default_factory=dict)
    preferred_elections: frozenset[TopicPartition] = frozenset()
    bounced_brokers: Mapping[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)
    ongoing: Mapping[TopicPartition, OngoingReassignment] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Resigned:
    """This broker is no longer the controller."""


@dataclass(frozen=True, slots=True)
class BrokersChanged:
    """All live brokers. A broker whose session has changed was restarted in between."""

    brokers: Mapping[int, LiveBroker]
    sessions: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicsChanged:
    """Topics that were created or changed, with their assignments, and topics that were ``removed``.

    Of a known topic only new partitions count: replicas are changed by reassignment. ``topic_ids``: of the
    new topics that have one.
    """

    assignments: Mapping[str, Assignment]
    removed: frozenset[str] = frozenset()
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LeadershipsWritten:
    """The content of state znodes after a write: the written value, or the one that prevented the write.

    ``missing``: partitions of the same write whose znode does not exist or cannot be read.
    """

    leaderships: Mapping[TopicPartition, LeaderAndIsr]
    missing: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class LeaderEpochsRefused:
    """A broker or its logs have newer leader epochs of these partitions than the controller sent: the epochs
    in ZooKeeper went back.
    """

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class DeletionRequested:
    """The topics under ``/admin/delete_topics``."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class ReplicaDeleted:
    """A broker has deleted its replica of a partition."""

    broker_id: int
    topic_partition: TopicPartition


@dataclass(frozen=True, slots=True)
class ReplicaNotDeleted:
    """A broker could not delete its replica, which waits until ReplicaDeleted or the broker's next start."""

    broker_id: int
    topic_partition: TopicPartition


@dataclass(frozen=True, slots=True)
class TopicRemoved:
    """The topic was removed from ZooKeeper."""

    topic: str


@dataclass(frozen=True, slots=True)
class IsrChanged:
    """The current states of partitions whose leaders have written them (``/isr_change_notification``)."""

    leaderships: Mapping[TopicPartition, LeaderAndIsr]


@dataclass(frozen=True, slots=True)
class LogsFailed:
    """A broker cannot write to the logs of these partitions."""

    broker_id: int
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class UncleanElectionChanged:
    """All topics where a replica outside the ISR may lead if no replica in the ISR is alive."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class ElectionRequested:
    """Partitions for which the preferred replica, the first one assigned, should become leader."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class LeadersWanted:
    """Partitions of an ElectLeaders request; ``unclean``: any live replica may lead where the leader is dead.

    ``Controller.check_election`` names those that get no other leader.
    """

    partitions: frozenset[TopicPartition]
    unclean: bool


@dataclass(frozen=True, slots=True)
class RebalanceDue:
    """The automatic preferred election is due, for brokers whose imbalance is above ``limit_percent``.

    The imbalance is the share of the partitions preferring a broker that other brokers lead.
    """

    limit_percent: int


@dataclass(frozen=True, slots=True)
class ReassignmentRequested:
    """The content of ``/admin/reassign_partitions``: partitions, and the replicas requested for each."""

    reassignments: Mapping[TopicPartition, Replicas]


@dataclass(frozen=True, slots=True)
class ReassignmentsAltered:
    """Partitions of an AlterPartitionReassignments request, and their new replicas; None: cancel.

    ``Controller.check_reassignment`` says which requests are valid.
    """

    reassignments: Mapping[TopicPartition, Replicas | None]


@dataclass(frozen=True, slots=True)
class ShutdownRequested:
    """A broker will shut down and hand over its leaderships; see ``Controller.partitions_still_led_by``."""

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
    | LeadersWanted
    | RebalanceDue
    | ReassignmentRequested
    | ReassignmentsAltered
    | ShutdownRequested
)

# --- effects ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WriteLeaderships:
    """Write the state znodes of partitions; one LeadershipsWritten follows.

    Each znode is created (``create``), or replaced if it still has the version before the value's own. One
    effect for all, so that no client ever sees only a part of a new topic's partitions.
    """

    leaderships: Mapping[TopicPartition, LeaderAndIsr]
    create: bool


@dataclass(frozen=True, slots=True)
class SendLeaderAndIsr:
    """Send LeaderAndIsr: the partitions that a broker leads or follows.

    ``topic_ids``: of their topics, if they have one.
    """

    broker_id: int
    leaderships: Mapping[TopicPartition, LeaderAndIsr]
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SendUpdateMetadata:
    """Send UpdateMetadata: the leaders, for clients. Leader -2 means that the topic is being deleted.

    ``topic_ids``: of the topics of the partitions, if they have one.
    """

    broker_id: int
    brokers: Mapping[int, LiveBroker]
    leaderships: Mapping[TopicPartition, LeaderAndIsr]
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SendStopReplica:
    """Send StopReplica: stop following; with ``delete``, delete replicas and their logs.

    ReplicaDeleted or ReplicaNotDeleted follows for each deletion.
    """

    broker_id: int
    partitions: tuple[TopicPartition, ...]
    delete: bool = True


@dataclass(frozen=True, slots=True)
class RemoveTopic:
    """Remove every znode of a topic; TopicRemoved follows."""

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
    """Write the replicas of topics. Other partitions in their znodes were added meanwhile, and stay.

    One effect for all: many topics may move at the same time, and the controller's other work waits for it.
    """

    assignments: Mapping[str, Assignment]
    moving: Mapping[TopicPartition, tuple[Replicas, Replicas]] = field(default_factory=dict)
    """The replicas that are being added to partitions of these topics, and those being removed."""


@dataclass(frozen=True, slots=True)
class DropReassignments:
    """Remove partitions from ``/admin/reassign_partitions``: done or refused, as the reason of each says.

    One effect for all: each removal rewrites the rest of the request.
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
