"""The metrics of a consumer: its polls, its fetches, and its membership of a group.

All are recorded for each poll, request, response, or piece of a response that a poll returns. Each sensor is
recorded by one thread alone, so that there is no lock: heartbeats by the thread that sends them, all others
by the thread that polls. The lag of a partition is what the last response of its leader said, up to the last
stable offset with ``isolation.level`` read_committed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from minikafka.base.clock import Clock
from minikafka.base.ids import TopicPartition
from minikafka.clients.metrics.connections import CONNECTION_METRICS, NODE_METRICS
from minikafka.clients.metrics.registry import (
    Metric,
    MetricGroup,
    Metrics,
    Stat,
    counted,
    measured,
    seconds_ago,
    summed,
    value,
)
from minikafka.clients.metrics.sensor import Reading, Sensor, merged

PREFIX = "consumer"
_HOUR_S = 3_600
_CONSUMED = (
    *summed("records-consumed", "records", "Records that polls have returned"),
    *summed("bytes-consumed", "bytes_", "Bytes of fetched batches that polls have returned, compressed"),
)
_LAG = "Offsets from the position to the end of the log"
_LEAD = "Offsets from the start of the log to the position"
POLL = (
    value("last-poll-seconds-ago", "last_poll_seconds_ago", "Seconds since the last poll"),
    *measured("time-between-poll", "between_polls", "Milliseconds between two polls"),
    Metric("poll-idle-ratio-avg", "idle_ratio", Stat.AVG, "Part of the time that is spent in polls"),
)
COORDINATOR = MetricGroup(
    "consumer-coordinator-metrics",
    (),
    (
        value("assigned-partitions", "assigned_partitions", "Partitions assigned to this consumer"),
        *counted("commit", "commits", "Commits of offsets that succeeded"),
        *measured("commit-latency", "commits", "Milliseconds of a commit"),
        *counted("heartbeat", "heartbeats", "Heartbeats with a response"),
        Metric("heartbeat-response-time-max", "heartbeats", Stat.MAX, "Milliseconds of a heartbeat, maximum"),
        value("last-heartbeat-seconds-ago", "last_heartbeat_seconds_ago", "Seconds since the last heartbeat"),
        *counted("join", "joins", "JoinGroups that succeeded"),
        *measured("join-time", "joins", "Milliseconds of a JoinGroup"),
        *counted("sync", "syncs", "SyncGroups that succeeded"),
        *measured("sync-time", "syncs", "Milliseconds of a SyncGroup"),
        Metric("rebalance-total", "rebalances", Stat.COUNT, "Rebalances that ended with an assignment"),
        value("rebalance-rate-per-hour", "rebalance_rate_per_hour", "Rebalances per hour"),
        Metric("rebalance-latency-total", "rebalances", Stat.TOTAL, "Milliseconds of all rebalances"),
        *measured("rebalance-latency", "rebalances", "Milliseconds of a rebalance"),
        value("last-rebalance-seconds-ago", "last_rebalance_seconds_ago", "Seconds since the last rebalance"),
    ),
)
FETCH = MetricGroup(
    "consumer-fetch-manager-metrics",
    (),
    (
        *_CONSUMED,
        *counted("fetch", "latency", "Fetch responses"),
        *measured("fetch-latency", "latency", "Milliseconds from a Fetch until a poll takes its response"),
        *measured("fetch-size", "size", "Bytes of records in a response"),
        *measured("fetch-throttle-time", "throttle", "Milliseconds for which a broker throttled a Fetch"),
        Metric("records-lag-max", "lag", Stat.MAX, f"{_LAG}, the maximum of all partitions"),
        Metric("records-lead-min", "lead", Stat.MIN, f"{_LEAD}, the minimum of all partitions"),
    ),
)
FETCH_TOPIC = MetricGroup(FETCH.name, ("TOPIC",), _CONSUMED)
FETCH_PARTITION = MetricGroup(
    FETCH.name,
    ("TOPIC", "PARTITION"),
    (
        value("records-lag", "lag_now", _LAG),
        *measured("records-lag", "lag", _LAG),
        value("records-lead", "lead_now", _LEAD),
        Metric("records-lead-avg", "lead", Stat.AVG, f"{_LEAD}, mean"),
        Metric("records-lead-min", "lead", Stat.MIN, f"{_LEAD}, minimum"),
    ),
)
GROUPS = (
    MetricGroup("consumer-metrics", (), (*POLL, *CONNECTION_METRICS)),
    COORDINATOR,
    FETCH,
    FETCH_TOPIC,
    FETCH_PARTITION,
    MetricGroup("consumer-node-metrics", ("node-ID",), NODE_METRICS),
)


class CoordinatorMetrics:
    """The sensors of a membership, with the latency of each request in ms."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.commits = Sensor()
        self.heartbeats = Sensor()
        self.joins = Sensor()
        self.syncs = Sensor()
        self.rebalances = Sensor()
        self._last_heartbeat_ms: int | None = None
        self._last_rebalance_ms: int | None = None
        self._rebalance_began_ms: int | None = None
        self.assigned_partitions = 0
        self.last_heartbeat_seconds_ago = self.last_rebalance_seconds_ago = math.nan
        self.rebalance_rate_per_hour = 0.0

    def record(self, sensor: Sensor, latency_ms: int | None) -> None:
        """Record a response; None: there was none."""
        if latency_ms is not None:
            sensor.record(latency_ms, self._clock.monotonic_ms())

    def record_heartbeat(self, latency_ms: int | None) -> None:
        """Record the response to a heartbeat. On the thread that sends them."""
        self.record(self.heartbeats, latency_ms)
        self._last_heartbeat_ms = self._clock.monotonic_ms()

    def begin_rebalance(self) -> None:
        """Record the first JoinGroup of a rebalance, or another one."""
        if self._rebalance_began_ms is None:
            self._rebalance_began_ms = self._clock.monotonic_ms()

    def end_rebalance(self) -> None:
        """Record that this member has an assignment."""
        now_ms = self._last_rebalance_ms = self._clock.monotonic_ms()
        began_ms, self._rebalance_began_ms = self._rebalance_began_ms, None
        if began_ms is not None:
            self.rebalances.record(now_ms - began_ms, now_ms)

    def read(self, assigned_partitions: int) -> Metrics:
        """Return all values."""
        now_ms = self._clock.monotonic_ms()
        self.assigned_partitions = assigned_partitions
        self.last_heartbeat_seconds_ago = seconds_ago(self._last_heartbeat_ms, now_ms)
        self.last_rebalance_seconds_ago = seconds_ago(self._last_rebalance_ms, now_ms)
        self.rebalance_rate_per_hour = self.rebalances.read(now_ms).count_rate * _HOUR_S
        return {COORDINATOR.key(): COORDINATOR.read(self, now_ms)}


class PollMetrics:
    """The sensors of polls: the time in them, and between them. A context manager around each poll."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.between_polls = Sensor()
        self.idle_ratio = Sensor()
        self._began_ms: int | None = None
        self._ended_ms: int | None = None
        self.last_poll_seconds_ago = math.nan

    def __enter__(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if self._began_ms is not None:
            self.between_polls.record(now_ms - self._began_ms, now_ms)
        self._began_ms = now_ms

    def __exit__(self, *_: object) -> None:
        """Record the part of the poll in the time since the end of the one before."""
        now_ms, before_ms = self._clock.monotonic_ms(), self._ended_ms
        self._ended_ms = now_ms
        if before_ms is not None and self._began_ms is not None and now_ms > before_ms:
            self.idle_ratio.record((now_ms - self._began_ms) / (now_ms - before_ms), now_ms)

    def read(self) -> Metrics:
        """Return all values."""
        now_ms = self._clock.monotonic_ms()
        self.last_poll_seconds_ago = seconds_ago(self._began_ms, now_ms)
        return {"consumer-metrics": MetricGroup("consumer-metrics", (), POLL).read(self, now_ms)}


class ConsumedMetrics:
    """The sensors of what was returned of one topic."""

    def __init__(self) -> None:
        self.records = Sensor()
        self.bytes_ = Sensor()


class PartitionMetrics:
    """The lag of one partition, and its lead."""

    def __init__(self) -> None:
        self.lag = Sensor()
        self.lead = Sensor()
        self.start_offset = -1
        """The start of the log; -1 if it is unknown, like the end."""
        self.end_offset = -1
        self.lag_now = self.lead_now = math.nan

    def lag_at(self, position: int) -> int | None:
        """Return the offsets from a position to the end; None if that is unknown."""
        return max(0, self.end_offset - position) if self.end_offset >= 0 else None

    def lead_at(self, position: int) -> int | None:
        """Return the offsets from the start to a position; None if that is unknown."""
        return max(0, position - self.start_offset) if self.start_offset >= 0 else None


class FetchMetrics:
    """The sensors of fetches. Partitions that are no longer assigned are dropped, topics are not.

    Records are recorded by topic and lag by partition; the values of all are made when somebody reads them.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.latency = Sensor()
        self.size = Sensor()
        self.throttle = Sensor()
        self.records = self.bytes_ = self.lag = self.lead = Reading()
        self._topics: dict[str, ConsumedMetrics] = {}
        self._partitions: dict[TopicPartition, PartitionMetrics] = {}

    def record_response(self, latency_ms: int | None, size_bytes: int, throttle_ms: int) -> None:
        """Record a Fetch response with ``size_bytes`` of records."""
        if latency_ms is not None:
            now_ms = self._clock.monotonic_ms()
            self.latency.record(latency_ms, now_ms)
            self.size.record(size_bytes, now_ms)
            self.throttle.record(throttle_ms, now_ms)

    def record_range(self, tp: TopicPartition, start_offset: int, end_offset: int) -> None:
        """Store the start and the end of a log, as a response had them; -1: it had none."""
        partition = self._partition(tp)
        if end_offset >= 0:
            partition.end_offset = end_offset
        if start_offset >= 0:
            partition.start_offset = start_offset

    def record_returned(self, tp: TopicPartition, records: int, position: int) -> None:
        """Record records that a poll returns, up to a position."""
        now_ms = self._clock.monotonic_ms()
        self._topic(tp.topic).records.record(records, now_ms)
        partition = self._partition(tp)
        lag, lead = partition.lag_at(position), partition.lead_at(position)
        if lag is not None:
            partition.lag.record(lag, now_ms)
        if lead is not None:
            partition.lead.record(lead, now_ms)

    def record_bytes(self, topic: str, size_bytes: int) -> None:
        """Record the bytes of a fetched set all of which is returned."""
        self._topic(topic).bytes_.record(size_bytes, self._clock.monotonic_ms())

    def retain(self, partitions: Collection[TopicPartition]) -> None:
        """Drop all other partitions."""
        for tp in [tp for tp in self._partitions if tp not in partitions]:
            del self._partitions[tp]

    def read(self, positions: Mapping[TopicPartition, int]) -> Metrics:
        """Return all values, with the lag from ``positions``."""
        now_ms = self._clock.monotonic_ms()
        topics, partitions = list(self._topics.items()), list(self._partitions.items())
        self.records = merged((topic.records for _, topic in topics), now_ms)
        self.bytes_ = merged((topic.bytes_ for _, topic in topics), now_ms)
        self.lag = merged((partition.lag for _, partition in partitions), now_ms)
        self.lead = merged((partition.lead for _, partition in partitions), now_ms)
        found: Metrics = {FETCH.key(): FETCH.read(self, now_ms)}
        for name, topic in topics:
            found[FETCH_TOPIC.key(name)] = FETCH_TOPIC.read(topic, now_ms)
        for tp, partition in partitions:
            position = positions.get(tp)
            lag = None if position is None else partition.lag_at(position)
            lead = None if position is None else partition.lead_at(position)
            partition.lag_now = math.nan if lag is None else lag
            partition.lead_now = math.nan if lead is None else lead
            found[FETCH_PARTITION.key(*tp)] = FETCH_PARTITION.read(partition, now_ms)
        return found

    def _topic(self, name: str) -> ConsumedMetrics:
        found = self._topics.get(name)
        if found is None:
            found = self._topics[name] = ConsumedMetrics()
        return found

    def _partition(self, tp: TopicPartition) -> PartitionMetrics:
        found = self._partitions.get(tp)
        if found is None:
            found = self._partitions[tp] = PartitionMetrics()
        return found
