"""``clients/consumer``: look-ups of leaders, and the log of brokers that cannot be reached."""

from __future__ import annotations

import logging
import re
from dataclasses import replace

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.metadata import MetadataRequest
from tests.support.brokers_in_memory import BrokersInMemory, fetch_error
from tests.support.consumer_streams import offsets
from tests.support.fetcher_harness import Fetching, one_partition, values

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


def test_a_partition_is_fetched_from_its_new_leader() -> None:
    brokers = BrokersInMemory(2, {"t": 1})
    brokers.fill(T0, *values(0, 1))
    fetching = Fetching(brokers)
    stream = fetching.stream()
    fetching.manager.start_connections([fetching.info(stream)])
    fetching.step()
    brokers.leaders[T0] = 2
    brokers.fill(T0, b"2")
    fetching.step(2)
    assert offsets(stream.drain()) == [0, 1, 2]
    assert [broker for broker, key, _, _ in brokers.requests if key is ApiKey.FETCH] == [1, 1, 2]


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN, ErrorCode.LEADER_NOT_AVAILABLE]
)
def test_retriable_errors_are_retried(code: ErrorCode) -> None:
    brokers, fetching, stream = one_partition()
    brokers.script(ApiKey.FETCH, fetch_error(code))
    fetching.manager.start_connections([fetching.info(stream)])
    fetching.step(2)
    assert offsets(stream.drain()) == [0, 1, 2, 3, 4]


def test_a_partition_without_a_leader_is_looked_for_until_it_has_one() -> None:
    brokers, fetching, stream = one_partition()
    brokers.leaders[T0] = -1
    fetching.manager.start_connections([fetching.info(stream)])
    fetching.step(3)
    assert brokers.asked(ApiKey.FETCH) == []
    brokers.leaders[T0] = 1
    fetching.step()
    assert offsets(stream.drain()) == [0, 1, 2, 3, 4]


def test_unreadable_broker_znode_does_not_hide_leaders() -> None:
    _, fetching, stream = one_partition()
    fetching.store.create("/brokers/ids/7", b"nonsense")
    fetching.manager.start_connections([fetching.info(stream)])
    fetching.step(2)
    assert offsets(stream.drain()) == [0, 1, 2, 3, 4]


def test_partitions_of_other_brokers_continue_when_one_dies() -> None:
    brokers = BrokersInMemory(2, {"t": 2})
    fetching = Fetching(brokers)
    stream = fetching.stream()
    fetching.manager.start_connections([fetching.info(stream, number) for number in range(2)])
    fetching.step()
    brokers.stop(1)
    brokers.fill(T1, b"0")
    fetching.step()
    assert [(m.partition, m.offset) for m in stream.drain()] == [(1, 0)]
    brokers.leaders[T0] = 2
    brokers.fill(T0, b"0")
    fetching.step()
    assert [(m.partition, m.offset) for m in stream.drain()] == [(0, 0)]


def test_dead_broker_is_logged_at_intervals_and_at_its_recovery(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers = BrokersInMemory(2, {"t": 1})
    answer = brokers.answer_metadata
    everyone = answer(1, MetadataRequest(("t",), False)).brokers
    monkeypatch.setattr(brokers, "answer_metadata", lambda *asked: replace(answer(*asked), brokers=everyone))
    fetching = Fetching(brokers)
    stream = fetching.stream()
    fetching.manager.start_connections([fetching.info(stream)])
    fetching.step()
    brokers.stop(1)
    end_ms = brokers.clock.monotonic_ms() + 70_000
    while brokers.clock.monotonic_ms() < end_ms:
        brokers.clock.advance(250)
        fetching.step()
    told = list(caplog.messages)
    assert len(told) == 3
    assert all(one.startswith("ConsumerFetcherThread-g_c-0-1: ") for one in told)
    assert told[1].endswith(" s; retrying)")
    caplog.clear()
    brokers.start(1)
    brokers.fill(T0, b"0")
    fetching.step(2)
    assert offsets(stream.drain()) == [0]
    (back,) = caplog.messages
    assert re.fullmatch(r"ConsumerFetcherThread-g_c-0-1: recovered after (69|7\d)\.\d s", back)


def test_a_partition_without_a_leader_for_long_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    brokers, fetching, stream = one_partition()
    brokers.script(ApiKey.FETCH, *[fetch_error(ErrorCode.LEADER_NOT_AVAILABLE)] * 9)
    fetching.manager.start_connections([fetching.info(stream)])
    fetching.step(10)
    assert offsets(stream.drain()) == [0, 1, 2, 3, 4]
    first, back = caplog.messages
    assert first.startswith("t-0: LEADER_NOT_AVAILABLE: ")
    assert back.startswith("t-0: recovered after ")


def test_a_leader_that_has_moved_is_told_of_by_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    brokers, fetching, stream = one_partition()
    brokers.script(ApiKey.FETCH, fetch_error(ErrorCode.NOT_LEADER_FOR_PARTITION))
    fetching.manager.start_connections([fetching.info(stream)])
    fetching.step(3)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [
        "t-0: NOT_LEADER_FOR_PARTITION: fetching t-0 from offset 0"
    ]


def test_records_without_room_at_a_brokers_death_come_once() -> None:
    brokers = BrokersInMemory(2, {"t": 3})
    brokers.fill(T0, b"0")
    brokers.fill(T2, b"0")
    fetching = Fetching(brokers, queued_max_message_chunks=1)
    stream, other = fetching.stream(), fetching.stream()
    brokers.leaders[T1] = 1
    fetching.manager.start_connections(
        [fetching.info(stream, 0), fetching.info(other, 1), fetching.info(stream, 2)]
    )
    fetching.step()
    brokers.stop(1)
    fetching.step()  # fails for T1, and what waits for T2 goes with it
    for tp in (T0, T1, T2):
        brokers.leaders[tp] = 2
    found = []
    for _ in range(4):
        found += stream.drain()
        fetching.step()
    assert sorted((m.partition, m.offset) for m in found) == [(0, 0), (2, 0)]


def test_brokers_that_came_later_are_found_in_zookeeper() -> None:
    brokers = BrokersInMemory(2, {"t": 1})
    brokers.fill(T0, b"0")
    fetching = Fetching(brokers)
    fetching.store.delete("/brokers/ids/2")
    stream = fetching.stream()
    brokers.stop(1)
    brokers.leaders[T0] = 2
    fetching.manager.start_connections([fetching.info(stream)])
    fetching.step()
    assert brokers.asked(ApiKey.FETCH) == []
    fetching.register(2)
    fetching.step()
    assert offsets(stream.drain()) == [0]


def test_without_any_broker_it_goes_on_looking() -> None:
    _, fetching, stream = one_partition()
    fetching.store.delete("/brokers/ids/1")
    fetching.manager.start_connections([fetching.info(stream)])
    fetching.step(2)
    fetching.register(1)
    fetching.step()
    assert offsets(stream.drain()) == [0, 1, 2, 3, 4]


def test_known_brokers_are_used_while_zookeeper_is_away() -> None:
    brokers, fetching, stream = one_partition()
    fetching.manager.start_connections([fetching.info(stream)])
    fetching.step()
    fetching.zookeeper.suspend(fetching.store)
    brokers.script(ApiKey.FETCH, fetch_error(ErrorCode.NOT_LEADER_FOR_PARTITION))
    brokers.fill(T0, b"5")
    fetching.step(2)
    assert offsets(stream.drain()) == [0, 1, 2, 3, 4, 5]


def test_no_question_of_a_consumer_makes_a_topic() -> None:
    brokers, fetching, stream = one_partition()
    fetching.manager.start_connections([fetching.info(stream)])
    fetching.step()
    assert [one.allow_auto_topic_creation for one in brokers.asked(ApiKey.METADATA)] == [False]
