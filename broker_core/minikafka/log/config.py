"""Settings of a log: Kafka's topic properties over the broker's, with the names and defaults of 0.10.1.

Every property that 0.10.1 allows on a topic can be given and is checked. ``segment.ms`` has no upper bound
that means "never": LONG_MAX is far enough. ``message.format.version`` has the default of 2.1, so that what
producers of any age send is stored as they sent it. A topic's own value wins over the broker's
(``log.segment.bytes`` and so on), and that over the default. What a client asks for is checked strictly
(``with_overrides``); what ZooKeeper already has, perhaps of a newer Kafka, must not stop a broker
(``with_known_overrides``). One default differs from the release, as text 003 wants it:
``unclean.leader.election.enable=false``.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from minikafka.base.config.types import BOOLEAN, integer, one_of, real_number, whole_number
from minikafka.base.config.unknown_names import closest_match, with_suggestion
from minikafka.base.errors import ConfigError
from minikafka.log.retention import RetentionLimits, RetentionPolicy, policy_of
from minikafka.records.append.produced import Limits as MessageLimits
from minikafka.records.format.message_set import Codec, TimestampType

Parser = Callable[[str, str], Any]
LONG_MAX = (1 << 63) - 1
INT_MAX = (1 << 31) - 1
MIN_MESSAGE_BYTES = 14
"""CRC, magic, attributes, key length and value length: the smallest message (magic 0)."""

_HOUR_MS = 3_600_000
_MINUTE_MS = 60_000


def _retention_ms(name: str, text: str) -> int:
    value = whole_number(text)
    if value is None or not -1 <= value <= LONG_MAX:
        raise ConfigError(name, text, f"must be -1 (no limit), or a whole number from 0 to {LONG_MAX}")
    return value


def _broker_retention(name: str, text: str) -> int:
    """Parse a retention time of the broker. As in every release, any negative value means no limit."""
    value = whole_number(text)
    if not value or value > LONG_MAX:
        raise ConfigError(name, text, f"must be -1 (no limit), or a whole number from 1 to {LONG_MAX}")
    return value


_fraction = real_number("a number from 0 to 1", lambda value: 0 <= value <= 1).parse


def _cleanup_policy(name: str, text: str) -> frozenset[str]:
    parts = [part.strip() for part in text.split(",")]
    policies = frozenset(parts)
    if not all(":" in policy or policy in {"delete", "compact"} for policy in policies):
        raise ConfigError(
            name,
            text,
            "must be delete, compact, or both separated by a comma, in lower case "
            "(package.module:Class for delete)",
        )
    for policy in policies - {"delete", "compact"}:
        if name == "log.cleanup.policy":
            policy_of(policy)  # imports it: only the broker's own properties may do so
    return policies


def _message_format(name: str, text: str) -> str:
    version = text.strip()
    if _RELEASE.fullmatch(version) is None:
        raise ConfigError(name, text, "must be a release from 0.8.0 on, such as 0.10.1 or 2.1-IV2")
    return version


_RELEASE = re.compile(r"(0\.(8|9|10|11)|[1-3])\.\d+(\.\d+)*(-IV\d+)?")


def _magic_of(version: str) -> int:
    """Return the message format that a release introduced."""
    if version.startswith(("0.8.", "0.9.")):
        return 0
    return 1 if version.startswith("0.10.") else 2


_REPLICA = re.compile(r"\s*([0-9]{1,10}):([0-9]{1,10})\s*")  # no more digits than the ids have
_ALL_REPLICAS = "*"


def _throttled_replicas(name: str, text: str) -> str:
    value = text.strip()
    if value not in {"", _ALL_REPLICAS} and not all(map(_REPLICA.fullmatch, value.split(","))):
        raise ConfigError(name, text, "must be * or a list like 0:101,1:102 (partition:broker)")
    return value


def throttled_partitions(text: str, broker_id: int) -> frozenset[int] | None:
    """Return the partitions of a broker that a list of throttled replicas names; None means all partitions.

    ``text`` is the value of ``leader.replication.throttled.replicas`` or of the follower's property. An
    invalid list names no partition.
    """
    if text.strip() == _ALL_REPLICAS:
        return None
    found = [pair for pair in map(_REPLICA.fullmatch, text.split(",")) if pair is not None]
    if len(found) <= text.count(","):
        return frozenset()
    return frozenset(int(pair[1]) for pair in found if int(pair[2]) == broker_id)


_INT = integer(0, INT_MAX).parse
_LONG = integer(0, LONG_MAX).parse
_LONG_OR_NEGATIVE = integer(-(1 << 63), LONG_MAX).parse


@dataclass(frozen=True, slots=True)
class Property:
    """One topic property: its parser, its default, and the broker properties that give its default value.

    ``broker`` lists (broker property, factor) by falling precedence: one ``log.roll.hours`` is 3,600,000 ms.
    """

    parse: Parser
    default: Any
    broker: tuple[tuple[str, int], ...] = ()


TOPIC_PROPERTIES: dict[str, Property] = {
    "cleanup.policy": Property(_cleanup_policy, frozenset({"delete"}), (("log.cleanup.policy", 1),)),
    "compression.type": Property(
        one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd", exact=True).parse,
        "producer",
        (("compression.type", 1),),
    ),
    "delete.retention.ms": Property(_LONG, 86_400_000, (("log.cleaner.delete.retention.ms", 1),)),
    "file.delete.delay.ms": Property(_LONG, 60_000, (("log.segment.delete.delay.ms", 1),)),
    "flush.messages": Property(_LONG, LONG_MAX, (("log.flush.interval.messages", 1),)),
    "flush.ms": Property(
        _LONG, LONG_MAX, (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1))
    ),
    "follower.replication.throttled.replicas": Property(_throttled_replicas, ""),
    "index.interval.bytes": Property(_INT, 4096, (("log.index.interval.bytes", 1),)),
    "leader.replication.throttled.replicas": Property(_throttled_replicas, ""),
    "max.message.bytes": Property(_INT, 1_000_012, (("message.max.bytes", 1),)),
    "message.format.version": Property(_message_format, "2.1-IV2", (("log.message.format.version", 1),)),
    "message.timestamp.difference.max.ms": Property(
        _LONG, LONG_MAX, (("log.message.timestamp.difference.max.ms", 1),)
    ),
    "message.timestamp.type": Property(
        one_of("CreateTime", "LogAppendTime", exact=True).parse,
        "CreateTime",
        (("log.message.timestamp.type", 1),),
    ),
    "min.cleanable.dirty.ratio": Property(_fraction, 0.5, (("log.cleaner.min.cleanable.ratio", 1),)),
    "min.compaction.lag.ms": Property(_LONG, 0, (("log.cleaner.min.compaction.lag.ms", 1),)),
    "min.insync.replicas": Property(integer(1, INT_MAX).parse, 1, (("min.insync.replicas", 1),)),
    "preallocate": Property(BOOLEAN.parse, False, (("log.preallocate", 1),)),
    "retention.bytes": Property(_LONG_OR_NEGATIVE, -1, (("log.retention.bytes", 1),)),
    "retention.ms": Property(
        _retention_ms,
        604_800_000,
        (("log.retention.ms", 1), ("log.retention.minutes", _MINUTE_MS), ("log.retention.hours", _HOUR_MS)),
    ),
    "segment.bytes": Property(
        integer(MIN_MESSAGE_BYTES, INT_MAX).parse, 1 << 30, (("log.segment.bytes", 1),)
    ),
    "segment.index.bytes": Property(_INT, 10 << 20, (("log.index.size.max.bytes", 1),)),
    "segment.jitter.ms": Property(_LONG, 0, (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _HOUR_MS))),
    "segment.ms": Property(_LONG, 604_800_000, (("log.roll.ms", 1), ("log.roll.hours", _HOUR_MS))),
    "unclean.leader.election.enable": Property(
        BOOLEAN.parse, False, (("unclean.leader.election.enable", 1),)
    ),
}

_BROKER_PARSERS: dict[str, Parser] = {
    "log.flush.interval.messages": integer(1, LONG_MAX).parse,
    "log.index.size.max.bytes": integer(4, INT_MAX).parse,
    "log.retention.hours": _broker_retention,
    "log.retention.minutes": _broker_retention,
    "log.retention.ms": _broker_retention,
    "log.roll.hours": integer(1, INT_MAX).parse,
    "log.roll.ms": integer(1, LONG_MAX).parse,
}
"""Parsers of broker properties whose bounds differ from those of the topic property."""

_PRODUCER_EXPIRATION = "transactional.id.expiration.ms"
_PRODUCER_EXPIRATION_MS = 604_800_000

LIST_PROPERTIES = frozenset(
    {"cleanup.policy", "follower.replication.throttled.replicas", "leader.replication.throttled.replicas"}
)
"""Topic properties that are lists, with commas."""

BROKER_PROPERTIES: dict[str, Any] = {
    name: (entry.default if factor == 1 else entry.default // factor)
    if (name, factor) == entry.broker[-1]
    else None
    for entry in TOPIC_PROPERTIES.values()
    for name, factor in entry.broker
} | {_PRODUCER_EXPIRATION: _PRODUCER_EXPIRATION_MS}
"""The broker properties that this table reads, with their defaults. Of several properties for the same
setting only the one with the lowest precedence has a default: ``log.retention.hours``.
"""


def default_text(value: Any) -> str:
    """Return a default value as Kafka writes it."""
    if isinstance(value, frozenset):
        return ",".join(sorted(value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def check_topic_properties(overrides: Mapping[str, str]) -> None:
    """Raise ConfigError for a property that 0.10.1 does not know, or a value that it would refuse."""
    for name, text in overrides.items():
        entry = TOPIC_PROPERTIES.get(name)
        if entry is None:
            what = with_suggestion("unknown topic property", closest_match(name, TOPIC_PROPERTIES))
            known = ", ".join(sorted(TOPIC_PROPERTIES))
            raise ConfigError(name, text, f"{what}; known properties are {known}")
        entry.parse(name, text)


_CODECS = {
    "producer": None,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
"""``compression.type`` -> codec of stored messages; None: the codec of the producer."""


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The parsed settings of a log. Sizes are bytes; None means "never" or "no limit"."""

    segment_bytes: int = 1 << 30
    index_interval_bytes: int = 4096
    index_max_bytes: int = 10 << 20
    flush_messages: int | None = None
    flush_ms: int | None = None
    max_message_bytes: int = 1_000_012
    message_timestamp_type: TimestampType = TimestampType.CREATE_TIME
    message_timestamp_difference_max_ms: int | None = None
    compacted: bool = False
    """Whether ``cleanup.policy`` has ``compact``."""
    deletion_policies: tuple[str, ...] = ("delete",)
    """The other values of ``cleanup.policy``: see ``retention``."""
    retention_ms: int | None = 604_800_000
    retention_bytes: int | None = None
    segment_ms: int = 604_800_000
    segment_jitter_ms: int = 0
    file_delete_delay_ms: int = 60_000
    preallocate: bool = False
    delete_retention_ms: int = 86_400_000
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    compression_type: str = "producer"
    message_magic: int = 2
    """The highest magic that is stored: 0 for ``message.format.version`` 0.8 and 0.9, 1 for 0.10, else 2.
    With 0 and 1, all messages are converted to that magic."""
    min_insync_replicas: int = 1
    unclean_election: bool = False
    """Whether a replica that is not in sync may become leader when no in-sync replica is alive."""
    producer_expiration_ms: int = _PRODUCER_EXPIRATION_MS
    """``transactional.id.expiration.ms`` of the broker: producers that are idle for longer are removed."""
    # Derived from the settings above, as every batch needs them.
    index_entries_max: int = field(init=False, repr=False, compare=False)
    """The most entries in an offset index; a full index makes the log roll."""
    time_index_entries_max: int = field(init=False, repr=False, compare=False)
    """The most entries in a time index; a full index makes the log roll."""
    message_limits: MessageLimits = field(init=False, repr=False, compare=False)
    """Limits on the messages that producers send."""

    def __post_init__(self) -> None:
        limits = MessageLimits(
            max_message_bytes=self.max_message_bytes,
            timestamp_type=self.message_timestamp_type,
            max_timestamp_difference_ms=self.message_timestamp_difference_max_ms,
            compacted=self.compacted,
            max_magic=2,
            magic=self.message_magic,
            codec=_CODECS[self.compression_type],
        )
        object.__setattr__(self, "index_entries_max", max(1, self.index_max_bytes // 8))
        object.__setattr__(self, "time_index_entries_max", max(1, self.index_max_bytes // 12))
        object.__setattr__(self, "message_limits", limits)

    @property
    def policies(self) -> tuple[RetentionPolicy, ...]:
        """The policies that delete whole segments."""
        return tuple(policy_of(name) for name in self.deletion_policies)

    @property
    def limits(self) -> RetentionLimits:
        """The limits that the ``policies`` apply."""
        return RetentionLimits(self.retention_ms, self.retention_bytes)

    def max_segment_ms(self, segment_path: str) -> int:
        """``segment.ms`` less this segment's own share of ``segment.jitter.ms``.

        The share is a hash of the path, not random: it keeps the logs of a topic from rolling at once.
        """
        jitter_ms = min(self.segment_jitter_ms, self.segment_ms)
        return self.segment_ms - (zlib.crc32(segment_path.encode()) % jitter_ms if jitter_ms else 0)

    @classmethod
    def from_properties(
        cls, broker: Mapping[str, str], overrides: Mapping[str, str] | None = None
    ) -> LogConfig:
        """Build the settings of a topic. Broker properties that do not concern the log are ignored.

        Raises ConfigError for a value that is not allowed and for a topic property that 0.10.1 lacks.
        """
        values = {}
        for name, entry in TOPIC_PROPERTIES.items():
            for broker_name, factor in entry.broker:
                text = broker.get(broker_name)
                if text is not None:
                    value = _BROKER_PARSERS.get(broker_name, entry.parse)(broker_name, text)
                    values[name] = value * factor if factor != 1 else value
                    break
            else:
                values[name] = entry.default
        fields = _fields(values)
        if _PRODUCER_EXPIRATION in broker:
            text = broker[_PRODUCER_EXPIRATION]
            fields["producer_expiration_ms"] = integer(1, INT_MAX).parse(_PRODUCER_EXPIRATION, text)
        return replace(cls(), **fields).with_overrides(overrides or {})

    def with_overrides(self, overrides: Mapping[str, str]) -> LogConfig:
        """Return these settings with a topic's overrides. Raises ConfigError as ``from_properties`` does."""
        check_topic_properties(overrides)
        values = {name: TOPIC_PROPERTIES[name].parse(name, text) for name, text in overrides.items()}
        config = replace(self, **_fields(values))
        unknown = set(config.deletion_policies) - {"delete", *self.deletion_policies}
        if unknown:
            raise ConfigError(
                "cleanup.policy",
                overrides["cleanup.policy"],
                f"{min(unknown)} is not in log.cleanup.policy of the broker; add it there first",
            )
        return config

    def with_known_overrides(self, overrides: Mapping[str, str]) -> tuple[LogConfig, list[str]]:
        """Return these settings with the valid overrides, and a description of each invalid one.

        A description has the property's name and value. Where an invalid property may be one that retains
        messages, nothing is deleted: the default might delete them.
        """
        usable, problems, unsure = {}, [], False
        for name, text in sorted(overrides.items()):
            if name not in TOPIC_PROPERTIES:
                problems.append(str(ConfigError(name, text, "unknown topic property")))
                continue
            try:
                self.with_overrides({name: text})
            except ConfigError as error:
                problems.append(str(error))
                unsure = unsure or name in _KEEPING
            else:
                usable[name] = text
        config = self.with_overrides(usable)
        if unsure:
            config = replace(config, deletion_policies=())
            problems.append("retention by age and size is disabled for the topic until this is fixed")
        return config, problems


_KEEPING = frozenset({"cleanup.policy", "retention.bytes", "retention.ms"})


def _unless_endless(value: int) -> int | None:
    return None if value == LONG_MAX else value


def _unless_negative(value: int) -> int | None:
    return None if value < 0 else value


_STORED: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "compression.type": ("compression_type", str),
    "delete.retention.ms": ("delete_retention_ms", int),
    "file.delete.delay.ms": ("file_delete_delay_ms", int),
    "flush.messages": ("flush_messages", _unless_endless),
    "flush.ms": ("flush_ms", _unless_endless),
    "index.interval.bytes": ("index_interval_bytes", int),
    "max.message.bytes": ("max_message_bytes", int),
    "message.format.version": ("message_magic", _magic_of),
    "message.timestamp.difference.max.ms": ("message_timestamp_difference_max_ms", _unless_endless),
    "message.timestamp.type": (
        "message_timestamp_type",
        {"CreateTime": TimestampType.CREATE_TIME, "LogAppendTime": TimestampType.LOG_APPEND_TIME}.__getitem__,
    ),
    "min.cleanable.dirty.ratio": ("min_cleanable_dirty_ratio", float),
    "min.compaction.lag.ms": ("min_compaction_lag_ms", int),
    "min.insync.replicas": ("min_insync_replicas", int),
    "preallocate": ("preallocate", bool),
    "retention.bytes": ("retention_bytes", _unless_negative),
    "retention.ms": ("retention_ms", _unless_negative),
    "segment.bytes": ("segment_bytes", int),
    "segment.index.bytes": ("index_max_bytes", int),
    "segment.jitter.ms": ("segment_jitter_ms", int),
    "segment.ms": ("segment_ms", int),
    "unclean.leader.election.enable": ("unclean_election", bool),
}
"""Topic property -> (field of LogConfig, conversion of the parsed value)."""


def _fields(values: Mapping[str, Any]) -> dict[str, Any]:
    fields = {_STORED[name][0]: _STORED[name][1](value) for name, value in values.items() if name in _STORED}
    policies = values.get("cleanup.policy")
    if policies is not None:
        fields["compacted"] = "compact" in policies
        fields["deletion_policies"] = tuple(sorted(policies - {"compact"}))
    return fields
