"""The settings of a consumer of a group in ZooKeeper (``ConsumerConfig`` of text 004)."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from minikafka.base.config.config_def import REQUIRED, AbstractConfig, Faults, definition_of, setting
from minikafka.base.config.types import BOOLEAN, INT_MIN, as_text, int32, one_of, text_type
from minikafka.base.config.unknown_names import closest_match, did_you_mean
from minikafka.base.errors import ConfigError
from minikafka.clients.common_client_configs import (
    CLIENT_ID,
    LEGAL_NAME,
    LEGAL_TEXT,
    SECURITY_SETTINGS,
    ClientSecurity,
)
from minikafka.clients.consumer.assignment import STRATEGIES, STRATEGY
from minikafka.registry.paths import BROKER_IDS
from minikafka.registry.zookeeper_address import ZOOKEEPER_CONNECT, parse_connect
from minikafka.security.zookeeper_config import ZOOKEEPER_SECURITY, ZooKeeperClientConfig

ZOOKEEPER, KAFKA = "zookeeper", "kafka"
"""Values of ``offsets.storage``."""
SMALLEST, LARGEST = "smallest", "largest"
"""Values of ``auto.offset.reset``; with any other value a stream raises an error instead of a reset."""

_NO_ZNODE = re.compile(r"[/\x00-\x1f\x7f-\x9f]")
_RESETS = (SMALLEST, LARGEST, "none")
_NEWER_RESETS = {"earliest": SMALLEST, "latest": LARGEST}
"""Words of the newer consumer -> those of this one."""
logger = logging.getLogger(__name__)


def _group_id(text: str) -> str:
    if LEGAL_NAME.fullmatch(text) is None or text in {"", ".", ".."}:
        raise ValueError
    return text


def _consumer_id(text: str) -> str:
    if _NO_ZNODE.search(text or "/"):
        raise ValueError
    return text


def _reset(text: str) -> str:
    if text in _NEWER_RESETS:
        raise ValueError(f"{text} is the newer consumer's word; use {_NEWER_RESETS[text]}")
    if not text:
        raise ValueError
    return text


@dataclass(frozen=True, slots=True)
class ConsumerConfig(AbstractConfig):
    """The settings of a consumer of a group in ZooKeeper: registration, fetches, commits and rebalances.

    Fields are the property names with ``_`` for ``.``; defaults are those of 0.10.1. Times are in
    milliseconds, sizes in bytes. Raises ConfigErrors, which names every fault at once under its property.

    ``auto_offset_reset`` is ``smallest`` or ``largest``. With any other value, the stream raises an error for
    an offset that the log does not have. (0.10.1 documents that, and refuses such a value.) Such a value is
    logged as a warning at the start, unless it is ``none``. The values of later consumers, ``earliest`` and
    ``latest``, are refused.
    """

    PASSED_ON: ClassVar[Collection[str]] = (*SECURITY_SETTINGS, *ZOOKEEPER_SECURITY)

    group_id: str = setting(
        "group.id",
        text_type(f"a name of {LEGAL_TEXT}, but not '.' or '..'", _group_id),
        REQUIRED,
        "The name of the group.",
    )
    zookeeper_connect: str = setting(
        "zookeeper.connect",
        ZOOKEEPER_CONNECT,
        REQUIRED,
        "ZooKeeper's address: HOST:PORT[,HOST:PORT…][/CHROOT].",
    )
    consumer_id: str | None = setting(
        "consumer.id",
        text_type("a part of a path, without '/' and control characters", _consumer_id),
        None,
        "The consumer registers as `GROUP_ID`, by default under a unique generated name.",
    )
    client_id: str = setting(
        "client.id",
        CLIENT_ID,
        None,
        "The name of this client in requests; `group.id` by default.",
        derive=lambda values: values["group_id"],
    )
    socket_timeout_ms: int = setting(
        "socket.timeout.ms",
        int32(1),
        30_000,
        "How long to wait for a response; at least `fetch.wait.max.ms`.",
    )
    socket_receive_buffer_bytes: int = setting(
        "socket.receive.buffer.bytes", int32(-1), 64 * 1024, "0 or less: the system's default."
    )
    fetch_message_max_bytes: int = setting(
        "fetch.message.max.bytes", int32(1), 1024 * 1024, "Bytes of a partition in one fetch."
    )
    num_consumer_fetchers: int = setting(
        "num.consumer.fetchers", int32(1), 1, "Fetcher threads for each leading broker."
    )
    auto_commit_enable: bool = setting(
        "auto.commit.enable", BOOLEAN, True, "Whether offsets are committed by time."
    )
    auto_commit_interval_ms: int = setting("auto.commit.interval.ms", int32(1), 60_000, "How often that is.")
    queued_max_message_chunks: int = setting(
        "queued.max.message.chunks", int32(1), 2, "Fetched chunks that wait, for each stream."
    )
    rebalance_max_retries: int = setting("rebalance.max.retries", int32(1), 4, "Attempts of one rebalance.")
    fetch_min_bytes: int = setting("fetch.min.bytes", int32(0), 1, "Bytes for which a broker waits.")
    fetch_max_bytes: int = setting(
        "fetch.max.bytes",
        int32(1),
        50 * 1024 * 1024,
        "Bytes of one fetch in all; never more than `fetch.message.max.bytes` for each partition.",
    )
    fetch_wait_max_ms: int = setting("fetch.wait.max.ms", int32(0), 100, "How long a broker waits.")
    rebalance_backoff_ms: int = setting(
        "rebalance.backoff.ms",
        int32(0),
        None,
        "The pause between two attempts of a rebalance; `zookeeper.sync.time.ms` by default.",
        derive=lambda values: values["zookeeper_sync_time_ms"],
    )
    refresh_leader_backoff_ms: int = setting(
        "refresh.leader.backoff.ms", int32(0), 200, "The pause before a lost leader is looked up."
    )
    auto_offset_reset: str = setting(
        "auto.offset.reset",
        text_type(
            f"{SMALLEST}, {LARGEST}, or another word, such as none, to raise an error instead (not "
            f"{' or '.join(_NEWER_RESETS)}, which are the newer consumer's words)",
            _reset,
        ),
        LARGEST,
        "Where to start without a committed offset, or with one that the log does not have.",
    )
    consumer_timeout_ms: int = setting(
        "consumer.timeout.ms",
        int32(INT_MIN).then(lambda value: max(-1, value)),
        -1,
        "An iterator raises ConsumerTimeout after this time without a message; negative: never.",
    )
    exclude_internal_topics: bool = setting(
        "exclude.internal.topics", BOOLEAN, True, "Whether filters leave out the topic of committed offsets."
    )
    partition_assignment_strategy: str = setting(
        STRATEGY, one_of(*STRATEGIES), STRATEGIES[0], "How partitions are divided among the streams."
    )
    zookeeper_session_timeout_ms: int = setting(
        "zookeeper.session.timeout.ms", int32(1), 6_000, "How long a consumer may be silent."
    )
    zookeeper_connection_timeout_ms: int = setting(
        "zookeeper.connection.timeout.ms",
        int32(1),
        None,
        "How long to wait for ZooKeeper at the start; `zookeeper.session.timeout.ms` by default.",
        derive=lambda values: values["zookeeper_session_timeout_ms"],
    )
    zookeeper_sync_time_ms: int = setting(
        "zookeeper.sync.time.ms", int32(0), 2_000, "How far a ZooKeeper server may lag behind its leader."
    )
    offsets_storage: str = setting(
        "offsets.storage", one_of(ZOOKEEPER, KAFKA), ZOOKEEPER, "Where offsets are committed."
    )
    offsets_channel_backoff_ms: int = setting(
        "offsets.channel.backoff.ms",
        int32(0),
        1_000,
        "The pause between two attempts to reach the coordinator, or to commit or fetch offsets there.",
    )
    offsets_channel_socket_timeout_ms: int = setting(
        "offsets.channel.socket.timeout.ms", int32(1), 10_000, "How long to wait for the coordinator."
    )
    offsets_commit_max_retries: int = setting(
        "offsets.commit.max.retries",
        int32(0),
        5,
        "Retries of explicit commits, and those at a rebalance or at shutdown; auto commits are not retried.",
    )
    dual_commit_enabled: bool = setting(
        "dual.commit.enabled",
        BOOLEAN,
        None,
        "Whether offsets are kept in both storages; by default if `offsets.storage` is `kafka`.",
        derive=lambda values: values["offsets_storage"] == KAFKA,
    )
    security: ClientSecurity = field(default_factory=ClientSecurity, repr=False)
    """``security.protocol``, ``ssl.*`` and ``sasl.*``, for the connections to brokers."""
    zookeeper: ZooKeeperClientConfig = field(default_factory=ZooKeeperClientConfig, repr=False)
    """``zookeeper.set.acl``, ``zookeeper.digest.credentials`` and ``zookeeper.ssl.*``."""

    @classmethod
    def _other_fields(cls, properties: Mapping[str, object], faults: Faults) -> Mapping[str, object]:
        return {
            "security": faults.attempt(lambda: ClientSecurity.from_properties(properties), None),
            "zookeeper": faults.attempt(lambda: ZooKeeperClientConfig.among(properties), None),
        }

    def __post_init__(self) -> None:
        AbstractConfig.__post_init__(self)
        self._warn_unknown_reset()

    def _conflicts(self) -> Iterator[tuple[str, ConfigError]]:
        if self.fetch_wait_max_ms > self.socket_timeout_ms:
            allowed = f"must be at least fetch.wait.max.ms, which is {self.fetch_wait_max_ms}"
            yield "fetch.wait.max.ms", ConfigError("socket.timeout.ms", self.socket_timeout_ms, allowed)

    def _warn_unknown_reset(self) -> None:
        reset = self.auto_offset_reset
        if reset in _RESETS:
            return
        logger.warning(
            "auto.offset.reset=%r is neither %s nor %s: as with none, streams raise an error if no offset "
            "is committed, or if the log does not have the offset%s",
            reset,
            SMALLEST,
            LARGEST,
            did_you_mean(closest_match(reset.lower(), _RESETS, 0.6)),
        )

    @property
    def no_brokers_hint(self) -> str:
        """The end of an error message: the path without brokers, and the settings to check."""
        connect = self.zookeeper_connect
        hosts, chroot = parse_connect(connect)
        here = f"{chroot!r} here" if chroot else "none here"
        return (
            f"{chroot}{BROKER_IDS} on ZooKeeper at {hosts} is empty. Check that a broker runs, and that "
            f"zookeeper.connect={connect!r} is the same as in the broker's settings, with its chroot ({here})"
        )

    def to_properties(self) -> dict[str, str]:
        """Return all settings as text, under their property names; ``from_properties`` reads them back."""
        found = {name: getattr(self, key.field) for name, key in definition_of(type(self)).keys.items()}
        return {name: as_text(value) for name, value in found.items() if value is not None}
