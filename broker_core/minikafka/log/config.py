"""Settings of a log: Kafka's topic properties over the broker's, with the names and defaults of 0.10.1.

Every property that 0.10.1 allows on a topic, and ``max.compaction.lag.ms`` of 2.3, can be given and is
checked. ``segment.ms`` has no upper bound that means "never": LONG_MAX is far enough.
``message.format.version`` has the default of 2.1, so that what producers of any age send is stored as they
sent it. A topic's own value wins over the broker's (``log.segment.bytes`` and so on), and that over the
default. What a client asks for is checked strictly (``with_overrides``); what ZooKeeper already has, perhaps
of a newer Kafka, must not stop a broker (``with_known_overrides``). One default differs from the release, as
text 003 wants it: ``unclean.leader.election.enable=false``.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from minikafka.base.config.config_def import ConfigDef, ConfigKey, Faults, Synonym, definition_of, setting
from minikafka.base.config.types import (
    BOOLEAN,
    LONG_MAX,
    LONG_MIN,
    ConfigType,
    Release,
    Type,
    choice,
    int32,
    int64,
    integer,
    one_of,
    real_number,
    release_type,
    text_type,
    whole_number,
)
from minikafka.base.config.unknown_names import closest_match, did_you_mean
from minikafka.base.errors import ConfigError
from minikafka.log.retention import RetentionLimits, RetentionPolicy, policy_of
from minikafka.records.append.produced import Limits as MessageLimits
from minikafka.records.format.message_set import Codec, TimestampType
from minikafka.records.kernels.layout import MIN_SIZE

MESSAGES, REPLICATION = "Messages", "Replication"
"""Groups of broker properties."""

_HOUR_MS = 3_600_000
_MINUTE_MS = 60_000


def _unless_endless(value: int) -> int | None:
    return None if value == LONG_MAX else value


def _unless_negative(value: int) -> int | None:
    return None if value < 0 else value


def _broker_retention(text: str) -> int | None:
    value = whole_number(text)
    if not value or value > LONG_MAX:
        raise ValueError
    return _unless_negative(value)


_RETENTION_MS = Type(
    f"-1 (no limit), or a whole number from 0 to {LONG_MAX}", integer(-1, LONG_MAX).convert, ConfigType.LONG
).then(_unless_negative)
_BROKER_RETENTION = text_type(
    f"a negative number such as -1 (no limit), or a whole number from 1 to {LONG_MAX}",
    _broker_retention,
    ConfigType.LONG,
)
"""A retention time of the broker. As in every release, any negative value means no limit."""


def _cleanup_policies(text: str) -> frozenset[str]:
    # A part without a word is refused: brokers of 0.10.1 do not start with a topic that has one.
    policies = frozenset(part.strip() for part in text.split(","))
    if not all(":" in policy or policy in {"delete", "compact"} for policy in policies):
        raise ValueError
    return policies


_CLEANUP_POLICY = text_type(
    "delete, compact, or both separated by a comma, in lower case (package.module:Class for delete)",
    _cleanup_policies,
    ConfigType.LIST,
)


def _imported_policies(policies: frozenset[str]) -> frozenset[str]:
    for policy in policies - {"delete", "compact"}:
        policy_of(policy)  # imports it: only the broker's own properties may do so
    return policies


def _has_formats(release: Release) -> bool:
    """Return True from 0.8.0 to 0.11.x.x, and from 1.0 to 3.x."""
    first, second, *others = release.numbers
    return 8 <= second <= 11 and bool(others) if first == 0 else first <= 3


def _magic_of(release: Release) -> int:
    """Return the message format that a release introduced."""
    return 0 if release.numbers < (0, 10) else 1 if release.numbers < (0, 11) else 2


_REPLICA = re.compile(r"\s*([0-9]{1,10}):([0-9]{1,10})\s*")  # no more digits than the ids have
_ALL_REPLICAS = "*"


def _throttled_replicas(text: str) -> str:
    if text not in {"", _ALL_REPLICAS} and not all(map(_REPLICA.fullmatch, text.split(","))):
        raise ValueError
    return text


_THROTTLED_REPLICAS = text_type(
    "* or a list like 0:101,1:102 (partition:broker)", _throttled_replicas, ConfigType.LIST
)


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

    segment_bytes: int = setting(
        "segment.bytes",
        int32(MIN_SIZE),
        1 << 30,
        "The size at which a new segment begins.",
        synonyms=(Synonym("log.segment.bytes"),),
    )
    index_interval_bytes: int = setting(
        "index.interval.bytes",
        int32(0),
        4096,
        "Bytes of messages between two entries of an index.",
        synonyms=(Synonym("log.index.interval.bytes"),),
    )
    index_max_bytes: int = setting(
        "segment.index.bytes",
        int32(0),
        10 << 20,
        "The largest index of a segment.",
        synonyms=(Synonym("log.index.size.max.bytes", type=int32(4)),),
    )
    flush_messages: int | None = setting(
        "flush.messages",
        int64(0).then(_unless_endless),
        LONG_MAX,
        "Messages after which the log is flushed to disk.",
        synonyms=(Synonym("log.flush.interval.messages", type=int64(1).then(_unless_endless)),),
    )
    flush_ms: int | None = setting(
        "flush.ms",
        int64(0).then(_unless_endless),
        LONG_MAX,
        "Time after which the log is flushed to disk.",
        synonyms=(Synonym("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms")),
    )
    max_message_bytes: int = setting(
        "max.message.bytes",
        int32(0),
        1_000_012,
        "The largest message, or compressed batch.",
        MESSAGES,
        synonyms=(Synonym("message.max.bytes"),),
    )
    message_timestamp_type: TimestampType = setting(
        "message.timestamp.type",
        choice(
            {"CreateTime": TimestampType.CREATE_TIME, "LogAppendTime": TimestampType.LOG_APPEND_TIME},
            exact=True,
        ),
        "CreateTime",
        "Whether a message keeps its producer's time or gets the broker's.",
        MESSAGES,
        synonyms=(Synonym("log.message.timestamp.type"),),
    )
    message_timestamp_difference_max_ms: int | None = setting(
        "message.timestamp.difference.max.ms",
        int64(0).then(_unless_endless),
        LONG_MAX,
        "How far a producer's time may differ from the broker's clock.",
        MESSAGES,
        synonyms=(Synonym("log.message.timestamp.difference.max.ms"),),
    )
    compacted: bool = False
    """True if ``cleanup.policy`` has ``compact``."""
    deletion_policies: tuple[str, ...] = ("delete",)
    """The other values of ``cleanup.policy``: see ``retention``."""
    retention_ms: int | None = setting(
        "retention.ms",
        _RETENTION_MS,
        604_800_000,
        "How long messages are kept. -1: for ever.",
        synonyms=(
            Synonym("log.retention.ms", type=_BROKER_RETENTION),
            Synonym("log.retention.minutes", _MINUTE_MS, _BROKER_RETENTION.as_kind(ConfigType.INT)),
            Synonym("log.retention.hours", _HOUR_MS, _BROKER_RETENTION.as_kind(ConfigType.INT)),
        ),
    )
    retention_bytes: int | None = setting(
        "retention.bytes",
        int64(LONG_MIN).then(_unless_negative),
        -1,
        "The size of a partition above which old segments are deleted. -1: no limit.",
        synonyms=(Synonym("log.retention.bytes"),),
    )
    segment_ms: int = setting(
        "segment.ms",
        int64(0),
        604_800_000,
        "The age at which a new segment begins.",
        synonyms=(Synonym("log.roll.ms", type=int64(1)), Synonym("log.roll.hours", _HOUR_MS, int32(1))),
    )
    segment_jitter_ms: int = setting(
        "segment.jitter.ms",
        int64(0),
        0,
        "The most by which the age differs from segment to segment.",
        synonyms=(Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", _HOUR_MS, int32(0))),
    )
    file_delete_delay_ms: int = setting(
        "file.delete.delay.ms",
        int64(0),
        60_000,
        "How long a deleted file stays on disk.",
        synonyms=(Synonym("log.segment.delete.delay.ms"),),
    )
    preallocate: bool = setting(
        "preallocate",
        BOOLEAN,
        False,
        "Whether the files of new segments get their full size at once.",
        synonyms=(Synonym("log.preallocate"),),
    )
    delete_retention_ms: int = setting(
        "delete.retention.ms",
        int64(0),
        86_400_000,
        "How long tombstones are kept in a compacted log.",
        synonyms=(Synonym("log.cleaner.delete.retention.ms"),),
    )
    min_cleanable_dirty_ratio: float = setting(
        "min.cleanable.dirty.ratio",
        real_number("a number from 0 to 1", lambda value: 0 <= value <= 1),
        0.5,
        "The share of the log that must be uncompacted before it is compacted.",
        synonyms=(Synonym("log.cleaner.min.cleanable.ratio"),),
    )
    min_compaction_lag_ms: int = setting(
        "min.compaction.lag.ms",
        int64(0),
        0,
        "How long a message is safe from compaction.",
        synonyms=(Synonym("log.cleaner.min.compaction.lag.ms"),),
    )
    max_compaction_lag_ms: int = setting(
        "max.compaction.lag.ms",
        int64(1),
        LONG_MAX,
        "The age of a message at which its log is compacted, however small the uncompacted share is.",
        synonyms=(Synonym("log.cleaner.max.compaction.lag.ms"),),
    )
    compression_type: str = setting(
        "compression.type",
        one_of(*_CODECS, exact=True),
        "producer",
        "The codec of what is stored; `producer`: as it was sent.",
        MESSAGES,
        synonyms=(Synonym("compression.type"),),
    )
    message_magic: int = setting(
        "message.format.version",
        release_type("a release from 0.8.0 on, such as 0.10.1 or 2.1-IV2", _has_formats).then(_magic_of),
        "2.1-IV2",
        "The newest message format that is stored, by the release that brought it.",
        MESSAGES,
        synonyms=(Synonym("log.message.format.version"),),
    )
    """The highest magic that is stored: 0 for ``message.format.version`` 0.8 and 0.9, 1 for 0.10, else 2.
    With 0 and 1, all messages are converted to that magic."""
    min_insync_replicas: int = setting(
        "min.insync.replicas",
        int32(1),
        1,
        "Replicas that must be in sync for `acks=all`.",
        REPLICATION,
        synonyms=(Synonym("min.insync.replicas"),),
    )
    unclean_election: bool = setting(
        "unclean.leader.election.enable",
        BOOLEAN,
        False,
        "Whether a replica that is not in sync may lead when no other is alive.",
        REPLICATION,
        synonyms=(Synonym("unclean.leader.election.enable"),),
    )
    producer_expiration_ms: int = 604_800_000
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

        The share is a hash of the path, not random: it keeps the logs of a topic from rolling at once. A
        compacted log rolls at ``max.compaction.lag.ms``, if that is less: its newest segment is not cleaned.
        """
        segment_ms = min(self.segment_ms, self.max_compaction_lag_ms) if self.compacted else self.segment_ms
        jitter_ms = min(self.segment_jitter_ms, segment_ms)
        return segment_ms - (zlib.crc32(segment_path.encode()) % jitter_ms if jitter_ms else 0)

    @classmethod
    def from_properties(
        cls, broker: Mapping[str, str], overrides: Mapping[str, str] | None = None
    ) -> LogConfig:
        """Build the settings of a topic. Broker properties that do not concern the log are ignored.

        Raises ConfigErrors for values that are not allowed and for topic properties that 0.10.1 lacks.
        """
        faults = Faults()
        values = {}
        for key in TOPIC_CONFIG.keys.values():
            given = [synonym for synonym in key.synonyms if synonym.name in broker]
            for synonym in reversed(given):  # the first one wins; the others are checked too
                values[key.field] = faults.attempt(
                    partial(_default, key, synonym, broker[synonym.name]), None
                )
        expiration = _PRODUCER_EXPIRATION
        if expiration.name in broker:
            text = broker[expiration.name]
            values[expiration.field] = faults.attempt(
                lambda: expiration.type.parse(expiration.name, text), None
            )
        faults.check(broker)
        return replace(cls(), **_fields(values)).with_overrides(overrides or {})

    def with_overrides(self, overrides: Mapping[str, str]) -> LogConfig:
        """Return these settings with a topic's overrides. Raises ConfigErrors as ``from_properties`` does."""
        config = self._with_each(overrides)
        # Topics can have other settings while only the broker's lags contradict each other.
        gives_lag = not COMPACTION_LAGS.isdisjoint(overrides)
        if gives_lag and config.min_compaction_lag_ms > config.max_compaction_lag_ms:
            raise ConfigError(
                "min.compaction.lag.ms",
                str(config.min_compaction_lag_ms),
                f"must be at most max.compaction.lag.ms, which is {config.max_compaction_lag_ms}",
            )
        return config

    def _with_each(self, overrides: Mapping[str, str]) -> LogConfig:
        """Return these settings with overrides that are valid each for itself. Raises ConfigErrors."""
        if not overrides:
            return self
        config = replace(self, **_fields(_topic_values(overrides)))
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
        messages, nothing is deleted: the default might delete them. Lags of compaction that contradict each
        other are both used, as in Kafka: the smallest one is what a message is promised.
        """
        usable, problems, unsure = {}, [], False
        for name, text in sorted(overrides.items()):
            if name not in TOPIC_CONFIG.keys:
                problems.append(str(ConfigError(name, text, "unknown topic property")))
                continue
            try:
                self._with_each({name: text})
            except ConfigError as error:
                problems.append(str(error))
                unsure = unsure or name in _KEEPING
            else:
                usable[name] = text
        config = self._with_each(usable)
        if unsure:
            config = replace(config, deletion_policies=())
            problems.append("retention by age and size is disabled for the topic until this is fixed")
        return config, problems


COMPACTION_LAGS = frozenset({"min.compaction.lag.ms", "max.compaction.lag.ms"})
"""The settings of which one limits the other."""
_KEEPING = frozenset({"cleanup.policy", "retention.bytes", "retention.ms"})

_POLICIES, _THROTTLED = "policies", "throttled"
"""Fields of settings that ``LogConfig`` has in another form, or not: ``server.quotas`` reads the second."""

TOPIC_CONFIG = ConfigDef(
    sorted(
        [
            *definition_of(LogConfig).keys.values(),
            ConfigKey(
                "cleanup.policy",
                _CLEANUP_POLICY,
                "delete",
                "`delete`, `compact`, or both: delete old segments, or keep the last message of each key.",
                _POLICIES,
                synonyms=(
                    Synonym(
                        "log.cleanup.policy",
                        type=_CLEANUP_POLICY.then(_imported_policies),
                        doc="`delete`, `compact`, both, or a class of a retention policy "
                        "(`package.module:Class`).",
                    ),
                ),
            ),
            *(
                ConfigKey(
                    f"{role}.replication.throttled.replicas",
                    _THROTTLED_REPLICAS,
                    "",
                    f"Replicas whose copying counts against the {role}s' rate: PARTITION:BROKER, or `*`.",
                    _THROTTLED,
                )
                for role in ("follower", "leader")
            ),
        ],
        key=lambda key: key.name,
    )
)
"""The settings of a topic, with the broker properties that give their defaults."""

LIST_PROPERTIES = frozenset(
    {"cleanup.policy", "follower.replication.throttled.replicas", "leader.replication.throttled.replicas"}
)
"""Topic properties that are lists, with commas."""

_PRODUCER_EXPIRATION = ConfigKey(
    "transactional.id.expiration.ms",
    int32(1),
    604_800_000,
    "How long a producer's id is remembered after its last message.",
    field="producer_expiration_ms",
    group=MESSAGES,
)


def broker_keys(group: str) -> list[ConfigKey]:
    """Return the broker properties that are read here. ``group`` is that of properties without one.

    Of several properties for the same setting only the one with the lowest precedence has a default:
    ``log.retention.hours``.
    """
    found = [_PRODUCER_EXPIRATION]
    for key in TOPIC_CONFIG.keys.values():
        for place, synonym in enumerate(key.synonyms):
            doc = synonym.doc or key.doc
            if place:
                others = f"`{key.synonyms[0].name}` is not" if place == 1 else "neither of those is"
                doc = f"The same in {synonym.name.rpartition('.')[2]}, if {others} set."
            default = key.default if synonym.factor == 1 else key.default // synonym.factor
            found.append(
                ConfigKey(
                    synonym.name,
                    synonym.type or key.type,
                    default if synonym is key.synonyms[-1] else None,
                    doc,
                    group=key.group or group,
                )
            )
    return found


def _default(key: ConfigKey, synonym: Synonym, text: str) -> Any:
    """Return the value that a broker's property gives the topics' setting ``key``."""
    value = (synonym.type or key.type).parse(synonym.name, text)
    return value * synonym.factor if synonym.factor != 1 and value else value


def _topic_values(overrides: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of a topic's own properties, by field.

    Raises ConfigErrors for properties that 0.10.1 does not know, and values that it would refuse.
    """
    faults, values = Faults(), {}
    for name, text in overrides.items():
        key = TOPIC_CONFIG.keys.get(name)
        if key is None:
            faults.add([_unknown(name, text)])
        else:
            values[key.field] = faults.attempt(partial(key.type.parse, name, text), None)
    faults.check(overrides)
    return values


def _unknown(name: str, text: str) -> ConfigError:
    known = TOPIC_CONFIG.keys
    meant = closest_match(name, known)
    hint = did_you_mean(meant) or f"; known properties are {', '.join(known)}"
    return ConfigError(name, text, f"unknown topic property{hint}")


def _fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of LogConfig for values by their settings' field."""
    fields = {name: value for name, value in values.items() if name not in {_POLICIES, _THROTTLED}}
    policies = values.get(_POLICIES)
    if policies is not None:
        fields["compacted"] = "compact" in policies
        fields["deletion_policies"] = tuple(sorted(policies - {"compact"}))
    return fields
