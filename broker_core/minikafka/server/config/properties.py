"""The broker's configuration: Kafka's own property names, with 0.10.1's defaults.

Differences from 0.10.1's defaults: ``delete.topic.enable`` is true (text 003),
``num.recovery.threads.per.data.dir`` is as many as there are processors, for all directories together
(0.10.1: one for each), ``log.flush.scheduler.interval.ms`` is 1,000 (0.10.1: never, so that
``log.flush.interval.ms`` alone does nothing), ``offsets.retention.minutes`` is a week and
``group.initial.rebalance.delay.ms`` is 3,000 as in 2.1, and ``log.layout`` is ours.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from minikafka.base.config.config_def import REQUIRED, ConfigDef, ConfigKey, Faults, definition_of, setting
from minikafka.base.config.types import (
    BOOLEAN,
    TEXT,
    ConfigType,
    Release,
    as_text,
    choice,
    int32,
    int64,
    integer,
    real_number,
    seconds,
    text_type,
)
from minikafka.base.config.unknown_names import NOT_YET, SECURITY_PREFIXES, with_suggestions
from minikafka.base.errors import ConfigError
from minikafka.groups.messages import ValueVersions
from minikafka.groups.shard import GroupSettings
from minikafka.log.config import MESSAGES, REPLICATION, LogConfig, broker_keys
from minikafka.log.layout import Layout
from minikafka.net.connection_quotas import ConnectionLimits
from minikafka.records.format.compression import Codec
from minikafka.records.kernels.layout import MIN_SIZE
from minikafka.registry.zookeeper_address import ZOOKEEPER_CONNECT
from minikafka.security.authorizer import Authorizer, parse_super_users
from minikafka.security.sasl.sasl_config import SaslConfig
from minikafka.security.sasl.signed_tokens import SignedTokenConfig
from minikafka.security.ssl_config import SslConfig
from minikafka.security.zookeeper_config import ZooKeeperClientConfig
from minikafka.security.zookeeper_config import keys as zookeeper_keys
from minikafka.server.config.event_log import EVENT_LOG, EventLogConfig
from minikafka.server.config.fetching import FetchConfig
from minikafka.server.config.inter_broker_security import InterBrokerSaslConfig, InterBrokerSecurity
from minikafka.server.config.listener_security import (
    LOGIN_NAMES,
    AuthenticationConfig,
    ListenerSecurity,
    SaslServerConfig,
    limits_of,
    names_of_listeners,
    security_of,
)
from minikafka.server.config.listeners import Listener, ListenerConfig, check_names_beside_0_10
from minikafka.server.config.metrics import METRICS, MetricsConfig, OtlpConfig
from minikafka.server.config.releases import RELEASE
from minikafka.server.config.replication import CONTROLLER, QUOTAS, ReplicationConfig
from minikafka.server.config.transactions import TRANSACTIONS, TransactionStateConfig
from minikafka.server.quotas.client_quotas import QuotaConfig
from minikafka.transactions.shard import TransactionSettings

Section = TypeVar("Section")

_IDENTITY = "Identity, directories and ZooKeeper"
_CONNECTIONS, _SECURITY = "Listeners and connections", "TLS and SASL"
_TOPICS = "Topics"
_LOGS = "Logs: size, flush, retention, compaction"
_GROUPS, _ACCESS = "Groups and offsets", "Access control"
GROUPS = (
    _IDENTITY,
    _CONNECTIONS,
    _SECURITY,
    _TOPICS,
    _LOGS,
    MESSAGES,
    REPLICATION,
    CONTROLLER,
    _GROUPS,
    TRANSACTIONS,
    QUOTAS,
    _ACCESS,
    METRICS,
    EVENT_LOG,
)
"""The sections of the reference page."""

_AUTHORIZERS = ("kafka.security.auth.SimpleAclAuthorizer", "kafka.security.authorizer.AclAuthorizer")
"""The authorizer's names in Kafka 0.10.1 and, since 2.4, in newer releases."""
_PROTOCOL = "inter.broker.protocol.version"
_FORMAT = "log.message.format.version"


def _directories(text: str) -> tuple[str, ...]:
    directories = tuple(part.strip() for part in text.split(",") if part.strip())
    if not directories or len(set(directories)) != len(directories):
        raise ValueError
    return directories


_DIRECTORIES = text_type("one or more different directories, separated by commas", _directories)


@dataclass(frozen=True, slots=True)
class CleanerConfig:
    """The configuration of the log cleaner."""

    enabled: bool = setting("log.cleaner.enable", BOOLEAN, True, "Whether logs are compacted.")
    map_bytes: int = setting(
        "log.cleaner.dedupe.buffer.size", integer(1024, 1 << 34), 134_217_728, "Memory for the map of keys."
    )
    map_load_factor: float = setting(
        "log.cleaner.io.buffer.load.factor",
        real_number("a number above 0 and at most 1", lambda value: 0 < value <= 1),
        0.9,
        "How full the map of keys may become.",
    )
    bytes_per_second: float = setting(
        "log.cleaner.io.max.bytes.per.second",
        real_number("a number of bytes above 0", lambda value: value > 0),
        "1.7976931348623157E308",
        "The most bytes that compaction reads and writes in a second.",
    )
    backoff_ms: int = setting(
        "log.cleaner.backoff.ms", int64(0), 15_000, "How long to wait when there is nothing to compact."
    )


@dataclass(frozen=True, slots=True)
class OffsetsConfig:
    """The configuration of ``__consumer_offsets``."""

    partitions: int = setting(
        "offsets.topic.num.partitions", int32(1), 50, "Partitions of `__consumer_offsets`."
    )
    replication_factor: int = setting(
        "offsets.topic.replication.factor",
        int32(1).as_kind(ConfigType.SHORT),
        3,
        "Replicas of `__consumer_offsets`, at most: fewer if fewer brokers are alive.",
    )
    segment_bytes: int = setting(
        "offsets.topic.segment.bytes",
        int32(MIN_SIZE),
        104_857_600,
        "The segment size of `__consumer_offsets`.",
    )
    codec: Codec = setting(
        "offsets.topic.compression.codec",
        integer(0, 3).then(Codec),
        0,
        "The codec of `__consumer_offsets`: 0 none, 1 gzip, 2 snappy, 3 lz4.",
    )
    load_bytes: int = setting(
        "offsets.load.buffer.size",
        integer(1, 1 << 30),
        5_242_880,
        "Bytes of `__consumer_offsets` that are read at once while groups are loaded.",
    )
    commit_timeout_ms: int = setting(
        "offsets.commit.timeout.ms", int32(1), 5_000, "How long a commit waits for the replicas."
    )
    check_interval_ms: int = setting(
        "offsets.retention.check.interval.ms", int64(1), 600_000, "How often to look for expired offsets."
    )


@dataclass(frozen=True, slots=True)
class ControlConfig:
    """The configuration of controlled shutdown and of preferred leader elections."""

    controlled_shutdown: bool = setting(
        "controlled.shutdown.enable", BOOLEAN, True, "Whether a broker that stops has others lead first."
    )
    shutdown_retries: int = setting(
        "controlled.shutdown.max.retries", int32(0), 3, "How often it asks again."
    )
    shutdown_backoff_ms: int = setting(
        "controlled.shutdown.retry.backoff.ms", int64(0), 5_000, "How long it waits in between."
    )
    rebalance_leaders: bool = setting(
        "auto.leader.rebalance.enable", BOOLEAN, True, "Whether preferred replicas are elected periodically."
    )
    rebalance_interval_ms: int = setting(
        "leader.imbalance.check.interval.seconds", seconds(int64(1)), 300, "How often to look for that."
    )
    imbalance_percent: int = setting(
        "leader.imbalance.per.broker.percentage",
        integer(0, 100),
        10,
        "The share of partitions led by others, for each broker, above which that happens.",
    )


@dataclass(frozen=True, slots=True)
class AccessConfig:
    """The configuration of access control."""

    enabled: bool = setting(
        "authorizer.class.name",
        choice(
            {**dict.fromkeys(_AUTHORIZERS, True), "": False},
            f"{' or '.join(_AUTHORIZERS)}, which this broker implements, or empty for none",
            exact=True,
        ),
        "",
        "The authorizer; empty: none, and everything is allowed.",
    )
    super_users: frozenset[str] = setting(
        "super.users",
        text_type("principals as User:NAME, separated by ';'", parse_super_users),
        "",
        "Principals that no rule applies to, separated by `;`.",
    )
    allow_everyone_if_no_acl_found: bool = setting(
        "allow.everyone.if.no.acl.found", BOOLEAN, False, "Whether a resource without rules is open."
    )

    @property
    def authorizer(self) -> Authorizer | None:
        """The authorizer without ACLs; None: everything is allowed."""
        return Authorizer(self.super_users, self.allow_everyone_if_no_acl_found) if self.enabled else None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """The validated configuration of one broker. Times are milliseconds, sizes bytes."""

    zookeeper_connect: str = setting(
        "zookeeper.connect",
        ZOOKEEPER_CONNECT,
        REQUIRED,
        "ZooKeeper's address: HOST:PORT, or HOST:PORT/CHROOT. Required.",
        _IDENTITY,
    )
    zookeeper: ZooKeeperClientConfig
    """The security of the connection to ZooKeeper."""
    listeners: tuple[Listener, ...]
    inter_broker: InterBrokerSecurity
    """The listener and the security of connections to other brokers."""
    security: Mapping[str, ListenerSecurity]
    """The security of each listener, by its name."""
    authentication: AuthenticationConfig
    cleaner: CleanerConfig
    groups: GroupSettings
    offsets: OffsetsConfig
    transactions: TransactionSettings
    transaction_state: TransactionStateConfig
    replication: ReplicationConfig
    fetching: FetchConfig
    control: ControlConfig
    metrics: MetricsConfig
    event_log: EventLogConfig
    quotas: QuotaConfig
    authorizer: Authorizer | None
    """The authorizer without ACLs; None: everything is allowed."""
    connection_limits: ConnectionLimits
    """The limits; the overrides have host names that are not resolved yet."""
    log: LogConfig
    """The configs of a topic without configs of its own."""
    beside_0_10: bool
    """True if 0.10.1 brokers may be in the cluster: only formats and versions that they know are used."""
    broker_id: int = setting(
        "broker.id",
        int32(-1),
        -1,
        "The broker's id. -1: taken from `meta.properties`, or generated through ZooKeeper.",
        _IDENTITY,
    )
    generate_broker_id: bool = setting(
        "broker.id.generation.enable", BOOLEAN, True, "Whether an id may be generated.", _IDENTITY
    )
    reserved_broker_max_id: int = setting(
        "reserved.broker.max.id",
        int32(0),
        1_000,
        "The highest id that is not generated: generated ids begin above it.",
        _IDENTITY,
    )
    rack: str | None = setting(
        "broker.rack", TEXT, None, "The rack of this broker, for the placement of replicas.", _IDENTITY
    )
    log_dir: tuple[str, ...] = setting(
        "log.dir", _DIRECTORIES, "/tmp/kafka-logs", "The data directory, if `log.dirs` is not set.", _IDENTITY
    )
    log_dirs: tuple[str, ...] = setting(
        "log.dirs",
        _DIRECTORIES,
        None,
        "The data directories, separated by commas.",
        _IDENTITY,
        derive=lambda values: values["log_dir"],
    )
    layout: Layout = setting(
        "log.layout",
        choice({layout.name.lower(): layout for layout in Layout}),
        "classic",
        "The file names of a new data directory: `classic` (the reference texts') or `apache`.",
        _IDENTITY,
    )
    zookeeper_session_timeout_ms: int = setting(
        "zookeeper.session.timeout.ms",
        int32(1),
        6_000,
        "How long a broker may be silent before it counts as dead.",
        _IDENTITY,
    )
    zookeeper_connection_timeout_ms: int = setting(
        "zookeeper.connection.timeout.ms",
        int32(1),
        None,
        "How long to wait for ZooKeeper at the start; the session's time-out by default.",
        _IDENTITY,
        derive=lambda values: values["zookeeper_session_timeout_ms"],
    )
    recovery_threads_per_dir: int | None = setting(
        "num.recovery.threads.per.data.dir",
        int32(1),
        None,
        "Threads that open and recover logs, for each directory; by default one a processor, for all.",
        _IDENTITY,
    )
    verify_transactions: bool = setting(
        "transaction.partition.verification.enable",
        BOOLEAN,
        True,
        "Whether a leader asks the coordinator before the first batch of a transaction is appended.",
        TRANSACTIONS,
    )
    protocol_version: Release = setting(
        _PROTOCOL,
        RELEASE,
        "0.10.1",
        "The oldest release among the brokers. `0.10.1`: speak and store only what that release knows.",
        _IDENTITY,
    )
    network_threads: int = setting(
        "num.network.threads", int32(1), 3, "Processor threads, for all listeners together.", _CONNECTIONS
    )
    io_threads: int = setting(
        "num.io.threads",
        int32(1),
        8,
        "Threads for requests that take long; at most one a processor is used.",
        _CONNECTIONS,
    )
    request_max_bytes: int = setting(
        "socket.request.max.bytes", int32(1), 104_857_600, "The largest request.", _CONNECTIONS
    )
    connection_idle_max_ms: int = setting(
        "connections.max.idle.ms",
        int64(1),
        600_000,
        "How long a connection may be idle before it is closed.",
        _CONNECTIONS,
    )
    queued_max_requests: int = setting(
        "queued.max.requests", int32(1), 500, "The most requests that wait.", _CONNECTIONS
    )
    queued_max_bytes: int | None = setting(
        "queued.max.request.bytes",
        int64(-1).then(lambda value: None if value <= 0 else value),
        192 << 20,
        "The most bytes of requests that wait. -1: no limit.",
        _CONNECTIONS,
    )
    auto_create_topics: bool = setting(
        "auto.create.topics.enable",
        BOOLEAN,
        True,
        "Whether a topic is created when a client asks for it.",
        _TOPICS,
    )
    delete_topics: bool = setting(
        "delete.topic.enable", BOOLEAN, True, "Whether topics can be deleted.", _TOPICS
    )
    default_partitions: int = setting(
        "num.partitions", int32(1), 1, "Partitions of a topic that is created without a number.", _TOPICS
    )
    default_replication_factor: int = setting(
        "default.replication.factor",
        int32(1),
        1,
        "Replicas of a topic that is created without a number.",
        _TOPICS,
    )
    flush_scheduler_interval_ms: int = setting(
        "log.flush.scheduler.interval.ms",
        int64(1),
        1_000,
        "How often to look for logs to flush by time.",
        _LOGS,
    )
    flush_checkpoint_interval_ms: int = setting(
        "log.flush.offset.checkpoint.interval.ms",
        int32(1),
        60_000,
        "How often recovery points are written.",
        _LOGS,
    )
    retention_check_interval_ms: int = setting(
        "log.retention.check.interval.ms",
        int64(1),
        300_000,
        "How often to look for segments to delete.",
        _LOGS,
    )
    unknown: tuple[str, ...] = field(default=())
    """Names of properties that this version does not use, for one warning."""
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The properties as configured, including secrets."""

    @property
    def recovery_threads(self) -> int:
        """The threads for all data directories together."""
        return (self.recovery_threads_per_dir or 0) * len(self.log_dirs) or os.cpu_count() or 1

    def unused(self) -> str:
        """Return the warning about ``unknown`` names, with suggestions; empty if there are none."""
        named = with_suggestions(self.unknown, BROKER_CONFIG.keys)
        return named and f"ignored properties that this version does not support: {named}"

    @property
    def gives_topic_ids(self) -> bool:
        """Return False if brokers before 2.8, which know no topic ids, may be in the cluster."""
        return self._all_brokers_know(2, 8)

    @property
    def all_brokers_enforce_prefixes(self) -> bool:
        """Return False if brokers before 2.0, which ignore ACLs of prefixes, may be in the cluster."""
        return self._all_brokers_know(2, 0)

    def _all_brokers_know(self, *release: int) -> bool:
        return _PROTOCOL not in self.properties or self.protocol_version.numbers >= release

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> BrokerConfig:
        """Validate ``properties`` and return the configuration.

        Raises ConfigErrors with every invalid property, its value and what is expected.
        """
        faults = Faults()

        def read(section: type[Section], **others: Any) -> Section:
            return section(**faults.take(definition_of(section).read(properties)), **others)

        no_listeners: tuple[Listener, ...] = ()
        oldest = faults.attempt(lambda: _oldest(properties), None)
        beside_0_10 = oldest is not None and oldest.numbers[:2] == (0, 10)
        # Beside brokers of 0.10 the default message format is one that they can replicate.
        logs = {_FORMAT: str(oldest), **properties} if beside_0_10 else properties
        faults.add(_format_faults(logs, beside_0_10))
        listening = read(ListenerConfig)
        listeners = faults.attempt(lambda: listening.parse(platform.node() or "localhost"), no_listeners)
        if beside_0_10:
            faults.attempt(lambda: check_names_beside_0_10(listeners), None)
        security = faults.attempt(lambda: security_of(listeners, properties), {})
        inter_broker = InterBrokerSecurity("")
        if security:
            inter_broker = faults.attempt(
                lambda: InterBrokerSecurity.of(
                    listening.inter_broker(listeners, properties),
                    security,
                    read(InterBrokerSaslConfig),
                    properties,
                ),
                inter_broker,
            )
        quotas = read(QuotaConfig)
        own = names_of_listeners(listeners, properties) | ZooKeeperClientConfig.CHECKED.keys()
        config = read(
            cls,
            zookeeper=faults.attempt(
                lambda: ZooKeeperClientConfig.among(properties), ZooKeeperClientConfig()
            ),
            listeners=listeners,
            security=security,
            authentication=read(AuthenticationConfig),
            inter_broker=inter_broker,
            cleaner=read(CleanerConfig),
            groups=read(GroupSettings),
            offsets=read(OffsetsConfig),
            transactions=read(TransactionSettings),
            transaction_state=read(TransactionStateConfig),
            replication=read(ReplicationConfig),
            fetching=read(FetchConfig),
            control=read(ControlConfig),
            metrics=read(MetricsConfig, otlp=read(OtlpConfig)),
            event_log=read(EventLogConfig),
            quotas=quotas,
            authorizer=read(AccessConfig).authorizer,
            connection_limits=faults.attempt(
                lambda: limits_of(listeners, properties, inter_broker.listener, quotas), ConnectionLimits()
            ),
            log=faults.attempt(lambda: LogConfig.from_properties(logs), LogConfig()),
            beside_0_10=beside_0_10,
            unknown=tuple(sorted(properties.keys() - BROKER_CONFIG.keys - own)),
            properties=dict(properties),
        )
        faults.add(_delay_faults(config))
        # Of two for a property that logs have in common with the broker, the last, as in BROKER_CONFIG.
        faults.check(
            properties, BROKER_CONFIG.unknown({name: properties[name] for name in properties.keys() - own})
        )
        versions = ValueVersions.written_for(config.protocol_version)
        return replace(config, groups=replace(config.groups, versions=versions))


def _oldest(properties: Mapping[str, str]) -> Release | None:
    return RELEASE.parse(_PROTOCOL, properties[_PROTOCOL]) if _PROTOCOL in properties else None


def _delay_faults(config: BrokerConfig) -> Iterator[ConfigError]:
    delay_ms, idle_ms = config.authentication.failure_delay_ms, config.connection_idle_max_ms
    if delay_ms >= idle_ms:
        allowed = f"must be below connections.max.idle.ms, which is {idle_ms}"
        yield ConfigError("connection.failed.authentication.delay.ms", delay_ms, allowed)


def _format_faults(properties: Mapping[str, str], beside_0_10: bool) -> Iterator[ConfigError]:
    """Yield the fault of a default message format that brokers of 0.10 cannot replicate."""
    if beside_0_10 and not as_text(properties[_FORMAT]).startswith(("0.8.", "0.9.", "0.10.")):
        allowed = f"must be at most 0.10.1, because {_PROTOCOL} is {properties[_PROTOCOL]}"
        yield ConfigError(_FORMAT, properties[_FORMAT], allowed)


def _in_group(group: str, *sections: type) -> list[ConfigKey]:
    return [
        key if key.group else replace(key, group=group)
        for section in sections
        for key in definition_of(section).keys.values()
    ]


BROKER_CONFIG = ConfigDef(
    [
        *broker_keys(_LOGS),
        *_in_group(_LOGS, CleanerConfig),
        *_in_group(_LOGS, BrokerConfig),
        *(replace(key, group=_IDENTITY) for key in zookeeper_keys()),
        *_in_group(_CONNECTIONS, ListenerConfig, ConnectionLimits),
        *_in_group(_SECURITY, AuthenticationConfig, SaslServerConfig, InterBrokerSaslConfig, SslConfig),
        *(replace(definition_of(SaslConfig).keys[name], group=_SECURITY) for name in LOGIN_NAMES),
        *(replace(key, group=_SECURITY) for key in definition_of(SignedTokenConfig).keys.values()),
        *_in_group(REPLICATION, ReplicationConfig, FetchConfig),
        *_in_group(CONTROLLER, ControlConfig),
        *_in_group(_GROUPS, GroupSettings, OffsetsConfig),
        *_in_group(TRANSACTIONS, TransactionSettings, TransactionStateConfig),
        *_in_group(QUOTAS, QuotaConfig),
        *_in_group(_ACCESS, AccessConfig),
        *_in_group(METRICS, MetricsConfig, OtlpConfig),
        *_in_group(EVENT_LOG, EventLogConfig),
    ],
    {**SslConfig.UNSUPPORTED, **dict.fromkeys(SECURITY_PREFIXES, NOT_YET)},
    SslConfig.CHECKED,
)
"""Every property of a broker, with the names that give the defaults of a topic's settings."""
