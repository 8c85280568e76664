"""The settings of a consumer of a group in ZooKeeper (``ConsumerConfig`` of text 004)."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from minikafka.base.config.property_reader import PropertyReader
from minikafka.base.config.unknown_names import closest_match, did_you_mean
from minikafka.base.errors import ConfigError
from minikafka.clients.consumer.assignment import STRATEGIES, STRATEGY
from minikafka.registry.paths import BROKER_IDS

ZOOKEEPER, KAFKA = "zookeeper", "kafka"
"""Values of ``offsets.storage``."""
SMALLEST, LARGEST = "smallest", "largest"
"""Values of ``auto.offset.reset``; with any other value a stream raises an error instead of a reset."""

_LEGAL = re.compile(r"[a-zA-Z0-9._-]*")
_LEGAL_TEXT = "ASCII letters and digits, '.', '_' and '-'"
_NO_ZNODE = re.compile(r"[/\x00-\x1f\x7f-\x9f]")
_RESETS = (SMALLEST, LARGEST, "none")
_NEW_CONSUMER_RESETS = frozenset({"earliest", "latest"})
logger = logging.getLogger(__name__)

_DERIVED: Any = None
"""Marks a field whose default derives from another setting."""


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """The settings of a consumer of a group in ZooKeeper: registration, fetches, commits and rebalances.

    Fields are the property names with ``_`` for ``.``; defaults are those of 0.10.1. Times are in
    milliseconds, sizes in bytes. Raises ConfigErrors, which names every fault at once under its property.

    ``auto_offset_reset`` is ``smallest`` or ``largest``. With any other value, the stream raises an error for
    an offset that the log does not have. (0.10.1 documents that, and refuses such a value.) Such a value is
    logged as a warning at the start, unless it is ``none``. The values of later consumers, ``earliest`` and
    ``latest``, are refused.
    """

    group_id: str
    """ASCII letters and digits, ``.``, ``_`` and ``-``, as for ``client_id``."""
    zookeeper_connect: str
    """``HOST:PORT[,HOST:PORT…][/CHROOT]``"""
    consumer_id: str | None = None
    """The consumer registers as ``GROUP_ID``; None: under a unique generated name."""
    client_id: str = _DERIVED
    """The client id in requests; default: ``group_id``."""
    socket_timeout_ms: int = 30_000
    """At least ``fetch_wait_max_ms``."""
    socket_receive_buffer_bytes: int = 64 * 1024
    """0 or less: the system's default."""
    fetch_message_max_bytes: int = 1024 * 1024
    """Per partition of a fetch."""
    num_consumer_fetchers: int = 1
    """Per leading broker."""
    auto_commit_enable: bool = True
    auto_commit_interval_ms: int = 60_000
    queued_max_message_chunks: int = 2
    """Per stream."""
    rebalance_max_retries: int = 4
    """Attempts of one rebalance, at least 1."""
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 50 * 1024 * 1024
    """Per fetch in all; a fetch never requests more than ``fetch_message_max_bytes`` either."""
    fetch_wait_max_ms: int = 100
    rebalance_backoff_ms: int = _DERIVED
    """Between two attempts; default: ``zookeeper_sync_time_ms``."""
    refresh_leader_backoff_ms: int = 200
    auto_offset_reset: str = LARGEST
    consumer_timeout_ms: int = -1
    """An iterator raises ConsumerTimeout after this time without a message; negative: never."""
    exclude_internal_topics: bool = True
    """True to exclude the topic of committed offsets from filters."""
    partition_assignment_strategy: str = STRATEGIES[0]
    """``range`` or ``roundrobin``."""
    zookeeper_session_timeout_ms: int = 6_000
    zookeeper_connection_timeout_ms: int = _DERIVED
    """Default: ``zookeeper_session_timeout_ms``."""
    zookeeper_sync_time_ms: int = 2_000
    offsets_storage: str = ZOOKEEPER
    """``zookeeper`` or ``kafka``."""
    offsets_channel_backoff_ms: int = 1_000
    """Between two attempts to connect to the coordinator, or to commit or fetch offsets there."""
    offsets_channel_socket_timeout_ms: int = 10_000
    offsets_commit_max_retries: int = 5
    """For explicit commits, and those at a rebalance or at shutdown; auto commits are not retried."""
    dual_commit_enabled: bool = _DERIVED
    """True to keep offsets in both storages; default: true if ``offsets_storage`` is ``kafka``."""

    def __post_init__(self) -> None:
        checked = _read({_KAFKA_NAMES[field.name]: getattr(self, field.name) for field in fields(self)})
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        self._warn_unknown_reset()

    @classmethod
    def from_properties(cls, properties: Mapping[str, object]) -> ConsumerConfig:
        """Return the settings of a mapping of Kafka's property names; values may be text.

        An unknown name is logged as a warning, as in the release. Raises TypeError if ``properties`` is not a
        mapping.
        """
        _check_mapping(properties)
        return cls(**_read(properties))

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
        hosts, chroot = _parsed_connect(connect)
        here = f"{chroot!r} here" if chroot else "none here"
        return (
            f"{chroot}{BROKER_IDS} on ZooKeeper at {hosts} is empty. Check that a broker runs, and that "
            f"zookeeper.connect={connect!r} is the same as in the broker's settings, with its chroot ({here})"
        )

    def to_properties(self) -> dict[str, str]:
        """Return all settings as text, under their property names; ``from_properties`` reads them back."""
        found = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None:
                found[_KAFKA_NAMES[field.name]] = str(value).lower() if type(value) is bool else str(value)
        return found


_KAFKA_NAMES = {field.name: field.name.replace("_", ".") for field in fields(ConsumerConfig)}


def _check_mapping(properties: Any) -> None:
    if not isinstance(properties, Mapping):
        raise TypeError(
            f"expected a mapping of properties, such as {{'group.id': 'billing', …}}, got {properties!r:.100}"
        )


def _read(properties: Mapping[str, object]) -> dict[str, Any]:
    """Return all fields with their values. Raises ConfigErrors."""
    read = PropertyReader(properties)
    found = _read_names(read) | _read_fetching(read) | _read_coordination(read)
    wait_ms, timeout_ms = found["fetch_wait_max_ms"], found["socket_timeout_ms"]
    if wait_ms > timeout_ms:
        read.refuse(
            "socket.timeout.ms", timeout_ms, f"must be at least fetch.wait.max.ms, which is {wait_ms}"
        )
    read.finish()
    return found


def _read_names(read: PropertyReader) -> dict[str, Any]:
    """Read the names of group, client and consumer, and the address of ZooKeeper."""
    group = read.required("group.id", _LEGAL_TEXT)
    client, consumer = read.optional("client.id"), read.optional("consumer.id")
    connect = read.required("zookeeper.connect", "HOST:PORT, or HOST:PORT/CHROOT")
    if group is not None and (_LEGAL.fullmatch(group) is None or group in {"", ".", ".."}):
        read.refuse("group.id", group, f"must be a name of {_LEGAL_TEXT}, but not '.' or '..'")
    if client is not None and _LEGAL.fullmatch(client) is None:
        read.refuse("client.id", client, f"must consist of {_LEGAL_TEXT}")
    if consumer is not None and _NO_ZNODE.search(consumer or "/"):
        read.refuse("consumer.id", consumer, "must be a part of a path, without '/' and control characters")
    if connect is not None:
        _check_connect(read, connect)
    return {
        "group_id": group,
        "client_id": group if client is None else client,
        "consumer_id": consumer,
        "zookeeper_connect": connect,
    }


def _check_connect(read: PropertyReader, connect: str) -> None:
    try:
        _parsed_connect(connect)
    except ConfigError as error:
        read.refuse(error.name, error.value, error.allowed)


def _parsed_connect(connect: str) -> tuple[str, str]:
    from minikafka.registry.zookeeper import parse_connect  # imports the client library

    return parse_connect(connect)


def _read_fetching(read: PropertyReader) -> dict[str, Any]:
    """Read the settings for fetches and streams."""
    reset = read.text("auto.offset.reset", LARGEST)
    if not reset or reset in _NEW_CONSUMER_RESETS:
        allowed = f"must be {SMALLEST} or {LARGEST}, or another word, such as none, to raise an error instead"
        read.refuse("auto.offset.reset", reset, allowed)
    return {
        "auto_offset_reset": reset,
        "socket_timeout_ms": read.integer("socket.timeout.ms", 30_000, 1),
        "socket_receive_buffer_bytes": read.integer("socket.receive.buffer.bytes", 64 * 1024, -1),
        "fetch_message_max_bytes": read.integer("fetch.message.max.bytes", 1024 * 1024, 1),
        "fetch_max_bytes": read.integer("fetch.max.bytes", 50 * 1024 * 1024, 1),
        "fetch_min_bytes": read.integer("fetch.min.bytes", 1, 0),
        "fetch_wait_max_ms": read.integer("fetch.wait.max.ms", 100, 0),
        "num_consumer_fetchers": read.integer("num.consumer.fetchers", 1, 1),
        "queued_max_message_chunks": read.integer("queued.max.message.chunks", 2, 1),
        "refresh_leader_backoff_ms": read.integer("refresh.leader.backoff.ms", 200, 0),
        "consumer_timeout_ms": max(-1, read.integer("consumer.timeout.ms", -1)),
        "exclude_internal_topics": read.boolean("exclude.internal.topics", True),
    }


def _read_coordination(read: PropertyReader) -> dict[str, Any]:
    """Read the settings for rebalances and commits."""
    storage = read.text("offsets.storage", ZOOKEEPER).lower()
    if storage not in {ZOOKEEPER, KAFKA}:
        read.refuse("offsets.storage", storage, f"must be {ZOOKEEPER} or {KAFKA}")
    session_ms = read.integer("zookeeper.session.timeout.ms", 6_000, 1)
    sync_ms = read.integer("zookeeper.sync.time.ms", 2_000, 0)
    return {
        "zookeeper_session_timeout_ms": session_ms,
        "zookeeper_connection_timeout_ms": read.integer("zookeeper.connection.timeout.ms", session_ms, 1),
        "zookeeper_sync_time_ms": sync_ms,
        "partition_assignment_strategy": read.choice(STRATEGY, STRATEGIES[0], STRATEGIES),
        "rebalance_max_retries": read.integer("rebalance.max.retries", 4, 1),
        "rebalance_backoff_ms": read.integer("rebalance.backoff.ms", sync_ms, 0),
        "auto_commit_enable": read.boolean("auto.commit.enable", True),
        "auto_commit_interval_ms": read.integer("auto.commit.interval.ms", 60_000, 1),
        "offsets_storage": storage,
        "dual_commit_enabled": read.boolean("dual.commit.enabled", storage == KAFKA),
        "offsets_channel_backoff_ms": read.integer("offsets.channel.backoff.ms", 1_000, 0),
        "offsets_channel_socket_timeout_ms": read.integer("offsets.channel.socket.timeout.ms", 10_000, 1),
        "offsets_commit_max_retries": read.integer("offsets.commit.max.retries", 5, 0),
    }
