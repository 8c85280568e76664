"""The health of a cluster: live brokers, their replicas, and partitions with problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from minikafka.base.ids import OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, BrokerAddress
from minikafka.base.text import counted, first_of
from minikafka.clients.admin.log_dirs import OfflineLogDir
from minikafka.clients.network.metadata import ClusterMetadata, PartitionMetadata

FACTORS = {
    OFFSETS_TOPIC: "offsets.topic.replication.factor",
    TRANSACTION_STATE_TOPIC: "transaction.state.log.replication.factor",
}
"""Internal topic -> the brokers' setting of its replicas."""
MIN_ISR = "transaction.state.log.min.isr"
"""The brokers' setting of ``min.insync.replicas`` of ``__transaction_state``."""
_KEPT_IN = {
    OFFSETS_TOPIC: ("groups", "offsets.json"),
    TRANSACTION_STATE_TOPIC: ("transactions", "transactions.json"),
}
"""Internal topic -> what it keeps, and the name of a plan to move it."""
_NAMED_MAX = 5
"""The most partitions that a finding names."""
_DEFAULT_FACTOR = 3
_DEFAULT_MIN_ISR = 2


@dataclass(frozen=True, slots=True)
class InternalTopicSettings:
    """The settings of internal topics; Kafka's defaults unless they are known."""

    factors: Mapping[str, int] = field(default_factory=dict)
    """Topic -> the replicas that it should have."""
    wanted_min_isr: int = _DEFAULT_MIN_ISR
    """``transaction.state.log.min.isr`` of brokers."""
    min_isr: int | None = None
    """``min.insync.replicas`` of ``__transaction_state``; None: not known."""

    @classmethod
    def of(cls, broker: Mapping[str, str | None], topic: Mapping[str, str | None]) -> InternalTopicSettings:
        """Return them from the settings of a broker and of ``__transaction_state``, by name."""
        factors = {name: _number(broker.get(setting)) for name, setting in FACTORS.items()}
        return cls(
            {name: factor for name, factor in factors.items() if factor is not None},
            _number(broker.get(MIN_ISR)) or _DEFAULT_MIN_ISR,
            _number(topic.get("min.insync.replicas")),
        )


def _number(value: str | None) -> int | None:
    return int(value) if value is not None and value.isdecimal() else None


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

    Its groups or transactions wait when a broker stops.
    """

    topic: str
    has: int
    """The fewest replicas of a partition."""
    wanted: int


@dataclass(frozen=True, slots=True)
class LowMinIsr:
    """``__transaction_state`` with a low ``min.insync.replicas``, as it was created with fewer brokers.

    The outcome of a transaction can be lost with one disk.
    """

    has: int
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
    few_replicas: tuple[FewReplicas, ...] = ()
    """The internal topics that have fewer replicas than they should and than there are live brokers."""
    low_min_isr: LowMinIsr | None = None
    without_transactions: tuple[PartitionMetadata, ...] = ()
    """Partitions of ``__transaction_state`` that take no records: without a leader, or with fewer replicas in
    sync than ``min.insync.replicas``."""
    offline_log_dirs: tuple[OfflineLogDir, ...] = ()
    """Data directories of live brokers that are offline, or that have offline logs."""

    @property
    def live(self) -> tuple[int, ...]:
        """The live brokers."""
        return tuple(broker.broker_id for broker in self.brokers if broker.address is not None)

    @property
    def healthy(self) -> bool:
        """True if there is a controller, every partition has a leader and all its replicas in sync, no data
        directory is offline, and transactions are available.

        Also False if ACLs may hide every topic.
        """
        return not self.unseen and not (
            self.controller_id is None
            or self.under_replicated
            or self.leaderless
            or self.offline_log_dirs
            or self.without_transactions
        )

    @property
    def unseen(self) -> bool:
        """True if no topic is visible, and ACLs may be the cause."""
        return self.access_rules and not self.topics


def health_of(
    cluster: ClusterMetadata,
    *,
    access_rules: bool = False,
    settings: InternalTopicSettings | None = None,
    offline_log_dirs: tuple[OfflineLogDir, ...] = (),
) -> ClusterHealth:
    """Return the health of a cluster from the metadata of all topics (with ACLs: of all visible topics).

    settings: those of internal topics; None: Kafka's defaults. Partitions are sorted by topic, internal
    topics last.
    """
    settings = settings or InternalTopicSettings()
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
        tuple(_few_replicas(cluster, settings.factors)),
        _low_min_isr(cluster, settings),
        tuple(_without_transactions(cluster, settings.min_isr)),
        offline_log_dirs,
    )


def _few_replicas(cluster: ClusterMetadata, factors: Mapping[str, int]) -> Iterator[FewReplicas]:
    for topic in FACTORS:
        wanted = min(factors.get(topic, _DEFAULT_FACTOR), len(cluster.brokers))
        has = _fewest_replicas(cluster, topic)
        if has is not None and has < wanted:
            yield FewReplicas(topic, has, wanted)


def _low_min_isr(cluster: ClusterMetadata, settings: InternalTopicSettings) -> LowMinIsr | None:
    replicas = _fewest_replicas(cluster, TRANSACTION_STATE_TOPIC)
    if replicas is None or settings.min_isr is None:
        return None
    wanted = min(settings.wanted_min_isr, replicas)
    return LowMinIsr(settings.min_isr, wanted) if settings.min_isr < wanted else None


def _without_transactions(cluster: ClusterMetadata, min_isr: int | None) -> Iterator[PartitionMetadata]:
    topic = cluster.topics.get(TRANSACTION_STATE_TOPIC)
    for partition in () if topic is None else topic.partitions:
        if is_leaderless(partition, cluster) or len(partition.in_sync) < (min_isr or 1):
            yield partition


def _fewest_replicas(cluster: ClusterMetadata, name: str) -> int | None:
    """Return the fewest replicas of a partition of a topic; None without the topic."""
    topic = cluster.topics.get(name)
    return None if topic is None else min((len(one.replicas) for one in topic.partitions), default=None)


def is_under_replicated(partition: PartitionMetadata) -> bool:
    """Return True if a replica is not in sync, as 0.10.1's tool counts them."""
    return len(partition.in_sync) < len(partition.replicas)


def is_leaderless(partition: PartitionMetadata, cluster: ClusterMetadata) -> bool:
    """Return True if it has no leader, or one that is not alive."""
    return partition.leader_id not in cluster.brokers


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem of a cluster: what it is and what to do, with the commands for it.

    is_advice: the cluster is healthy, and will not be when a broker stops.
    """

    text: str
    commands: tuple[str, ...] = ()
    is_advice: bool = False


def findings(health: ClusterHealth, at: str = "") -> list[Finding]:
    """Return all problems, the worst first. at: the option of commands that names this cluster."""
    found = []
    if health.controller_id is None:
        text = "no broker is the controller, so that no leader is elected and no topic is created or deleted"
        found.append(Finding(f"{text}; check that brokers run and reach ZooKeeper or their quorum"))
    needed = {replica for part in health.leaderless for replica in part.in_sync or part.replicas}
    if health.leaderless:
        what = "without a leader, which nobody can read or write"
        todo = f"start a broker that has a replica in sync: {_numbers(needed)}"
        found.append(Finding(f"{_partitions(health.leaderless)} {what}: {todo}"))
    dead = {broker.broker_id for broker in health.brokers if broker.address is None}
    found += _replica_findings(health.under_replicated, dead, dead - needed)
    for log_dir in health.offline_log_dirs:
        what = f"log dir {log_dir.path} of broker {log_dir.broker_id} is offline, or has an offline log"
        todo = "see the broker's log for the reason, mend the disk, and restart the broker"
        found.append(Finding(f"{what}; {todo}"))
    return found + list(internal_topic_findings(health, at))


def _replica_findings(
    under_replicated: Iterable[PartitionMetadata], dead: set[int], unnamed: set[int]
) -> Iterator[Finding]:
    """Yield the problems of replicas. unnamed: the dead brokers that no other finding names."""
    late = {part: set(part.replicas) - set(part.in_sync) for part in under_replicated}
    of_dead = tuple(part for part in late if late[part] <= dead)
    if named := unnamed.union(*(late[part] for part in of_dead)):
        what = f": {_partitions(of_dead)} under-replicated" if of_dead else ", but with replicas"
        who, it, its = ("broker", "it", "its") if len(named) == 1 else ("brokers", "them", "their")
        state = f"{who} {_numbers(named)} {'is' if len(named) == 1 else 'are'} dead"
        yield Finding(f"{state}{what}; start {it}, or move {its} replicas with minikafka reassign")
    if others := tuple(part for part in late if not late[part] <= dead):
        brokers = set().union(*(late[part] for part in others)) - dead
        what = f"under-replicated: not in sync at broker {_numbers(brokers)}"
        yield Finding(f"{_partitions(others)} {what}; see the broker's log for the reason")


def _numbers(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(brokers)))


def _partitions(partitions: tuple[PartitionMetadata, ...]) -> str:
    names = first_of([str(partition.topic_partition) for partition in partitions], _NAMED_MAX)
    return f"{counted(len(partitions), 'partition')} ({names})"


def internal_topic_findings(health: ClusterHealth, at: str = "") -> Iterator[Finding]:
    """Yield the problems of the topics in which groups and transactions are kept."""
    if stopped := health.without_transactions:
        yield Finding(
            f"transactions are unavailable in {counted(len(stopped), 'partition')} of "
            f"{TRANSACTION_STATE_TOPIC}: no leader, or fewer replicas in sync than min.insync.replicas"
        )
    brokers = ",".join(map(str, health.live))
    for few in health.few_replicas:
        what, file = _KEPT_IN[few.topic]
        plan = f"--brokers {brokers} --replicas {few.wanted}{at} > {file}"
        yield Finding(
            f"{few.topic} has {counted(few.has, 'replica')} instead of {few.wanted} "
            f"({FACTORS[few.topic]}): {what} are unavailable while a broker is down; to add replicas:",
            (
                f"minikafka reassign generate {few.topic} {plan}",
                f"minikafka reassign execute --file {file}{at}",
            ),
            is_advice=True,
        )
    if (low := health.low_min_isr) is not None:
        setting = f"min.insync.replicas={low.wanted}"
        yield Finding(
            f"{TRANSACTION_STATE_TOPIC} has min.insync.replicas {low.has} instead of {low.wanted} "
            f"({MIN_ISR}): the outcome of a transaction can be lost with one disk; to raise it:",
            (f"minikafka config set topic {TRANSACTION_STATE_TOPIC} {setting}{at}",),
            is_advice=True,
        )
