"""New topics, and explanations of failed creations and deletions.

The responses of CreateTopics 0 and of DeleteTopics before 5 contain codes only, and often those of later
versions. The brokers' checks decide; this module explains their codes afterwards from the cluster's metadata.
Topics that are always invalid are rejected before the request.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from minikafka.base.config.unknown_names import near_matches
from minikafka.base.errors import BrokerError, ConfigError, ErrorCode
from minikafka.base.ids import INTERNAL_TOPICS, check_topic_name, has_collision
from minikafka.clients.network.metadata import ClusterMetadata, TopicMetadata
from minikafka.clients.network.response_errors import denied
from minikafka.controller.assignment import assign_replicas
from minikafka.wire.apis.create_topics import CreatableTopicResult

BROKER_DEFAULT = -1
"""For partitions or replicas: the broker's default, from version 4 of CreateTopics on (KIP-464)."""
PARTITIONS_MAX = (1 << 31) - 1
REPLICAS_MAX = (1 << 15) - 1
"""The largest numbers that CreateTopics can carry."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create: with numbers of partitions and replicas, or ``assignments`` of partitions to broker
    ids.

    BROKER_DEFAULT (-1) of either takes ``num.partitions`` or ``default.replication.factor`` of the broker, as
    in Kafka since 2.4. ``configs`` are Kafka's topic settings, such as ``retention.ms``. ``rack_aware``:
    False assigns the replicas in the client, to the live brokers without regard to racks.
    """

    name: str
    partitions: int = 1
    replication_factor: int = 1
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, str] = field(default_factory=dict)
    rack_aware: bool = True

    @property
    def takes_defaults(self) -> bool:
        """True if the broker chooses the number of partitions or replicas."""
        return not self.assignments and BROKER_DEFAULT in (self.partitions, self.replication_factor)

    def check(self) -> None:
        """Raise BrokerError if the topic would be invalid in every cluster: INVALID_TOPIC,
        INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR.
        """
        check_topic_name(self.name)
        if self.assignments:
            return
        if not self.rack_aware and self.takes_defaults:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST, "rack_aware=False needs the numbers of partitions and replicas"
            )
        if self.partitions != BROKER_DEFAULT and not 1 <= self.partitions <= PARTITIONS_MAX:
            raise BrokerError(
                ErrorCode.INVALID_PARTITIONS,
                f"expected 1 to {PARTITIONS_MAX} partitions, got {self.partitions}",
            )
        factor = self.replication_factor
        if factor != BROKER_DEFAULT and not 1 <= factor <= REPLICAS_MAX:
            raise BrokerError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"expected 1 to {REPLICAS_MAX} replicas, got {self.replication_factor}",
            )


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A new topic, as brokers made it.

    topic_id            zero before Kafka 2.8
    partitions          their number; -1: the brokers' default, which this client may not know
    replication_factor  the replicas of each partition; of the first, if an assignment has several numbers
    configs             all settings, also the defaults; None: before Kafka 2.4, or without DescribeConfigs
    """

    name: str
    topic_id: bytes
    partitions: int
    replication_factor: int
    configs: Mapping[str, str | None] | None = None


def created_topic(asked: NewTopic, result: CreatableTopicResult, known: TopicMetadata | None) -> CreatedTopic:
    """Return the topic that a CreateTopics response tells of.

    known: its metadata, for what the response does not have; None: this client may not describe it.
    """
    partitions, factor = result.num_partitions, result.replication_factor
    if partitions < 0 or factor < 0:  # brokers before 2.4, or no DescribeConfigs
        if known is not None and known.partitions:
            partitions, factor = len(known.partitions), len(known.partitions[0].replicas)
        elif asked.assignments:
            partitions, factor = len(asked.assignments), len(next(iter(asked.assignments.values())))
        else:
            partitions, factor = asked.partitions, asked.replication_factor
    configs = None if result.configs is None else {row.name: row.value for row in result.configs}
    topic_id = result.topic_id if known is None else known.topic_id
    return CreatedTopic(asked.name, topic_id, partitions, factor, configs)


def spread_without_racks(
    broker_ids: Iterable[int], partitions: int, replication_factor: int, *, first_partition: int = 0
) -> dict[int, tuple[int, ...]]:
    """Return the replicas of new partitions, assigned without regard to racks (``--disable-rack-aware``).

    Raises BrokerError INVALID_PARTITIONS or INVALID_REPLICATION_FACTOR.
    """
    live = sorted(broker_ids)
    return assign_replicas(
        live,
        partitions,
        replication_factor,
        start_index=random.randrange(max(1, len(live))),
        start_shift=random.randrange(max(1, len(live))),
        first_partition=first_partition,
    )


def explain_create_error(code: ErrorCode, topic: NewTopic, known: ClusterMetadata) -> str | None:
    """Return the reason for ``code`` in a CreateTopics response; None if its name says it all."""
    if code is ErrorCode.TOPIC_ALREADY_EXISTS:
        return f"topic {topic.name!r} already exists"
    if code is ErrorCode.INVALID_TOPIC:
        other = next((name for name in known.topics if has_collision(name, topic.name)), None)
        if other is not None:
            return f"{topic.name!r} collides with topic {other!r}: names must differ in more than '.' and '_'"
        return f"the cluster rejected the name {topic.name!r}"
    if code is ErrorCode.INVALID_PARTITIONS:
        return f"the cluster rejected the number of partitions {topic.partitions}"
    if code is ErrorCode.INVALID_REPLICATION_FACTOR:
        live = len(known.brokers)
        if topic.replication_factor <= live:
            return f"the cluster rejected the number of replicas {topic.replication_factor}"
        factor = topic.replication_factor
        return f"{factor} replicas need as many live brokers; the cluster has {live}"
    if code is ErrorCode.INVALID_REPLICA_ASSIGNMENT:
        given = {number: list(brokers) for number, brokers in topic.assignments.items()}
        return f"the assignment {given} does not fit the live brokers {sorted(known.brokers)}"
    if code is ErrorCode.INVALID_CONFIG:
        return _explain_invalid_config(topic.configs)
    return _explain_denied(code, "Create", topic.name)


def explain_delete_error(code: ErrorCode, name: str, known: ClusterMetadata) -> str | None:
    """Return the reason for ``code`` in a DeleteTopics response; None if its name says it all."""
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return unknown_topic_message(name, known.topics)
    if code in (ErrorCode.INVALID_REQUEST, ErrorCode.TOPIC_DELETION_DISABLED):
        return f"topic {name!r} was not deleted: delete.topic.enable is false on the brokers"
    if code is ErrorCode.REQUEST_TIMED_OUT:
        return (
            f"topic {name!r} is marked for deletion, and is deleted when all brokers with its replicas are "
            "alive (brokers before 0.11: never, unless delete.topic.enable is true)"
        )
    return _explain_denied(code, "Delete", name)


def unknown_topic_message(name: str, known: Iterable[str], *, may_be_hidden: bool = False) -> str:
    """Return a message for an unknown topic, with similar names.

    may_be_hidden: brokers have named ``known``, and leave out what this client may not describe.
    """
    hint = near_matches(name, [other for other in known if other not in INTERNAL_TOPICS])
    hidden = ", or this client may not describe it" if may_be_hidden else ""
    return f"there is no topic {name!r}{hidden}{hint}"


def _explain_invalid_config(configs: Mapping[str, str]) -> str:
    from minikafka.log.config import LogConfig

    try:
        LogConfig.from_properties({}, configs)
    except ConfigError as problem:
        return str(problem)
    given = ", ".join(f"{name}={value}" for name, value in configs.items())
    return f"the cluster rejected one of the settings {given}"


def _explain_denied(code: ErrorCode, operation: str, name: str) -> str | None:
    if code is ErrorCode.POLICY_VIOLATION:
        return f"a policy of the cluster does not allow this topic to be {operation.lower()}d"
    if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return denied(operation, "the cluster")
    if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return denied(operation, f"topic {name!r}")
    return None
