"""The meters of the texts' consumers (``stats``) under the names of Kafka's newer clients, for ``metrics()``.

Rates are of the last minute, and means and maxima since the start, as the meters have them. All consumers of
one client id share them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from minikafka.base.ids import TopicPartition
from minikafka.clients.consumer.stats import (
    ConsumerTopicMetrics,
    ConsumerTopicStats,
    FetchRequestAndResponseMetrics,
    FetchRequestAndResponseStats,
    Meter,
    Summary,
)
from minikafka.clients.metrics.consumer import FETCH, FETCH_PARTITION, FETCH_TOPIC
from minikafka.clients.metrics.registry import Metrics, read
from minikafka.clients.metrics.sensor import Reading

_NOW_MS = 0
"""Readings do not change with time."""
_OF_FETCHES = tuple(metric for metric in FETCH.metrics if metric.source in ("latency", "size", "throttle"))


def _of_meter(meter: Meter) -> Reading:
    found = Reading()
    found.total = found.window_sum = meter.count
    found.count = found.window_count = meter.count
    return _with_rate(found, meter.one_minute_rate)


def _of_summary(summary: Summary, rate: float = 0.0) -> Reading:
    found = Reading()
    found.total = found.window_sum = summary.sum
    found.count = found.window_count = summary.count
    found.minimum, found.maximum = summary.min, summary.max
    return _with_rate(found, rate)


def _with_rate(found: Reading, rate: float) -> Reading:
    found.span_ms = found.window_count * 1000 / rate if rate else math.inf
    return found


class _Fetches:
    """The readings of all fetches."""

    def __init__(self, stats: FetchRequestAndResponseMetrics) -> None:
        self.latency = _of_summary(stats.request_ms, stats.requests.one_minute_rate)
        self.size = _of_summary(stats.response_bytes)
        self.throttle = _of_summary(stats.throttle_ms)


class _Consumed:
    """The readings of all topics, or of one."""

    def __init__(self, stats: ConsumerTopicMetrics) -> None:
        self.records = _of_meter(stats.messages)
        self.bytes_ = _of_meter(stats.bytes_)


class _Lags:
    """The lag of some partitions at present. Their lead is unknown."""

    def __init__(self, lags: Mapping[TopicPartition, int]) -> None:
        summary = Summary()
        for lag in lags.values():
            summary.add(lag)
        self.lag, self.lead = _of_summary(summary), Reading()
        self.lag_now, self.lead_now = self.lag.largest, math.nan


def fetch_metrics(stats: FetchRequestAndResponseStats) -> Metrics:
    """Return the metrics of fetches: their number, time and size."""
    return {FETCH.key(): read(_OF_FETCHES, _Fetches(stats.all_brokers), _NOW_MS)}


def consumed_metrics(stats: ConsumerTopicStats, lags: Mapping[TopicPartition, int]) -> Metrics:
    """Return the metrics of messages and bytes by topic, and the lag by partition."""
    lag = [metric for metric in FETCH.metrics if metric.source in ("lag", "lead")]
    total = read(FETCH_TOPIC.metrics, _Consumed(stats.all_topics), _NOW_MS)
    found: Metrics = {FETCH.key(): total | read(lag, _Lags(lags), _NOW_MS)}
    for name, topic in stats.topics.items():
        found[FETCH_TOPIC.key(name)] = FETCH_TOPIC.read(_Consumed(topic), _NOW_MS)
    for tp, offsets in lags.items():
        found[FETCH_PARTITION.key(*tp)] = FETCH_PARTITION.read(_Lags({tp: offsets}), _NOW_MS)
    return found
