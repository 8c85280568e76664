"""Quotas of replication (KIP-73): the byte rates, their limits and the throttled partitions.

Pure except for a mutex. A broker has three rates: of the bytes that it sends as a leader, of those that it
fetches as a follower, and of those that it copies between its data directories (KIP-113). For the first two
only the bytes of throttled partitions count, only throttled partitions are paused, and only if the follower
is not in sync: otherwise the ISR would shrink. So a reassignment never slows down clients or replicas that
are in sync.

    /config/brokers/ID      leader.replication.throttled.rate, follower.replication.throttled.rate,
                            replica.alter.log.dirs.io.max.bytes.per.second: bytes a second
    /config/topics/TOPIC    leader.replication.throttled.replicas, follower.replication.throttled.replicas:
                            PARTITION:BROKER,…, or * for all
    replication.quota.window.num, replication.quota.window.size.seconds     the broker's properties

Measured as in 0.10.1 (``SimpleRate``): the bytes of the last windows, divided by the time since the first of
them started, and by one window at least. Partitions are not paused while the rate is at most the limit, so
that one fetch of every partition may exceed it. This leader sends at most the bytes of one second of each
partition at a time, where 0.10.1 sends as much as was requested. Text: ``ReplicationQuotaManager`` of 0.10.1.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from minikafka.base.errors import ConfigError
from minikafka.base.ids import TopicPartition
from minikafka.base.rate import SimpleRate
from minikafka.log.config import throttled_partitions
from minikafka.registry.entity_configs import (
    ALTER_LOG_DIRS_RATE,
    BROKER_RATES,
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    RATE,
)
from minikafka.server.config.replication import ReplicationConfig
from minikafka.server.quotas.client_quotas import UNLIMITED

_log = logging.getLogger(__name__)


class ReplicationQuotaManager:
    """The quota of one direction, leader or follower: its rate, limit and throttled partitions. Thread-safe.

    Times are monotonic milliseconds.
    """

    def __init__(self, windows: int, window_ms: int) -> None:
        self.active = False
        """True if a partition may be paused; otherwise nothing needs to be checked or measured."""
        self._limit = UNLIMITED
        self._rate = SimpleRate(windows, window_ms)
        self._partitions: dict[str, frozenset[int] | None] = {}
        """The throttled partitions by topic; None: all partitions of the topic."""
        self._lock = threading.Lock()

    @property
    def limit(self) -> int:
        """The limit in bytes a second."""
        return self._limit

    def set_limit(self, limit: int) -> None:
        """Set the limit in bytes a second."""
        with self._lock:
            self._limit = limit
            self._decide()

    def name(self, topic: str, partitions: frozenset[int] | None) -> None:
        """Set the throttled partitions of a topic; None: all."""
        with self._lock:
            if partitions is None or partitions:
                self._partitions[topic] = partitions
            else:
                self._partitions.pop(topic, None)
            self._decide()

    def covers(self, topic_partition: TopicPartition) -> bool:
        """Return True if a partition is throttled."""
        named = self._partitions.get(topic_partition.topic, frozenset())
        return named is None or topic_partition.partition in named

    def record(self, count: int, now_ms: int) -> None:
        """Add ``count`` bytes of throttled partitions."""
        with self._lock:
            self._rate.record(count, now_ms)

    def pause_ms(self, now_ms: int) -> int:
        """Return the pause of throttled partitions; 0 while the rate is not above the limit."""
        with self._lock:
            return self._rate.throttle_ms(self._limit, now_ms)

    def _decide(self) -> None:
        self.active = bool(self._partitions) and self._limit != UNLIMITED


class ReplicationQuotas:
    """The replication quotas of a broker, as configured in ZooKeeper."""

    def __init__(self, broker_id: int, config: ReplicationConfig) -> None:
        windows, window_ms = config.throttle_windows, config.throttle_window_ms
        self.leader = ReplicationQuotaManager(windows, window_ms)
        self.follower = ReplicationQuotaManager(windows, window_ms)
        self.alter_log_dirs = ReplicationQuotaManager(
            config.alter_log_dirs_windows, config.alter_log_dirs_window_ms
        )
        self.settings: Mapping[str, str] = {}
        """The broker's own configs in ZooKeeper, as last read."""
        self._broker_id = broker_id

    def set_topic(self, topic: str, settings: Mapping[str, str]) -> None:
        """Apply a topic's configs. An invalid list throttles nothing; it is logged when the logs get it."""
        for quota, name in ((self.leader, LEADER_REPLICAS), (self.follower, FOLLOWER_REPLICAS)):
            quota.name(topic, throttled_partitions(settings.get(name, ""), self._broker_id))

    def set_rates(self, settings: Mapping[str, str]) -> None:
        """Apply the broker's configs in ZooKeeper, which are complete but for its properties."""
        if settings == self.settings:
            return
        idle = sorted(settings.keys() - set(BROKER_RATES))
        if idle:
            _log.warning(
                "configs of broker %d: ignored %s: that cannot be changed while it runs",
                self._broker_id,
                ", ".join(idle),
            )
        for quota, name in (
            (self.leader, LEADER_RATE),
            (self.follower, FOLLOWER_RATE),
            (self.alter_log_dirs, ALTER_LOG_DIRS_RATE),
        ):
            limit = _limit(name, settings[name]) if name in settings else UNLIMITED
            if limit != quota.limit:
                quota.set_limit(limit)
                text = "no limit" if limit == UNLIMITED else f"{limit} bytes per second"
                _log.info("%s of broker %d: %s", name, self._broker_id, text)
        self.settings = dict(settings)


def _limit(name: str, text: str) -> int:
    try:
        limit: int = RATE.parse(name, text)
    except ConfigError as error:
        _log.warning("%s; applying no limit", error)
        return UNLIMITED
    return limit
