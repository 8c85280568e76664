"""The meters of a consumer."""

from __future__ import annotations

import pytest

from minikafka.base.clock import ManualClock
from minikafka.clients.consumer.stats import ConsumerTopicStats, ConsumerTopicStatsRegistry, Meter, Summary


def test_meter_has_a_count_and_a_mean_rate() -> None:
    clock = ManualClock()
    meter = Meter(clock)
    assert (meter.count, meter.mean_rate) == (0, 0.0)
    meter.mark()
    meter.mark(9)
    clock.advance(2_000)
    assert (meter.count, meter.mean_rate) == (10, 5.0)


def test_one_minute_rate_follows_events_and_decays() -> None:
    clock = ManualClock()
    meter = Meter(clock)
    for _ in range(100):
        meter.mark(50)
        clock.advance(5_000)
    assert meter.one_minute_rate == pytest.approx(10)
    clock.advance(60_000)
    # The last five seconds still counted; eleven ticks without events followed.
    assert meter.one_minute_rate == pytest.approx(10 / 2.718, rel=0.01)
    assert meter.mean_rate == pytest.approx(5_000 / 560)


def test_summary_has_mean_minimum_and_maximum() -> None:
    summary = Summary()
    assert (summary.count, summary.mean, summary.min, summary.max) == (0, 0.0, 0, 0)
    for number in (4, 2, 9):
        summary.add(number)
    assert (summary.count, summary.sum, summary.mean, summary.min, summary.max) == (3, 15, 5.0, 2, 9)


def test_topics_are_counted_separately_and_together() -> None:
    stats = ConsumerTopicStats("c", ManualClock())
    stats.record_messages("a", 3)
    stats.record_messages("b", 1)
    stats.record_bytes("a", 100)
    stats.record_skipped("b")
    assert {name: metrics.messages.count for name, metrics in stats.topics.items()} == {"a": 3, "b": 1}
    assert stats.all_topics.messages.count == 4
    assert (stats.topic("a").bytes_.count, stats.all_topics.bytes_.count) == (100, 100)
    assert (stats.topic("b").skipped.count, stats.all_topics.skipped.count) == (1, 1)


def test_client_keeps_its_stats_until_they_are_removed() -> None:
    first = ConsumerTopicStatsRegistry.get("a-client")
    assert ConsumerTopicStatsRegistry.get("a-client") is first
    ConsumerTopicStatsRegistry.remove("a-client")
    assert ConsumerTopicStatsRegistry.get("a-client") is not first
    ConsumerTopicStatsRegistry.remove("a-client")
    ConsumerTopicStatsRegistry.remove("a-client")
