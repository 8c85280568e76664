"""``metrics()`` of a consumer in a group: records, lag, its membership, and its polls."""

from __future__ import annotations

import math
from itertools import islice

import pytest

from minikafka.base.ids import TopicPartition
from minikafka.clients.fetch.isolation_level import IsolationLevel
from minikafka.clients.group.fetched_records import Fetched
from minikafka.records.format.batch import build_batch
from minikafka.records.format.message_set import Record, build_message_set
from tests.support.group_consumer_harness import T0, T1, GroupHarness

FETCH = "consumer-fetch-manager-metrics"


@pytest.fixture
def one(harness: GroupHarness):  # type: ignore[no-untyped-def]
    """A consumer of one partition, which has five records."""
    consumer = harness.bare()
    consumer.assign([T0])
    return consumer


def test_returned_records_are_counted_by_topic(harness: GroupHarness) -> None:
    consumer = harness.consumer()
    harness.read(consumer)
    found = consumer.metrics()
    assert found[FETCH]["records-consumed-total"] == found[f"{FETCH}.t"]["records-consumed-total"] == 20
    assert found[FETCH]["bytes-consumed-total"] == found[f"{FETCH}.t"]["bytes-consumed-total"] > 0
    assert found[FETCH]["fetch-total"] > 0
    assert found[FETCH]["fetch-size-max"] > 0


def test_every_kind_of_poll_counts_the_same(harness: GroupHarness) -> None:
    def by_sets(consumer):  # type: ignore[no-untyped-def]
        consumer.poll(100)

    def by_records(consumer):  # type: ignore[no-untyped-def]
        while consumer.poll_records(100, 2):
            pass

    def by_table(consumer):  # type: ignore[no-untyped-def]
        consumer.poll_table(100)

    def by_iteration(consumer):  # type: ignore[no-untyped-def]
        list(islice(consumer, 5))

    totals = []
    for read in (by_sets, by_records, by_table, by_iteration):
        consumer = harness.bare()
        consumer.assign([T0])
        read(consumer)
        found = consumer.metrics()[FETCH]
        totals.append((found["records-consumed-total"], found["bytes-consumed-total"]))
    assert totals == [totals[0]] * 4
    assert totals[0][0] == 5


def test_the_lag_follows_the_position(harness: GroupHarness, one) -> None:  # type: ignore[no-untyped-def]
    assert f"{FETCH}.t-0" not in one.metrics()
    assert len(one.poll_records(100, 2)) == 2
    found = one.metrics()[f"{FETCH}.t-0"]
    assert (found["records-lag"], found["records-lead"]) == (3, 2)
    assert (found["records-lag-max"], found["records-lag-avg"]) == (3, 3)
    one.poll_records(100)
    found = one.metrics()
    assert found[f"{FETCH}.t-0"]["records-lag"] == 0
    assert found[f"{FETCH}.t-0"]["records-lag-avg"] == 1.5
    assert found[FETCH]["records-lag-max"] == 3
    assert found[FETCH]["records-lead-min"] == 2
    one.seek(T0, 1)
    assert one.metrics()[f"{FETCH}.t-0"]["records-lag"] == 4


@pytest.mark.parametrize(("isolation", "lag"), [("read_uncommitted", 3), ("read_committed", 1)])
def test_the_lag_ends_where_the_isolation_level_does(isolation: str, lag: int) -> None:
    harness = GroupHarness()
    open_batch = build_batch(
        [Record(None, b"x")] * 2, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )
    harness.brokers.logs[T0].append(open_batch)
    consumer = harness.bare(isolation=IsolationLevel[isolation.upper()])
    consumer.assign([T0])
    consumer.poll_records(100, 4)
    assert consumer.metrics()[f"{FETCH}.t-0"]["records-lag"] == lag
    consumer.close()


def test_a_partition_that_is_given_up_has_no_metrics(harness: GroupHarness, one) -> None:  # type: ignore[no-untyped-def]
    one.poll_records(100)
    one.assign([T1])
    one.poll_records(100)
    found = one.metrics()
    assert f"{FETCH}.t-1" in found
    assert f"{FETCH}.t-0" not in found


def test_the_membership_has_its_rebalance_heartbeats_and_commits(harness: GroupHarness) -> None:
    consumer = harness.member()
    consumer.commit_sync()
    for _ in range(4):
        consumer.poll(50)
        harness.brokers.advance(200)
    found = consumer.metrics()["consumer-coordinator-metrics"]
    assert found["assigned-partitions"] == 4
    assert found["rebalance-total"] == found["join-total"] == found["sync-total"] == 1
    assert found["rebalance-latency-avg"] >= 0
    assert found["rebalance-rate-per-hour"] > 0
    assert found["commit-total"] == 1
    assert found["commit-latency-avg"] >= 0
    assert found["heartbeat-total"] > 0
    assert 0 <= found["last-heartbeat-seconds-ago"] < 1


def test_asynchronous_commits_count_when_they_are_answered(one) -> None:  # type: ignore[no-untyped-def]
    one.poll_records(100)
    one.commit_async()
    one.poll_records(100)
    assert one.metrics()["consumer-coordinator-metrics"]["commit-total"] == 1


def test_polls_show_the_time_that_the_program_takes(harness: GroupHarness, one) -> None:  # type: ignore[no-untyped-def]
    assert math.isnan(one.metrics()["consumer-metrics"]["last-poll-seconds-ago"])
    for _ in range(3):
        one.poll_records(0)
        harness.brokers.advance(500)
    found = one.metrics()["consumer-metrics"]
    assert found["time-between-poll-avg"] >= 500
    assert found["poll-idle-ratio-avg"] < 0.5
    assert found["last-poll-seconds-ago"] >= 0.5
    assert found["connection-count"] > 0


def test_a_set_tells_its_records_without_decoding() -> None:
    def fetched(data: bytes, start: int, end: int) -> Fetched:
        return Fetched(TopicPartition("t", 0), memoryview(data), start, end, end)

    some = [Record(None, b"x", 1)] * 3
    batches = build_batch(some) + build_batch(some, base_offset=10)
    assert fetched(batches, 0, 13).record_count == 6
    assert fetched(batches, 12, 13).record_count == 1
    control = build_batch(some[:1], base_offset=3, control=True, transactional=True)
    assert fetched(build_batch(some) + control, 0, 4).record_count == 3
    assert fetched(build_message_set(some, magic=1), 0, 3).record_count == 3
    assert fetched(b"", 4, 9).record_count == 0
