"""How a cluster is: which brokers live, what each leads and follows, which partitions want for something."""

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
    """One broker, and its replicas."""

    broker_id: int
    address: BrokerAddress | None
    """None for one that has replicas and does not live."""
    leads: int
    follows: int
    """Partitions of which it has a replica and that it does not lead."""
    preferred: int
    """Partitions that it should lead, being the first of their replicas."""
    out_of_sync: int
    """Its replicas that are not in sync."""


@dataclass(frozen=True, slots=True)
class FewReplicas:
    """A topic made when there were fewer brokers, all of whose groups wait when one of them is away."""

    topic: str
    has: int
    """Replicas of the partition that has fewest."""
    wanted: int


@dataclass(frozen=True, slots=True)
class ClusterHealth:
    """The cluster as one broker told it."""

    cluster_id: str | None
    controller_id: int | None
    brokers: tuple[BrokerHealth, ...]
    """By their ids."""
    topics: int
    partitions: int
    under_replicated: tuple[PartitionMetadata, ...]
    """Those with a replica that is not in sync."""
    leaderless: tuple[PartitionMetadata, ...]
    """Those that nobody can write to or read."""
    access_rules: bool = False
    """Whether brokers enforce access rules: topics that this client may not describe are not counted."""
    few_replicas: FewReplicas | None = None
    """Of the topic of offsets, where more brokers live than it has replicas, and it should have more."""
    offline_log_dirs: tuple[OfflineLogDir, ...] = ()
    """Data directories of live brokers whose logs, all or some, take no more messages."""

    @property
    def live(self) -> tuple[int, ...]:
        """The brokers that live."""
        return tuple(broker.broker_id for broker in self.brokers if broker.address is not None)

    @property
    def healthy(self) -> bool:
        """Whether there is a controller, every partition has a leader and all its replicas in sync, and no
        data directory is offline.

        False too where rules may hide every topic.
        """
        return not self.unseen and not (
            self.controller_id is None or self.under_replicated or self.leaderless or self.offline_log_dirs
        )

    @property
    def unseen(self) -> bool:
        """Whether no topic is seen, and rules may be why."""
        return self.access_rules and not self.topics


def health_of(
    cluster: ClusterMetadata,
    *,
    access_rules: bool = False,
    offsets_factor: int = OFFSETS_FACTOR,
    offline_log_dirs: tuple[OfflineLogDir, ...] = (),
) -> ClusterHealth:
    """The health of a cluster whose metadata are those of all topics, or with rules of those that are seen.

    offsets_factor: the brokers' ``offsets.topic.replication.factor``.
    Partitions come by topic, those of Kafka's own use last.
    """
    topics = sorted(cluster.topics.values(), key=lambda topic: (topic.is_internal, topic.name))
    partitions = [one for topic in topics for one in topic.partitions]
    leads = Counter(one.leader_id for one in partitions)
    preferred = Counter(one.replicas[0] for one in partitions if one.replicas)
    has = Counter(replica for one in partitions for replica in one.replicas)
    in_sync = Counter(replica for one in partitions for replica in set(one.in_sync) & set(one.replicas))
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
        tuple(one for one in partitions if is_under_replicated(one)),
        tuple(one for one in partitions if is_leaderless(one, cluster)),
        access_rules,
        _few_replicas(cluster, offsets_factor),
        offline_log_dirs,
    )


def _few_replicas(cluster: ClusterMetadata, factor: int) -> FewReplicas | None:
    topic = cluster.topics.get(OFFSETS_TOPIC)
    has = min((len(one.replicas) for one in topic.partitions), default=factor) if topic else factor
    wanted = min(factor, len(cluster.brokers))
    return FewReplicas(OFFSETS_TOPIC, has, wanted) if has < wanted else None


def is_under_replicated(partition: PartitionMetadata) -> bool:
    """Whether a replica is not in sync, as 0.10.1's tool counts them."""
    return len(partition.in_sync) < len(partition.replicas)


def is_leaderless(partition: PartitionMetadata, cluster: ClusterMetadata) -> bool:
    """Whether nobody leads it, or a broker that does not live."""
    return partition.leader_id not in cluster.brokers
