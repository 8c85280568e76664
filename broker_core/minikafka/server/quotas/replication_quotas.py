"""Byte rates of replication and their limits: which partitions are to wait (KIP-73). Pure but for a mutex.

A broker has two rates, of what it gives as a leader and of what it copies as a follower. Only bytes of the
partitions that are named count for them, and only such partitions wait, and only where the follower is not in
sync: else the ISR would shrink. So clients and what is in sync are never slowed by a move.

    /config/brokers/ID      leader.replication.throttled.rate, follower.replication.throttled.rate:
                            bytes a second
    /config/topics/TOPIC    leader.replication.throttled.replicas, follower.replication.throttled.replicas:
                            PARTITION:BROKER,…, or * for all
    replication.quota.window.num, replication.quota.window.size.seconds     the broker's properties

Measured as in 0.10.1 (``SimpleRate``): the bytes of the last windows by the time since the first of them
began, and by one window at least. What there is goes out whole while the rate is not above the limit, so that
one fetch of every partition may come on top of it; of ours a leader gives at most a second's worth of each
at a time, where 0.10.1 gives as much as was asked for. Text: ``ReplicationQuotaManager`` of 0.10.1.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from minikafka.base.ids import TopicPartition
from minikafka.log.config import throttled_partitions
from minikafka.registry.entity_configs import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    RATES,
)
from minikafka.server.quotas.client_quotas import UNLIMITED, Rate, is_number

_log = logging.getLogger(__name__)


class _SimpleRate(Rate):
    """Few windows count by the time that has passed, where a client's rate lets it begin with a burst."""

    def throttle_ms(self, limit: int, now_ms: int) -> int:
        pause_ms = super().throttle_ms(limit, now_ms)
        # The first window counts as a whole one from its beginning on.
        return pause_ms and pause_ms + max(0, self.began_ms + self.window_ms - now_ms)

    def _span_ms(self, now_ms: int) -> int:
        return max(self.window_ms, now_ms - self.began_ms)


class ReplicationQuota:
    """One of the two rates, its limit and its partitions. Thread-safe. Times are monotonic milliseconds."""

    def __init__(self, windows: int, window_ms: int) -> None:
        self.active = False
        """Whether any partition may have to wait: where not, there is nothing to be asked or counted."""
        self._limit = UNLIMITED
        self._rate = _SimpleRate(windows, window_ms)
        self._partitions: dict[str, frozenset[int] | None] = {}
        """By topic, those that count; None: all."""
        self._lock = threading.Lock()

    @property
    def limit(self) -> int:
        """Bytes a second."""
        return self._limit

    def set_limit(self, limit: int) -> None:
        """So many bytes a second from now on."""
        with self._lock:
            self._limit = limit
            self._decide()

    def name(self, topic: str, partitions: frozenset[int] | None) -> None:
        """Of a topic these partitions count, and no others; None: all."""
        with self._lock:
            if partitions is None or partitions:
                self._partitions[topic] = partitions
            else:
                self._partitions.pop(topic, None)
            self._decide()

    def covers(self, topic_partition: TopicPartition) -> bool:
        """Whether a partition is named."""
        named = self._partitions.get(topic_partition.topic, frozenset())
        return named is None or topic_partition.partition in named

    def record(self, count: int, now_ms: int) -> None:
        """``count`` bytes more of partitions that are named."""
        with self._lock:
            self._rate.record(count, now_ms)

    def pause_ms(self, now_ms: int) -> int:
        """For how long partitions that are named have to wait; 0 while the rate is not above the limit."""
        with self._lock:
            return self._rate.throttle_ms(self._limit, now_ms)

    def _decide(self) -> None:
        self.active = bool(self._partitions) and self._limit != UNLIMITED


class Throttles:
    """Both rates of a broker, as the settings in ZooKeeper say."""

    def __init__(self, broker_id: int, windows: int, window_ms: int) -> None:
        self.leader = ReplicationQuota(windows, window_ms)
        self.follower = ReplicationQuota(windows, window_ms)
        self.settings: Mapping[str, str] = {}
        """The broker's own in ZooKeeper, as they were read last."""
        self._broker_id = broker_id

    def set_topic(self, topic: str, settings: Mapping[str, str]) -> None:
        """A topic has these settings. A list that cannot be understood names nothing; who gives the settings
        to the logs says so.
        """
        for quota, name in ((self.leader, LEADER_REPLICAS), (self.follower, FOLLOWER_REPLICAS)):
            quota.name(topic, throttled_partitions(settings.get(name, ""), self._broker_id))

    def set_rates(self, settings: Mapping[str, str]) -> None:
        """The broker has these settings in ZooKeeper, and no others."""
        if settings == self.settings:
            return
        idle = sorted(settings.keys() - set(RATES))
        if idle:
            _log.warning(
                "settings of broker %d: only a replication rate is changed while it runs, not %s",
                self._broker_id,
                ", ".join(idle),
            )
        for quota, name in ((self.leader, LEADER_RATE), (self.follower, FOLLOWER_RATE)):
            limit = _limit(name, settings[name]) if name in settings else UNLIMITED
            if limit != quota.limit:
                quota.set_limit(limit)
                told = "no limit" if limit == UNLIMITED else f"{limit} bytes a second"
                _log.info("%s of broker %d: %s", name, self._broker_id, told)
        self.settings = dict(settings)


def is_rate(text: str) -> bool:
    """Whether this is a number of bytes a second, 0 and more."""
    digits = text.strip()
    return is_number(digits) and int(digits) <= UNLIMITED


def _limit(name: str, text: str) -> int:
    if is_rate(text):
        return int(text)
    _log.warning("%s=%s is no number of bytes from 0 on: there is no limit", name, text)
    return UNLIMITED
