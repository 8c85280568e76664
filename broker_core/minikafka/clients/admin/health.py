"""The health of a cluster: live brokers, their replicas, and partitions with problems."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from minikafka.base.ids import OFFSETS_TOPIC, BrokerAddress
from minikafka.clients.admin.log_dirs import OfflineLogDir
from minikafka.clients.network.metadata import ClusterMetadata, PartitionMetadata

OFFSETS_FACTOR = 3
"""Kafka's default of ``offsets.topic.replication.factor``."""


@dataclass(frozen=True, slots=True)
class BrokerHealth:
    """One broker and its replicas."""

    broker_id: int
    address: BrokerAddress | None
    """None for a broker that has replicas and is not alive."""
    leads: int
    follows: int
    """Partitions with a replica on it that it does not lead."""
    preferred: int
    """Partitions whose preferred leader it is, as the first of their replicas."""
    out_of_sync: int
    """Its replicas that are not in sync."""


@dataclass(frozen=True, slots=True)
class FewReplicas:
    """An internal topic with too few replicas, as it was created with fewer brokers.

    Its groups wait when a broker stops.
    """

    topic: str
    has: int
    """The fewest replicas of a partition."""
    wanted: int


@dataclass(frozen=True, slots=True)
class ClusterHealth:
    """The health of a cluster, from the metadata of one broker."""

    cluster_id: str | None
    controller_id: int | None
    brokers: tuple[BrokerHealth, ...]
    """By their ids."""
    topics: int
    partitions: int
    under_replicated: tuple[PartitionMetadata, ...]
    """Partitions with a replica that is not in sync."""
    leaderless: tuple[PartitionMetadata, ...]
    """Partitions without a leader, which cannot be written or read."""
    access_rules: bool = False
    """True if brokers have an authorizer: topics that this client may not describe are not counted."""
    few_replicas: FewReplicas | None = None
    """Set if the offsets topic has fewer replicas than it should and than there are live brokers."""
    offline_log_dirs: tuple[OfflineLogDir, ...] = ()
    """Data directories of live brokers that are offline, or that have offline logs."""

    @property
    def live(self) -> tuple[int, ...]:
        """The live brokers."""
        return tuple(broker.broker_id for broker in self.brokers if broker.address is not None)

    @property
    def healthy(self) -> bool:
        """True if there is a controller, every partition has a leader and all its replicas in sync, and no
        data directory is offline.

        Also False if ACLs may hide every topic.
        """
        return not self.unseen and not (
            self.controller_id is None or self.under_replicated or self.leaderless or self.offline_log_dirs
        )

    @property
    def unseen(self) -> bool:
        """True if no topic is visible, and ACLs may be the cause."""
        return self.access_rules and not self.topics


def health_of(
    cluster: ClusterMetadata,
    *,
    access_rules: bool = False,
    offsets_factor: int = OFFSETS_FACTOR,
    offline_log_dirs: tuple[OfflineLogDir, ...] = (),
) -> ClusterHealth:
    """Return the health of a cluster from the metadata of all topics (with ACLs: of all visible topics).

    offsets_factor: the brokers' ``offsets.topic.replication.factor``.
    Partitions are sorted by topic, internal topics last.
    """
    topics = sorted(cluster.topics.values(), key=lambda topic: (topic.is_internal, topic.name))
    partitions = [partition for topic in topics for partition in topic.partitions]
    leads = Counter(partition.leader_id for partition in partitions)
    preferred = Counter(partition.replicas[0] for partition in partitions if partition.replicas)
    has = Counter(replica for partition in partitions for replica in partition.replicas)
    in_sync = Counter(
        replica for partition in partitions for replica in set(partition.in_sync) & set(partition.replicas)
    )
    return ClusterHealth(
        cluster.cluster_id,
        cluster.controller_id,
        tuple(
            BrokerHealth(
                number,
                cluster.brokers.get(number),
                leads[number],
                has[number] - leads[number],
                preferred[number],
                has[number] - in_sync[number],
            )
            for number in sorted({*cluster.brokers, *has})
        ),
        len(cluster.topics),
        len(partitions),
        tuple(partition for partition in partitions if is_under_replicated(partition)),
        tuple(partition for partition in partitions if is_leaderless(partition, cluster)),
        access_rules,
        _few_replicas(cluster, offsets_factor),
        offline_log_dirs,
    )


def _few_replicas(cluster: ClusterMetadata, factor: int) -> FewReplicas | None:
    topic = cluster.topics.get(OFFSETS_TOPIC)
    has = factor
    if topic:
        has = min((len(partition.replicas) for partition in topic.partitions), default=factor)
    wanted = min(factor, len(cluster.brokers))
    return FewReplicas(OFFSETS_TOPIC, has, wanted) if has < wanted else None


def is_under_replicated(partition: PartitionMetadata) -> bool:
    """Return True if a replica is not in sync, as 0.10.1's tool counts them."""
    return len(partition.in_sync) < len(partition.replicas)


def is_leaderless(partition: PartitionMetadata, cluster: ClusterMetadata) -> bool:
    """Return True if it has no leader, or one that is not alive."""
    return partition.leader_id not in cluster.brokers
