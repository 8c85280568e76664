"""Settings of a consumer in a group, under Kafka's own property names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from enum import Enum

from minikafka.base.config.parsers import boolean, whole_number
from minikafka.base.config.unknown_names import warn_of_unknown
from minikafka.base.errors import ConfigError, ConfigErrors
from minikafka.clients.fetch.isolation_level import IsolationLevel
from minikafka.clients.group.assignors import ASSIGNORS

_INT32_MAX = (1 << 31) - 1
_JAVA_PACKAGE = "org.apache.kafka.clients.consumer."
_JAVA_NAMES = {
    f"{_JAVA_PACKAGE}RangeAssignor": "range",
    f"{_JAVA_PACKAGE}RoundRobinAssignor": "roundrobin",
}


class Reset(Enum):
    """The start position when the group has no offset of a partition, or one that the log no longer has."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class GroupConsumerConfig:
    """The settings of a consumer's group membership and fetches. Defaults are those of Kafka 0.10.1.

    ``assignors`` are offered to the group in this order. Sizes are bytes. ``max_poll_records`` applies to
    records as objects; ``metadata_max_age_ms`` is how often a pattern looks for new topics; without
    ``exclude_internal_topics`` it finds internal ones too. ``auto_offset_reset``, ``isolation`` and
    ``assignors`` may also be given as text. Raises ConfigErrors with all invalid settings.
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
        faults = [*self._parse_texts(), *self._faults()]
        if faults:
            raise ConfigErrors(faults)

    def _parse_texts(self) -> Iterator[ConfigError]:
        """Replace texts with their values, as callers may not use a type checker: a text would match no
        value.
        """
        for field, take in _FROM_TEXT.items():
            try:
                object.__setattr__(self, field, take(_KAFKA_NAMES[field], getattr(self, field)))
            except ConfigError as fault:
                yield fault

    def _faults(self) -> Iterator[ConfigError]:
        # As objects: callers may not use a type checker.
        values: dict[str, object] = {field: getattr(self, field) for field in _KAFKA_NAMES}
        if not isinstance(values["group_id"], str) or not values["group_id"]:
            yield ConfigError(
                "group.id", values["group_id"], "must be a name that the members of the group share"
            )
        wrong = [field for field, least in _MINIMUMS.items() if not _within(values[field], least)]
        for field in wrong:
            allowed = f"must be a number from {_MINIMUMS[field]} to {_INT32_MAX}"
            yield ConfigError(_KAFKA_NAMES[field], values[field], allowed)
        for field in ("auto_commit", "exclude_internal_topics"):
            if not isinstance(values[field], bool):
                yield ConfigError(_KAFKA_NAMES[field], values[field], "must be True or False")
        beats = {"heartbeat_interval_ms", "session_timeout_ms"}
        if not beats & set(wrong) and self.heartbeat_interval_ms >= self.session_timeout_ms:
            yield ConfigError(
                "heartbeat.interval.ms",
                self.heartbeat_interval_ms,
                f"must be less than session.timeout.ms, which is {self.session_timeout_ms}",
            )
        given = values["assignors"]
        names = given if isinstance(given, tuple) else (given,)
        if not names or any(name not in ASSIGNORS for name in names):
            shown = ",".join(map(str, names))
            yield ConfigError(
                "partition.assignment.strategy", shown, f"must be one or more of {', '.join(ASSIGNORS)}"
            )

    @classmethod
    def from_properties(cls, properties: Mapping[str, object]) -> GroupConsumerConfig:
        """Return the settings in a mapping of Kafka's names; other names are logged as a warning.

        Values may be text or Python values. Raises ConfigErrors with the name, the value and the allowed
        values of each invalid property.
        """
        known = {kafka: ours for ours, kafka in _KAFKA_NAMES.items()}
        warn_of_unknown(properties, known)
        values: dict[str, object] = {"group_id": ""}
        faults: list[ConfigError] = []
        for name, value in properties.items():
            if name in known:
                try:
                    values[known[name]] = _parsed(name, known[name], value)
                except ConfigError as fault:
                    faults.append(fault)
        try:
            config = cls(**values)  # type: ignore[arg-type]  # the names come from the table
        except ConfigErrors as more:
            raise ConfigErrors([*faults, *more.faults]) from None
        if faults:
            raise ConfigErrors(faults)
        return config


def _parsed(name: str, field: str, value: object) -> object:
    if field in _FROM_TEXT:
        return _FROM_TEXT[field](name, value)
    text = str(value).strip()
    if field == "group_id":
        return text
    if field in {"auto_commit", "exclude_internal_topics"}:
        return boolean(name, text)
    number = whole_number(text)
    if number is None:
        raise ConfigError(name, text, "must be a whole number")
    return number


def _within(value: object, least: int) -> bool:
    return isinstance(value, int) and least <= value <= _INT32_MAX


def _parse_reset(name: str, value: object) -> Reset:
    text = value.strip().lower() if isinstance(value, str) else value
    try:
        return Reset(text)
    except ValueError:
        raise ConfigError(
            name, value, f"must be one of {', '.join(reset.value for reset in Reset)}"
        ) from None


def _parse_isolation(name: str, value: object) -> IsolationLevel:
    return value if isinstance(value, IsolationLevel) else IsolationLevel.parse(name, str(value))


def _parse_assignors(name: str, value: object) -> object:
    if isinstance(value, str):
        value = [name.strip() for name in value.split(",") if name.strip()]
    return tuple(_JAVA_NAMES.get(name, name) for name in value) if isinstance(value, (list, tuple)) else value


_FROM_TEXT: Mapping[str, Callable[[str, object], object]] = {
    "auto_offset_reset": _parse_reset,
    "isolation": _parse_isolation,
    "assignors": _parse_assignors,
}
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

_MINIMUMS = {
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
