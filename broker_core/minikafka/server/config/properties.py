"""The broker's configuration: Kafka's own property names, with 0.10.1's defaults.

A ``.properties`` file is Java's: ``key=value`` or ``key: value``, ``#`` and ``!`` start comments, a backslash
at the end of a line continues it. Differences from 0.10.1's defaults: ``delete.topic.enable`` is true (text
003), ``num.recovery.threads.per.data.dir`` is as many as there are processors, for all directories together
(0.10.1: one for each), ``log.flush.scheduler.interval.ms`` is 1,000 (0.10.1: never, so that
``log.flush.interval.ms`` alone does nothing), ``offsets.retention.minutes`` is a week and
``group.initial.rebalance.delay.ms`` is 3,000 as in 2.1, and ``log.layout`` is ours.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any

from minikafka.base.config.types import BOOLEAN, integer, real_number
from minikafka.base.config.unknown_names import with_suggestions
from minikafka.base.errors import ConfigError
from minikafka.base.ids import host_port
from minikafka.groups.messages import ValueVersions
from minikafka.groups.shard import GroupSettings
from minikafka.log.config import BROKER_PROPERTIES, LogConfig, Parser, default_text
from minikafka.log.layout import Layout
from minikafka.net.connection_quotas import UNLIMITED, ConnectionLimits
from minikafka.records.format.compression import Codec
from minikafka.server.config.listeners import WILDCARDS, Listener, parse_listeners
from minikafka.server.quotas.client_quotas import QuotaConfig
from minikafka.server.security.authorizer import Authorizer, parse_super_users

_load_factor = real_number("a number above 0 and at most 1", lambda value: 0 < value <= 1).parse
_rate = real_number("a number of bytes above 0", lambda value: value > 0).parse


def _counts(name: str, text: str) -> dict[str, int]:
    """Parse ``HOST:COUNT``, separated by commas."""
    counts: dict[str, int] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        host, _, count = entry.rpartition(":")
        if not host or not count.strip().isdecimal():
            raise ConfigError(name, text, "must be HOST:COUNT, separated by commas")
        counts[host.strip().strip("[]")] = int(count)
    return counts


def _text(name: str, text: str) -> str:
    if not text.strip():
        raise ConfigError(name, text, "must not be empty")
    return text.strip()


_AUTHORIZER = "kafka.security.auth.SimpleAclAuthorizer"


def _authorizer(name: str, text: str) -> bool:
    if text.strip() not in {"", _AUTHORIZER}:
        allowed = f"must be {_AUTHORIZER}, which this broker implements, or empty for none"
        raise ConfigError(name, text, allowed)
    return bool(text.strip())


def _super_users(name: str, text: str) -> frozenset[str]:
    return parse_super_users(text)


_LONG_MAX = 0x7FFFFFFFFFFFFFFF
_PROTOCOL = "inter.broker.protocol.version"
_FORMAT = "log.message.format.version"

_KEYS: dict[str, tuple[Parser, str | None]] = {
    # name: (parser, default as text; None for no default)
    "broker.id": (integer(-1).parse, "-1"),
    "broker.id.generation.enable": (BOOLEAN.parse, "true"),
    "reserved.broker.max.id": (integer(0).parse, "1000"),
    "listeners": (_text, None),
    "advertised.listeners": (_text, None),
    "listener.security.protocol.map": (_text, None),
    "host.name": (_text, None),
    "port": (integer(0, 65535).parse, "9092"),
    "advertised.host.name": (_text, None),
    "advertised.port": (integer(0, 65535).parse, None),
    "log.dir": (_text, "/tmp/kafka-logs"),
    "log.dirs": (_text, None),
    "log.layout": (_text, "classic"),
    "zookeeper.connect": (_text, None),
    "zookeeper.session.timeout.ms": (integer(1).parse, "6000"),
    "zookeeper.connection.timeout.ms": (integer(1).parse, None),
    "num.network.threads": (integer(1).parse, "3"),
    "num.io.threads": (integer(1).parse, "8"),
    "socket.request.max.bytes": (integer(1).parse, "104857600"),
    "connections.max.idle.ms": (integer(1).parse, "600000"),
    "max.connections": (integer(1).parse, str(UNLIMITED)),
    "max.connections.per.ip": (integer(0).parse, str(UNLIMITED)),
    "max.connections.per.ip.overrides": (_counts, ""),
    "queued.max.requests": (integer(1).parse, "500"),
    "queued.max.request.bytes": (integer(-1).parse, str(192 << 20)),
    "quota.producer.default": (integer(1, _LONG_MAX).parse, str(_LONG_MAX)),
    "quota.consumer.default": (integer(1, _LONG_MAX).parse, str(_LONG_MAX)),
    "quota.window.num": (integer(1).parse, "11"),
    "quota.window.size.seconds": (integer(1).parse, "1"),
    "replication.quota.window.num": (integer(1).parse, "11"),
    "replication.quota.window.size.seconds": (integer(1).parse, "1"),
    "auto.create.topics.enable": (BOOLEAN.parse, "true"),
    "delete.topic.enable": (BOOLEAN.parse, "true"),
    "num.partitions": (integer(1).parse, "1"),
    "default.replication.factor": (integer(1).parse, "1"),
    "log.flush.scheduler.interval.ms": (integer(1).parse, "1000"),
    "log.flush.offset.checkpoint.interval.ms": (integer(1).parse, "60000"),
    "log.retention.check.interval.ms": (integer(1).parse, "300000"),
    "log.cleaner.enable": (BOOLEAN.parse, "true"),
    "log.cleaner.dedupe.buffer.size": (integer(1024, 1 << 34).parse, "134217728"),
    "log.cleaner.io.buffer.load.factor": (_load_factor, "0.9"),
    "log.cleaner.io.max.bytes.per.second": (_rate, "1.7976931348623157E308"),
    "log.cleaner.backoff.ms": (integer(0).parse, "15000"),
    "num.recovery.threads.per.data.dir": (integer(1).parse, None),
    _PROTOCOL: (_text, "0.10.1"),
    "broker.rack": (_text, None),
    "authorizer.class.name": (_authorizer, ""),
    "super.users": (_super_users, ""),
    "allow.everyone.if.no.acl.found": (BOOLEAN.parse, "false"),
    "num.replica.fetchers": (integer(1).parse, "1"),
    "replica.fetch.max.bytes": (integer(0).parse, "1048576"),
    "replica.fetch.response.max.bytes": (integer(0).parse, "10485760"),
    "replica.fetch.wait.max.ms": (integer(0).parse, "500"),
    "replica.fetch.min.bytes": (integer(0).parse, "1"),
    "replica.fetch.backoff.ms": (integer(0).parse, "1000"),
    "replica.socket.timeout.ms": (integer(1).parse, "30000"),
    "replica.lag.time.max.ms": (integer(1).parse, "10000"),
    "replica.high.watermark.checkpoint.interval.ms": (integer(1).parse, "5000"),
    "controller.socket.timeout.ms": (integer(1).parse, "30000"),
    "controlled.shutdown.enable": (BOOLEAN.parse, "true"),
    "controlled.shutdown.max.retries": (integer(0).parse, "3"),
    "controlled.shutdown.retry.backoff.ms": (integer(0).parse, "5000"),
    "auto.leader.rebalance.enable": (BOOLEAN.parse, "true"),
    "leader.imbalance.check.interval.seconds": (integer(1).parse, "300"),
    "leader.imbalance.per.broker.percentage": (integer(0, 100).parse, "10"),
    "group.min.session.timeout.ms": (integer(0).parse, "6000"),
    "group.max.session.timeout.ms": (integer(0).parse, "300000"),
    "group.initial.rebalance.delay.ms": (integer(0).parse, "3000"),
    "offset.metadata.max.bytes": (integer(0).parse, "4096"),
    "offsets.load.buffer.size": (integer(1, 1 << 30).parse, "5242880"),
    "offsets.topic.replication.factor": (integer(1).parse, "3"),
    "offsets.topic.num.partitions": (integer(1).parse, "50"),
    "offsets.topic.segment.bytes": (integer(14).parse, "104857600"),
    "offsets.topic.compression.codec": (integer(0, 3).parse, "0"),
    "offsets.retention.minutes": (integer(1).parse, "10080"),
    "offsets.retention.check.interval.ms": (integer(1).parse, "600000"),
    "offsets.commit.timeout.ms": (integer(1).parse, "5000"),
}


@dataclass(frozen=True, slots=True)
class CleanerConfig:
    """The configuration of the log cleaner. ``enabled`` is False if logs are not compacted."""

    enabled: bool
    map_bytes: int
    map_load_factor: float
    bytes_per_second: float
    """The limit for reads and writes together."""
    backoff_ms: int
    """The interval of checks when there was nothing to clean."""


@dataclass(frozen=True, slots=True)
class OffsetsConfig:
    """The configuration of ``__consumer_offsets``."""

    partitions: int
    replication_factor: int
    """The upper limit: with fewer live brokers the topic is created with as many replicas as brokers."""
    segment_bytes: int
    codec: Codec
    load_bytes: int
    """The bytes of a partition that are read at once while it is loaded."""
    commit_timeout_ms: int
    check_interval_ms: int
    """The interval of checks for expired offsets."""


@dataclass(frozen=True, slots=True)
class ReplicationConfig:
    """The configuration of replication. Times are milliseconds, sizes bytes."""

    fetchers: int
    """The number of fetchers for each leading broker."""
    fetch_max_bytes: int
    """The limit for one partition in a response."""
    fetch_response_max_bytes: int
    fetch_wait_max_ms: int
    fetch_min_bytes: int
    fetch_backoff_ms: int
    """The pause after an error."""
    socket_timeout_ms: int
    lag_time_max_ms: int
    """A follower that was not caught up for that long is removed from the ISR."""
    checkpoint_interval_ms: int
    """The interval of high watermark checkpoints."""
    controller_timeout_ms: int
    throttle_windows: int
    throttle_window_ms: int


@dataclass(frozen=True, slots=True)
class ControlConfig:
    """The configuration of controlled shutdown and of preferred leader elections."""

    controlled_shutdown: bool
    shutdown_retries: int
    shutdown_backoff_ms: int
    rebalance_leaders: bool
    rebalance_interval_ms: int
    imbalance_percent: int


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """The validated configuration of one broker. Times are milliseconds, sizes bytes."""

    broker_id: int
    """-1: taken from ``meta.properties``, or generated through ZooKeeper."""
    generate_broker_id: bool
    reserved_broker_max_id: int
    listeners: tuple[Listener, ...]
    log_dirs: tuple[str, ...]
    layout: Layout
    zookeeper_connect: str
    zookeeper_session_timeout_ms: int
    zookeeper_connection_timeout_ms: int
    network_threads: int
    io_threads: int
    """The threads for long requests (``server.workers.work_pool``); at most one per processor is used."""
    request_max_bytes: int
    connection_idle_max_ms: int
    connection_limits: ConnectionLimits
    """The limits; the overrides have host names that are not resolved yet."""
    queued_max_requests: int
    queued_max_bytes: int | None
    quotas: QuotaConfig
    auto_create_topics: bool
    delete_topics: bool
    default_partitions: int
    default_replication_factor: int
    flush_scheduler_interval_ms: int
    flush_checkpoint_interval_ms: int
    retention_check_interval_ms: int
    recovery_threads: int
    """The threads for all data directories together."""
    cleaner: CleanerConfig
    groups: GroupSettings
    offsets: OffsetsConfig
    beside_0_10: bool
    """True if 0.10.1 brokers may be in the cluster: only formats and versions that they know are used."""
    rack: str | None
    replication: ReplicationConfig
    control: ControlConfig
    authorizer: Authorizer | None
    """The authorizer without ACLs; None: everything is allowed."""
    log: LogConfig
    """The configs of a topic without configs of its own."""
    unknown: tuple[str, ...] = field(default=())
    """Names of properties that this version does not use, for one warning."""
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The properties as configured, including secrets."""

    def unused(self) -> str:
        """Return the warning about ``unknown`` names, with suggestions; empty if there are none."""
        named = with_suggestions(self.unknown, {*_KEYS, *BROKER_PROPERTIES})
        return named and f"ignored properties that this version does not support: {named}"

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> BrokerConfig:
        """Validate ``properties`` and return the configuration.

        Raises ConfigError with the property, its value and what is expected.
        """
        known, log_properties, unknown = _sort(properties)
        values: dict[str, Any] = {}
        for name, (parse, default) in _KEYS.items():
            text = known.get(name, default)
            values[name] = None if text is None else parse(name, text)
        if values["zookeeper.connect"] is None:
            raise ConfigError("zookeeper.connect", None, "must be set: HOST:PORT, or HOST:PORT/CHROOT")
        log_dirs = _directories(values["log.dirs"] or values["log.dir"])
        beside_0_10 = known.get(_PROTOCOL, "").startswith("0.10.")
        if beside_0_10:
            log_properties = _formats_of_0_10(log_properties, known[_PROTOCOL])
        threads = values["num.recovery.threads.per.data.dir"]
        queued_bytes = values["queued.max.request.bytes"]
        session_ms = values["zookeeper.session.timeout.ms"]
        return cls(
            broker_id=values["broker.id"],
            generate_broker_id=values["broker.id.generation.enable"],
            reserved_broker_max_id=values["reserved.broker.max.id"],
            listeners=_listeners(values),
            log_dirs=log_dirs,
            layout=Layout.parse(values["log.layout"]),
            zookeeper_connect=values["zookeeper.connect"],
            zookeeper_session_timeout_ms=session_ms,
            zookeeper_connection_timeout_ms=values["zookeeper.connection.timeout.ms"] or session_ms,
            network_threads=values["num.network.threads"],
            io_threads=values["num.io.threads"],
            request_max_bytes=values["socket.request.max.bytes"],
            connection_idle_max_ms=values["connections.max.idle.ms"],
            connection_limits=ConnectionLimits(
                total=values["max.connections"],
                per_ip=values["max.connections.per.ip"],
                per_ip_overrides=values["max.connections.per.ip.overrides"],
            ),
            queued_max_requests=values["queued.max.requests"],
            queued_max_bytes=None if queued_bytes <= 0 else queued_bytes,
            quotas=QuotaConfig(
                producer_default=values["quota.producer.default"],
                consumer_default=values["quota.consumer.default"],
                windows=values["quota.window.num"],
                window_ms=1000 * values["quota.window.size.seconds"],
            ),
            auto_create_topics=values["auto.create.topics.enable"],
            delete_topics=values["delete.topic.enable"],
            default_partitions=values["num.partitions"],
            default_replication_factor=values["default.replication.factor"],
            flush_scheduler_interval_ms=values["log.flush.scheduler.interval.ms"],
            flush_checkpoint_interval_ms=values["log.flush.offset.checkpoint.interval.ms"],
            retention_check_interval_ms=values["log.retention.check.interval.ms"],
            recovery_threads=threads * len(log_dirs) if threads else os.cpu_count() or 1,
            cleaner=_cleaner(values),
            groups=_groups(values),
            offsets=_offsets(values),
            beside_0_10=beside_0_10,
            rack=values["broker.rack"],
            replication=_replication(values),
            control=_control(values),
            authorizer=_authorizer_of(values),
            log=LogConfig.from_properties(log_properties),
            unknown=unknown,
            properties=dict(properties),
        )


@cache
def property_defaults() -> Mapping[str, str | None]:
    """Return every supported broker property with its default as text; None for no default."""
    defaults: dict[str, str | None] = {}
    for name, default in BROKER_PROPERTIES.items():
        defaults[name] = None if default is None else default_text(default)
    return MappingProxyType(defaults | {name: default for name, (_, default) in _KEYS.items()})


def _cleaner(values: Mapping[str, Any]) -> CleanerConfig:
    return CleanerConfig(
        enabled=values["log.cleaner.enable"],
        map_bytes=values["log.cleaner.dedupe.buffer.size"],
        map_load_factor=values["log.cleaner.io.buffer.load.factor"],
        bytes_per_second=values["log.cleaner.io.max.bytes.per.second"],
        backoff_ms=values["log.cleaner.backoff.ms"],
    )


def _groups(values: Mapping[str, Any]) -> GroupSettings:
    version = values[_PROTOCOL]
    try:
        versions = ValueVersions.written_for(version)
    except ValueError:
        raise ConfigError(_PROTOCOL, version, "must be a release like 0.10.1 or 2.1") from None
    return GroupSettings(
        session_timeout_min_ms=values["group.min.session.timeout.ms"],
        session_timeout_max_ms=values["group.max.session.timeout.ms"],
        initial_rebalance_delay_ms=values["group.initial.rebalance.delay.ms"],
        retention_ms=values["offsets.retention.minutes"] * 60_000,
        metadata_max_chars=values["offset.metadata.max.bytes"],
        versions=versions,
    )


def _offsets(values: Mapping[str, Any]) -> OffsetsConfig:
    return OffsetsConfig(
        partitions=values["offsets.topic.num.partitions"],
        replication_factor=values["offsets.topic.replication.factor"],
        segment_bytes=values["offsets.topic.segment.bytes"],
        codec=Codec(values["offsets.topic.compression.codec"]),
        load_bytes=values["offsets.load.buffer.size"],
        commit_timeout_ms=values["offsets.commit.timeout.ms"],
        check_interval_ms=values["offsets.retention.check.interval.ms"],
    )


def _formats_of_0_10(log_properties: Mapping[str, str], release: str) -> dict[str, str]:
    """Add the message format that this release can replicate, unless one is configured."""
    given = {_FORMAT: release, **log_properties}
    if not given[_FORMAT].startswith(("0.8.", "0.9.", "0.10.")):
        raise ConfigError(
            _FORMAT, given[_FORMAT], f"must be at most 0.10.1, because {_PROTOCOL} is {release}"
        )
    return given


def _replication(values: Mapping[str, Any]) -> ReplicationConfig:
    return ReplicationConfig(
        fetchers=values["num.replica.fetchers"],
        fetch_max_bytes=values["replica.fetch.max.bytes"],
        fetch_response_max_bytes=values["replica.fetch.response.max.bytes"],
        fetch_wait_max_ms=values["replica.fetch.wait.max.ms"],
        fetch_min_bytes=values["replica.fetch.min.bytes"],
        fetch_backoff_ms=values["replica.fetch.backoff.ms"],
        socket_timeout_ms=values["replica.socket.timeout.ms"],
        lag_time_max_ms=values["replica.lag.time.max.ms"],
        checkpoint_interval_ms=values["replica.high.watermark.checkpoint.interval.ms"],
        controller_timeout_ms=values["controller.socket.timeout.ms"],
        throttle_windows=values["replication.quota.window.num"],
        throttle_window_ms=1000 * values["replication.quota.window.size.seconds"],
    )


def _control(values: Mapping[str, Any]) -> ControlConfig:
    return ControlConfig(
        controlled_shutdown=values["controlled.shutdown.enable"],
        shutdown_retries=values["controlled.shutdown.max.retries"],
        shutdown_backoff_ms=values["controlled.shutdown.retry.backoff.ms"],
        rebalance_leaders=values["auto.leader.rebalance.enable"],
        rebalance_interval_ms=1000 * values["leader.imbalance.check.interval.seconds"],
        imbalance_percent=values["leader.imbalance.per.broker.percentage"],
    )


def _authorizer_of(values: Mapping[str, Any]) -> Authorizer | None:
    if not values["authorizer.class.name"]:
        return None
    return Authorizer(values["super.users"], values["allow.everyone.if.no.acl.found"])


def parse_properties(text: str, source: str) -> dict[str, str]:
    """Parse Java's ``.properties`` format. ``source`` names the file in errors."""
    properties: dict[str, str] = {}
    lines = iter(enumerate(_LINE_END.split(text), start=1))
    for number, raw in lines:
        line = raw.lstrip(_SPACES)
        if not line or line[0] in "#!":
            continue
        while _GOES_ON.search(line):
            line = line[:-1] + next(lines, (0, ""))[1].lstrip(_SPACES)
        pair = _KEY_VALUE.match(line)
        if pair is None:
            # Not the line itself: it may be the second half of a secret.
            raise ConfigError(
                source, f"line {number}", "expected key=value; end a line with \\ to continue it"
            )
        key, value = (_ESCAPE.sub(_unescaped, _stripped(text)) for text in pair.groups())
        properties[key] = value
    return properties


_SPACES = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
_GOES_ON = re.compile(r"(?<!\\)(?:\\\\)*\\\Z")
_KEY_VALUE = re.compile(r"((?:[^\\=:]|\\.)*)[=:](.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _stripped(text: str) -> str:
    """Return ``text`` without the spaces around it; a space after a backslash is kept."""
    bare = text.rstrip(_SPACES)
    return text[: len(bare) + bool(_GOES_ON.search(bare))].lstrip(_SPACES)


def _unescaped(found: re.Match[str]) -> str:
    return chr(int(found[1], 16)) if found[1] else _ESCAPED.get(found[2], found[2])


def _sort(properties: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str], tuple[str, ...]]:
    known: dict[str, str] = {}
    log_properties: dict[str, str] = {}
    unknown: list[str] = []
    for name, value in properties.items():
        if name in _KEYS:
            known[name] = value
        if name in BROKER_PROPERTIES:
            log_properties[name] = value
        if name not in _KEYS and name not in BROKER_PROPERTIES:
            unknown.append(name)
    return known, log_properties, tuple(sorted(unknown))


def _listeners(values: Mapping[str, Any]) -> tuple[Listener, ...]:
    """Return the listeners. The properties of 0.8 (``host.name``, ``port``) apply without ``listeners``."""
    bound, protocol_map = values["listeners"], values["listener.security.protocol.map"]
    if bound is None:
        bound = _plaintext(values["host.name"] or "", values["port"])
    advertised = values["advertised.listeners"]
    host, port = values["advertised.host.name"], values["advertised.port"]
    if advertised is None and (host is not None or port is not None):
        (own,) = parse_listeners(bound, None, protocol_map, "")[:1]
        advertised = _plaintext(host or own.host, own.port if port is None else port)
    return parse_listeners(bound, advertised, protocol_map, platform.node() or "localhost")


def _plaintext(host: str, port: int) -> str:
    host = "" if host in WILDCARDS else host
    return f"PLAINTEXT://{host_port(host, port)}"


def _directories(text: str) -> tuple[str, ...]:
    directories = tuple(part.strip() for part in text.split(",") if part.strip())
    if not directories or len(set(directories)) != len(directories):
        raise ConfigError("log.dirs", text, "must be one or more different directories, separated by commas")
    return directories
