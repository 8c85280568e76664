"""``clients/consumer``: look-ups of leaders, and the log of brokers that cannot be reached."""

from __future__ import annotations

import logging
import re

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.wire.api import ApiKey
from tests.support.broker_harness import BrokerHarness, fetch_error
from tests.support.consumer_streams import offsets
from tests.support.fetcher_harness import FetcherHarness, five_messages, values

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


def test_partition_is_fetched_from_its_new_leader() -> None:
    brokers = BrokerHarness(2, {"t": 1})
    brokers.fill(T0, *values(0, 1))
    harness = FetcherHarness(brokers)
    stream = harness.stream()
    harness.start(stream)
    brokers.move_leader(T0, 2)
    brokers.fill(T0, b"2")
    harness.step(2)
    assert offsets(stream.drain()) == [0, 1, 2]
    assert [broker for broker, key, _, _ in brokers.requests if key is ApiKey.FETCH] == [1, 1, 2]


def test_partition_without_a_leader_is_looked_up_until_it_has_one() -> None:
    brokers, harness, stream = five_messages()
    brokers.lose_leader(T0)
    harness.start(stream, steps=3)
    assert brokers.asked(ApiKey.FETCH) == []
    brokers.move_leader(T0, 1)
    harness.step()
    assert offsets(stream.drain()) == [0, 1, 2, 3, 4]


def test_partitions_of_other_brokers_continue_when_one_dies() -> None:
    brokers = BrokerHarness(2, {"t": 2}, replicas=2)
    harness = FetcherHarness(brokers)
    stream = harness.stream()
    harness.fetch([harness.info(stream, number) for number in range(2)])
    brokers.stop(1)
    brokers.fill(T1, b"0")
    harness.step(2)  # its leader epoch rises with the smaller ISR: the first fetch is fenced
    assert [(m.partition, m.offset) for m in stream.drain()] == [(1, 0)]
    brokers.fill(T0, b"0")
    harness.step()
    assert [(m.partition, m.offset) for m in stream.drain()] == [(0, 0)]


def test_leader_that_stays_in_a_new_epoch_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    brokers = BrokerHarness(2, {"t": 2}, replicas=2)
    harness = FetcherHarness(brokers)
    stream = harness.stream()
    harness.fetch([harness.info(stream, 1)])
    brokers.stop(1)
    brokers.fill(T1, b"0")
    harness.step(2)
    assert offsets(stream.drain()) == [0]
    assert [row for row in caplog.records if row.name == "minikafka.clients.consumer"] == []


def test_dead_broker_is_logged_at_intervals_and_at_its_recovery(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers = BrokerHarness(2, {"t": 1})
    harness = FetcherHarness(brokers)
    stream = harness.stream()
    harness.start(stream)
    brokers.kill(1)
    end_ms = brokers.clock.monotonic_ms() + 70_000
    while brokers.clock.monotonic_ms() < end_ms:
        brokers.advance(250)
        harness.step()
    warnings = list(caplog.messages)
    assert len(warnings) == 3
    assert all(warning.startswith("ConsumerFetcherThread-g_c-0-1: ") for warning in warnings)
    assert warnings[1].endswith(" s; retrying)")
    caplog.clear()
    brokers.start(1)
    brokers.fill(T0, b"0")
    harness.step(2)
    assert offsets(stream.drain()) == [0]
    (recovery,) = caplog.messages
    assert re.fullmatch(r"ConsumerFetcherThread-g_c-0-1: recovered after (69|7\d)\.\d s", recovery)


def test_partition_without_a_leader_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    brokers, harness, stream = five_messages()
    brokers.script(ApiKey.FETCH, *[fetch_error(ErrorCode.LEADER_NOT_AVAILABLE)] * 9)
    harness.start(stream, steps=10)
    assert offsets(stream.drain()) == [0, 1, 2, 3, 4]
    first, last = caplog.messages
    assert first.startswith("t-0: LEADER_NOT_AVAILABLE: ")
    assert last.startswith("t-0: recovered after ")


def test_moved_leader_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    brokers, harness, stream = five_messages()
    brokers.script(ApiKey.FETCH, fetch_error(ErrorCode.NOT_LEADER_FOR_PARTITION))
    harness.start(stream, steps=3)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [
        "t-0: NOT_LEADER_FOR_PARTITION: fetching t-0 from offset 0"
    ]


def test_records_without_room_at_a_broker_failure_come_once() -> None:
    brokers = BrokerHarness(2, {"t": 3}, replicas=2)
    brokers.fill(T0, b"0")
    brokers.fill(T2, b"0")
    harness = FetcherHarness(brokers, queued_max_message_chunks=1)
    stream, other = harness.stream(), harness.stream()
    brokers.move_leader(T1, 1)
    harness.manager.start_connections(
        [harness.info(stream, 0), harness.info(other, 1), harness.info(stream, 2)]
    )
    harness.step()
    brokers.stop(1)
    harness.step()  # fails for T1, and drops the pending records of T2
    found = []
    for _ in range(4):
        found += stream.drain()
        harness.step()
    assert sorted((m.partition, m.offset) for m in found) == [(0, 0), (2, 0)]


def test_later_brokers_are_found_in_zookeeper() -> None:
    brokers = BrokerHarness(2)
    brokers.add_topic("t", 1, leader=2)
    brokers.fill(T0, b"0")
    harness = FetcherHarness(brokers)
    stream = harness.stream()
    brokers.stop(2)
    harness.start(stream)
    assert brokers.asked(ApiKey.FETCH) == []
    brokers.stop(1)
    brokers.start(2)
    harness.step()
    assert offsets(stream.drain()) == [0]


def test_known_brokers_are_used_while_zookeeper_does_not_answer() -> None:
    brokers, harness, stream = five_messages()
    harness.start(stream)
    harness.zookeeper.suspend(harness.store)
    brokers.script(ApiKey.FETCH, fetch_error(ErrorCode.NOT_LEADER_FOR_PARTITION))
    brokers.fill(T0, b"5")
    harness.step(2)
    assert offsets(stream.drain()) == [0, 1, 2, 3, 4, 5]


def test_metadata_requests_of_a_consumer_create_no_topic() -> None:
    brokers, harness, stream = five_messages()
    harness.start(stream)
    assert [request.allow_auto_topic_creation for request in brokers.asked(ApiKey.METADATA)] == [False]
