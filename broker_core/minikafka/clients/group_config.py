"""Settings of a consumer in a group, under Kafka's own property names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from enum import Enum

from minikafka.base.errors import ConfigError, ConfigErrors
from minikafka.clients.group_assignors import ASSIGNORS
from minikafka.clients.isolation import IsolationLevel

_INT32_MAX = (1 << 31) - 1
_JAVA_PACKAGE = "org.apache.kafka.clients.consumer."
_JAVA_NAMES = {
    f"{_JAVA_PACKAGE}RangeAssignor": "range",
    f"{_JAVA_PACKAGE}RoundRobinAssignor": "roundrobin",
}


class Reset(Enum):
    """Where to read a partition of which the group has no offset, or one that the log has no more."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class GroupConsumerConfig:
    """How a consumer keeps its place in a group, and how it fetches. Defaults are those of Kafka 0.10.1.

    ``assignors`` are offered to the group in this order. Sizes are bytes. ``max_poll_records`` is for records
    as objects; ``metadata_max_age_ms`` is how often a pattern looks for topics, and without
    ``exclude_internal_topics`` it finds internal ones too. Raises ConfigErrors with all that is wrong.
    """

    group_id: str
    session_timeout_ms: int = 10_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    max_poll_records: int = 500
    auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    auto_offset_reset: Reset = Reset.LATEST
    assignors: tuple[str, ...] = ("range",)
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 52_428_800
    max_partition_fetch_bytes: int = 1_048_576
    retry_backoff_ms: int = 100
    metadata_max_age_ms: int = 300_000
    exclude_internal_topics: bool = True
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED

    def __post_init__(self) -> None:
        faults = list(self._faults())
        if faults:
            raise ConfigErrors(faults)

    def _faults(self) -> Iterator[ConfigError]:
        if not self.group_id:
            yield ConfigError("group.id", self.group_id, "a name that the members of the group share")
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if not least <= value <= _INT32_MAX:
                yield ConfigError(_KAFKA_NAMES[name], value, f"a number from {least} to {_INT32_MAX}")
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            yield ConfigError(
                "heartbeat.interval.ms",
                self.heartbeat_interval_ms,
                f"less than session.timeout.ms, which is {self.session_timeout_ms}",
            )
        unknown = [name for name in self.assignors if name not in ASSIGNORS]
        if unknown or not self.assignors:
            yield ConfigError(
                "partition.assignment.strategy", ",".join(self.assignors), f"of {', '.join(ASSIGNORS)}"
            )

    @classmethod
    def from_properties(cls, properties: Mapping[str, object]) -> GroupConsumerConfig:
        """The settings that a mapping of Kafka's names holds; names of other things are ignored.

        Values may be text. Raises ConfigErrors with the name, the value and what is allowed of each property
        that cannot be.
        """
        known = {kafka: ours for ours, kafka in _KAFKA_NAMES.items()}
        values: dict[str, object] = {"group_id": ""}
        faults: list[ConfigError] = []
        for name, value in properties.items():
            if name in known:
                try:
                    values[known[name]] = _parsed(name, known[name], str(value).strip())
                except ConfigError as fault:
                    faults.append(fault)
        try:
            config = cls(**values)  # type: ignore[arg-type]  # the names come from the table
        except ConfigErrors as more:
            raise ConfigErrors([*faults, *more.faults]) from None
        if faults:
            raise ConfigErrors(faults)
        return config


def _parsed(name: str, field: str, text: str) -> object:
    if field == "group_id":
        return text
    if field in {"auto_commit", "exclude_internal_topics"}:
        if text.lower() not in {"true", "false"}:
            raise ConfigError(name, text, "true or false")
        return text.lower() == "true"
    if field == "auto_offset_reset":
        try:
            return Reset(text)
        except ValueError:
            raise ConfigError(name, text, f"one of {', '.join(one.value for one in Reset)}") from None
    if field == "isolation":
        return IsolationLevel.parse(name, text)
    if field == "assignors":
        given = [one.strip() for one in text.split(",") if one.strip()]
        return tuple(_JAVA_NAMES.get(one, one) for one in given)
    try:
        return int(text)
    except ValueError:
        raise ConfigError(name, text, "a whole number") from None


_KAFKA_NAMES = {
    "group_id": "group.id",
    "session_timeout_ms": "session.timeout.ms",
    "heartbeat_interval_ms": "heartbeat.interval.ms",
    "max_poll_interval_ms": "max.poll.interval.ms",
    "max_poll_records": "max.poll.records",
    "auto_commit": "enable.auto.commit",
    "auto_commit_interval_ms": "auto.commit.interval.ms",
    "auto_offset_reset": "auto.offset.reset",
    "assignors": "partition.assignment.strategy",
    "fetch_min_bytes": "fetch.min.bytes",
    "fetch_max_wait_ms": "fetch.max.wait.ms",
    "fetch_max_bytes": "fetch.max.bytes",
    "max_partition_fetch_bytes": "max.partition.fetch.bytes",
    "retry_backoff_ms": "retry.backoff.ms",
    "metadata_max_age_ms": "metadata.max.age.ms",
    "exclude_internal_topics": "exclude.internal.topics",
    "isolation": "isolation.level",
}
assert set(_KAFKA_NAMES) == {f.name for f in fields(GroupConsumerConfig)}

_LEAST = {
    "session_timeout_ms": 1,
    "heartbeat_interval_ms": 1,
    "max_poll_interval_ms": 1,
    "max_poll_records": 1,
    "auto_commit_interval_ms": 0,
    "fetch_min_bytes": 0,
    "fetch_max_wait_ms": 0,
    "fetch_max_bytes": 1,
    "max_partition_fetch_bytes": 1,
    "retry_backoff_ms": 0,
    "metadata_max_age_ms": 0,
}
