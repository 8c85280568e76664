"""Settings of a consumer in a group, under Kafka's own property names."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar

from minikafka.base.config.config_def import REQUIRED, AbstractConfig, Faults, setting
from minikafka.base.config.types import ANY_TEXT, BOOLEAN, WORDS, Type, capped_int64, choice, int32, text_type
from minikafka.base.errors import ConfigError
from minikafka.clients.common_client_configs import SECURITY_SETTINGS, UNSUPPORTED_BY_CLIENTS, ClientSecurity
from minikafka.clients.fetch.isolation_level import ISOLATION_LEVEL, IsolationLevel
from minikafka.clients.group.assignors import ASSIGNORS, COOPERATIVE

_JAVA_PACKAGE = "org.apache.kafka.clients.consumer."
_JAVA_NAMES = {
    f"{_JAVA_PACKAGE}RangeAssignor": "range",
    f"{_JAVA_PACKAGE}RoundRobinAssignor": "roundrobin",
    f"{_JAVA_PACKAGE}CooperativeStickyAssignor": "cooperative-sticky",
}


class Reset(Enum):
    """The start position when the group has no offset of a partition, or one that the log no longer has."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"


def _group_id(text: str) -> str:
    if not text:
        raise ValueError
    return text


def _assignors(given: object) -> tuple[str, ...]:
    names = tuple(_JAVA_NAMES.get(name, name) for name in WORDS.convert(given))
    if not names or any(name not in ASSIGNORS for name in names):
        raise ValueError
    return names


@dataclass(frozen=True, slots=True)
class GroupConsumerConfig(AbstractConfig):
    """The settings of a consumer's group membership and fetches. Defaults are those of Kafka 0.10.1.

    ``assignors`` are offered to the group in this order. Sizes are bytes. ``max_poll_records`` applies to
    records as objects; ``metadata_max_age_ms`` is how often a pattern looks for new topics; without
    ``exclude_internal_topics`` it finds internal ones too. Every setting may also be given as text. Raises
    ConfigErrors with all invalid settings.
    """

    UNSUPPORTED: ClassVar[Mapping[str, str]] = UNSUPPORTED_BY_CLIENTS
    PASSED_ON: ClassVar[Collection[str]] = SECURITY_SETTINGS

    group_id: str = setting(
        "group.id",
        text_type("a name that the members of the group share", _group_id),
        REQUIRED,
        "The name of the group.",
    )
    group_instance_id: str | None = setting(
        "group.instance.id",
        text_type("a name that no other consumer of the group has", _group_id),
        None,
        "The name of a static member, which gets its partitions back without a rebalance if it restarts "
        "within `session.timeout.ms`. Brokers from 2.3 on have them.",
    )
    session_timeout_ms: int = setting(
        "session.timeout.ms", int32(1), 10_000, "How long a member may be silent before it leaves the group."
    )
    heartbeat_interval_ms: int = setting(
        "heartbeat.interval.ms", int32(1), 3_000, "How often a member tells the group that it is alive."
    )
    max_poll_interval_ms: int = setting(
        "max.poll.interval.ms", int32(1), 300_000, "The longest time between two polls of a member."
    )
    max_poll_records: int = setting("max.poll.records", int32(1), 500, "The most records of one poll.")
    auto_commit: bool = setting("enable.auto.commit", BOOLEAN, True, "Whether offsets are committed by time.")
    auto_commit_interval_ms: int = setting("auto.commit.interval.ms", int32(0), 5_000, "How often that is.")
    auto_offset_reset: Reset = setting(
        "auto.offset.reset",
        choice({reset.value: reset for reset in Reset}),
        Reset.LATEST,
        "Where to start without a committed offset, or with one that the log does not have.",
    )
    assignors: tuple[str, ...] = setting(
        "partition.assignment.strategy",
        Type(f"one or more of {', '.join(ASSIGNORS)}", _assignors),
        ("range",),
        "How partitions are divided among the members, in order of preference.",
    )
    fetch_min_bytes: int = setting("fetch.min.bytes", int32(0), 1, "Bytes for which a broker waits.")
    fetch_max_wait_ms: int = setting("fetch.max.wait.ms", int32(0), 500, "How long it waits.")
    fetch_max_bytes: int = setting("fetch.max.bytes", int32(1), 52_428_800, "Bytes of one fetch in all.")
    max_partition_fetch_bytes: int = setting(
        "max.partition.fetch.bytes", int32(1), 1_048_576, "Bytes of a partition in one fetch."
    )
    rack: str = setting(
        "client.rack",
        ANY_TEXT,
        "",
        "The rack of this consumer: a leader may send it to a follower in it (KIP-392).",
    )
    retry_backoff_ms: int = setting(
        "retry.backoff.ms", capped_int64(0), 100, "How long to wait before a failed request is repeated."
    )
    metadata_max_age_ms: int = setting(
        "metadata.max.age.ms", capped_int64(0), 300_000, "How often a pattern looks for new topics."
    )
    exclude_internal_topics: bool = setting(
        "exclude.internal.topics", BOOLEAN, True, "Whether a pattern leaves out internal topics."
    )
    isolation: IsolationLevel = setting(
        "isolation.level",
        ISOLATION_LEVEL,
        IsolationLevel.READ_UNCOMMITTED,
        "`read_uncommitted` or `read_committed`.",
    )

    security: ClientSecurity | None = field(default=None, repr=False)
    """``security.protocol``, ``ssl.*`` and ``sasl.*``: those of the ClusterClient; None: not given."""

    @property
    def is_cooperative(self) -> bool:
        """True if members keep their partitions while they rejoin: with cooperative assignors alone."""
        return COOPERATIVE.issuperset(self.assignors)

    @classmethod
    def _other_fields(cls, properties: Mapping[str, object], faults: Faults) -> Mapping[str, object]:
        return {"security": faults.attempt(lambda: ClientSecurity.given_in(properties), None)}

    def _conflicts(self) -> Iterator[tuple[str, ConfigError]]:
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            allowed = f"must be less than session.timeout.ms, which is {self.session_timeout_ms}"
            error = ConfigError("heartbeat.interval.ms", self.heartbeat_interval_ms, allowed)
            yield "session.timeout.ms", error
