"""``clients/consumer``: requests of the fetchers, chunks that they put into streams, and errors."""

from __future__ import annotations

import logging

import pytest

from minikafka.base.errors import (
    BrokerError,
    ConsumerTimeout,
    CorruptMessage,
    ErrorCode,
    MessageSizeTooLarge,
    NoCommittedOffset,
)
from minikafka.base.ids import TopicPartition
from minikafka.clients.consumer.stats import ConsumerTopicStatsRegistry, FetchRequestAndResponseStatsRegistry
from minikafka.records.format.message_set import Codec
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.support.broker_harness import FIRST_PORT, HOST, BrokerHarness, fetch_error
from tests.support.consumer_streams import StreamHarness, offsets
from tests.support.fetcher_harness import CLIENT, FetcherHarness, five_messages, values

T0, T1, T2, T3 = (TopicPartition("t", number) for number in range(4))


def end_of_first_only(_: int, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Return the start of the first partition, and NOT_LEADER_FOR_PARTITION for the others."""
    (topic,) = request.topics
    first, *others = topic.partitions
    not_leader = int(ErrorCode.NOT_LEADER_FOR_PARTITION)
    rows = [ListOffsetsPartitionResponse(first.index, 0, (0,), -1, 0)]
    rows += [ListOffsetsPartitionResponse(other.index, not_leader) for other in others]
    return ListOffsetsResponse(0, (ListOffsetsTopicResponse(topic.name, tuple(rows)),))


def error_of(stream: StreamHarness) -> Exception:
    with pytest.raises(Exception) as raised:
        stream.take(1)
    return raised.value


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_stream_gets_the_messages_of_all_partitions(magic: int, codec: Codec) -> None:
    brokers = BrokerHarness(2, {"t": 3})
    for tp in (T0, T1, T2):
        brokers.fill(tp, *values(0, 1, 2), magic=magic, codec=codec)
    harness = FetcherHarness(brokers, queued_max_message_chunks=5)
    stream = harness.stream()
    infos = [harness.info(stream, number) for number in range(3)]
    harness.fetch(infos)
    found = stream.drain()
    assert sorted((m.partition, m.offset, m.message) for m in found) == [
        (partition, offset, b"%d" % offset) for partition in range(3) for offset in range(3)
    ]
    assert [info.consumed_offset for info in infos] == [3, 3, 3]
    for tp in (T0, T1, T2):
        brokers.fill(tp, b"3")
    harness.step()
    assert offsets(stream.drain()) == [3, 3, 3]


@pytest.mark.parametrize("version", [2, 3, 10])
def test_fetch_requests_half_of_the_largest_message(version: int) -> None:
    brokers, harness, stream = five_messages(fetch_message_max_bytes=100)
    brokers.newest[ApiKey.FETCH] = version
    harness.start(stream)
    (request,) = brokers.asked(ApiKey.FETCH)
    assert request.topics[0].partitions[0].partition_max_bytes == 50
    assert version < 3 or request.max_bytes == 50
    assert (request.min_bytes, request.max_wait_ms, request.replica_id) == (1, 100, -1)


def test_fetch_max_bytes_limits_a_fetch() -> None:
    brokers, harness, stream = five_messages(fetch_max_bytes=70)
    harness.start(stream)
    (request,) = brokers.asked(ApiKey.FETCH)
    assert request.max_bytes == 70


def test_full_stream_is_not_fetched() -> None:
    brokers, harness, stream = five_messages(fetch_message_max_bytes=50, queued_max_message_chunks=2)
    harness.start(stream, steps=5)
    assert len(brokers.asked(ApiKey.FETCH)) == 2
    assert len(stream.queue) == 2
    assert offsets(stream.take(1)) == [0]
    harness.step()
    assert len(brokers.asked(ApiKey.FETCH)) == 2  # the chunk in use counts too
    assert offsets(stream.take(1)) == [1]
    harness.step(5)
    assert len(brokers.asked(ApiKey.FETCH)) == 3


def test_records_without_room_wait_and_no_more_are_fetched() -> None:
    brokers = BrokerHarness(1, {"t": 3})
    for tp in (T0, T1, T2):
        brokers.fill(tp, b"0")
    harness = FetcherHarness(brokers, queued_max_message_chunks=1)
    stream = harness.stream()
    harness.fetch([harness.info(stream, number) for number in range(3)], steps=3)
    assert len(brokers.asked(ApiKey.FETCH)) == 1
    found = []
    for _ in range(3):
        found += stream.take(1)
        with pytest.raises(ConsumerTimeout):
            stream.take(1)
        harness.step(2)
    assert sorted(message.partition for message in found) == [0, 1, 2]
    assert stream.drain() == []
    assert harness.positions[1] == {T0: 1, T1: 1, T2: 1}


def test_slow_application_does_not_exceed_its_chunks() -> None:
    size = 200_000
    brokers = BrokerHarness(2, {"t": 6})
    for number in range(6):
        for _ in range(20):
            brokers.fill(TopicPartition("t", number), b"x" * 60_000)
    harness = FetcherHarness(brokers, fetch_message_max_bytes=size, queued_max_message_chunks=3)
    stream = harness.stream()
    infos = [harness.info(stream, number) for number in range(6)]
    harness.manager.start_connections(infos)
    taken = 0
    for _ in range(30):
        harness.step(3)
        taken += len(stream.take(1))
        # Each message has its own offset; those in a queue were fetched and not taken.
        held = sum(info.fetched_offset for info in infos) - taken + 1
        assert len(stream.queue) <= 3
        assert held * 60_000 <= 3 * size
    found = taken + len(stream.drain())
    while found < 120:
        harness.step()
        found += len(stream.drain())
    assert found == 120


def test_requests_name_only_partitions_whose_positions_changed() -> None:
    brokers = BrokerHarness(1, {"t": 3})
    harness = FetcherHarness(brokers)
    stream = harness.stream()
    harness.fetch([harness.info(stream, number) for number in range(3)], steps=2)
    brokers.fill(T1, b"0")
    harness.step(2)
    requests = brokers.asked(ApiKey.FETCH)
    named = [[part.index for topic in request.topics for part in topic.partitions] for request in requests]
    assert named == [[0, 1, 2], [], [], [1]]
    assert len(stream.drain()) == 1


def test_full_stream_does_not_delay_another() -> None:
    brokers = BrokerHarness(1, {"t": 2})
    brokers.fill(T0, *values(0, 1, 2, 3))
    harness = FetcherHarness(brokers, fetch_message_max_bytes=50, queued_max_message_chunks=1)
    slow, quick = harness.stream(), harness.stream()
    harness.fetch([harness.info(slow, 0), harness.info(quick, 1)])
    assert harness.positions == [{T0: 0, T1: 0}]
    for number in range(5):
        brokers.fill(T1, b"%d" % number)
        harness.step()
        assert offsets(quick.drain()) == [number]
    assert [list(positions) for positions in harness.positions[1:]] == [[T1]] * 5


def test_fetch_wait_is_limited_by_the_time_a_stream_was_full() -> None:
    brokers = BrokerHarness(1, {"t": 2})
    brokers.fill(T0, *values(0, 1, 2, 3))
    harness = FetcherHarness(brokers, fetch_message_max_bytes=50, queued_max_message_chunks=1)
    full, empty = harness.stream(), harness.stream()
    harness.fetch([harness.info(full, 0), harness.info(empty, 1)], steps=2)
    for milliseconds in (3, 7, 20, 1_000):
        brokers.advance(milliseconds)
        harness.step()
    assert harness.waits_ms == [100, 5, 13, 40, 100, 100]
    full.drain()
    harness.step()
    assert harness.waits_ms[-1] == 100


def test_partitions_of_a_broker_are_divided_among_its_fetchers() -> None:
    brokers = BrokerHarness(1, {"t": 4})
    harness = FetcherHarness(brokers, num_consumer_fetchers=2)
    stream = harness.stream()
    harness.fetch([harness.info(stream, number) for number in range(4)])
    # 31 * "t".hashCode() is even.
    assert sorted(map(sorted, harness.positions)) == [[T0, T2], [T1, T3]]


def test_lag_is_from_the_consumed_offset_to_the_high_watermark() -> None:
    _, harness, stream = five_messages()
    info = harness.info(stream)
    assert info.lag == 0
    harness.fetch([info])
    assert info.lag == 5
    stream.take(3)
    assert info.lag == 3
    stream.drain()
    assert info.lag == 0


def test_fetches_and_their_bytes_are_counted() -> None:
    brokers, harness, stream = five_messages()
    harness.start(stream, steps=2)
    stats = FetchRequestAndResponseStatsRegistry.get(CLIENT)
    size = sum(map(len, brokers.logs[T0].entries))
    for metrics in (stats.all_brokers, stats.brokers[f"{HOST}:{FIRST_PORT + 1}"]):
        assert (metrics.requests.count, metrics.request_ms.count) == (2, 2)
        assert (metrics.response_bytes.max, metrics.response_bytes.min) == (size, 0)
        assert metrics.throttle_ms.sum == 0
    assert ConsumerTopicStatsRegistry.get(CLIENT).topic("t").bytes_.count == size


# --- the first offset


@pytest.mark.parametrize(("reset", "found"), [("smallest", 2), ("largest", 5)])
@pytest.mark.parametrize("version", [0, 1])
def test_reset_setting_selects_the_start_without_an_offset(reset: str, found: int, version: int) -> None:
    brokers, harness, stream = five_messages(auto_offset_reset=reset)
    brokers.newest[ApiKey.LIST_OFFSETS] = version
    brokers.logs[T0].delete_before(2)
    info = harness.info(stream, offset=-1)
    harness.fetch([info])
    assert (harness.positions[0], info.consumed_offset) == ({T0: found}, found)


@pytest.mark.parametrize(("offset", "version"), [(-1, 0), (-1, 1), (7, 1)])  # without one, or out of range
def test_one_request_finds_the_start_of_all_partitions(offset: int, version: int) -> None:
    brokers = BrokerHarness(1, {"t": 3})
    brokers.newest[ApiKey.LIST_OFFSETS] = version
    harness = FetcherHarness(brokers)
    infos = [harness.info(harness.stream(), number, offset=offset) for number in range(3)]
    harness.fetch(infos)
    assert [info.fetched_offset for info in infos] == [0, 0, 0]
    assert len(brokers.asked(ApiKey.LIST_OFFSETS)) == 1


def test_partition_without_a_known_start_does_not_delay_others() -> None:
    brokers = BrokerHarness(1, {"t": 2})
    harness = FetcherHarness(brokers)
    infos = [harness.info(harness.stream(), number, offset=-1) for number in range(2)]
    brokers.script(ApiKey.LIST_OFFSETS, end_of_first_only)
    harness.fetch(infos)
    assert [info.consumed_offset for info in infos] == [0, -1]
    harness.step(2)
    assert [info.consumed_offset for info in infos] == [0, 0]


@pytest.mark.parametrize(("reset", "found"), [("smallest", [3, 4]), ("largest", [])])
@pytest.mark.parametrize("offset", [1, 9])
def test_offset_out_of_range_is_reset_by_the_setting(
    reset: str, found: list[int], offset: int, caplog: pytest.LogCaptureFixture
) -> None:
    brokers, harness, stream = five_messages(auto_offset_reset=reset)
    brokers.logs[T0].delete_before(3)
    harness.manager.start_connections([harness.info(stream, offset=offset)])
    with caplog.at_level(logging.WARNING, "minikafka.clients"):
        harness.step(2)
    assert offsets(stream.drain()) == found
    at = 3 if reset == "smallest" else 5
    assert caplog.messages == [f"t-0: offset {offset} is out of range, resetting to the {reset} offset {at}"]


def test_messages_fetched_before_a_truncation_come_first() -> None:
    brokers, harness, stream = five_messages(queued_max_message_chunks=5)
    info = harness.info(stream)
    harness.fetch([info])
    assert offsets(stream.take(1)) == [0]
    brokers.logs[T0].truncate(2)
    harness.step(2)
    assert offsets(stream.take(4)) == [1, 2, 3, 4]
    assert offsets(stream.drain()) == [0, 1]
    assert info.consumed_offset == 2


def test_stream_without_a_reset_raises_and_others_continue() -> None:
    brokers = BrokerHarness(1, {"t": 2})
    brokers.fill(T1, b"0")
    harness = FetcherHarness(brokers, auto_offset_reset="none")
    bad, good = harness.stream(), harness.stream()
    harness.fetch([harness.info(bad, 0, offset=7), harness.info(good, 1)], steps=3)
    for _ in range(2):
        error = error_of(bad)
        assert isinstance(error, BrokerError)
        assert str(error) == (
            "OFFSET_OUT_OF_RANGE: the log of t-0 does not have offset 7, and auto.offset.reset is 'none': "
            "set smallest or largest"
        )
    assert offsets(good.drain()) == [0]
    harness.step()
    assert list(harness.positions[-1]) == [T1]


def test_stream_without_offset_and_reset_raises() -> None:
    brokers, harness, stream = five_messages(auto_offset_reset="none")
    harness.fetch([harness.info(stream, offset=-1)], steps=3)
    assert isinstance(error_of(stream), NoCommittedOffset)
    assert brokers.asked(ApiKey.FETCH) == []


def test_error_waits_for_room_in_the_queue() -> None:
    brokers, harness, stream = five_messages(auto_offset_reset="none", queued_max_message_chunks=1)
    info = harness.info(stream)
    harness.fetch([info])
    assert offsets(stream.take(4)) == [0, 1, 2, 3]
    brokers.fill(T0, *values(5, 6, 7, 8, 9))
    brokers.logs[T0].delete_before(10)
    harness.step()
    assert offsets(stream.take(1)) == [4]
    with pytest.raises(ConsumerTimeout):
        stream.take(1)
    harness.step(2)
    assert isinstance(error_of(stream), BrokerError)


# --- unreadable records


def test_message_as_large_as_a_fetch_is_delivered() -> None:
    brokers = BrokerHarness(1, {"t": 1})
    brokers.newest[ApiKey.FETCH] = 2
    brokers.fill(T0, b"small")
    brokers.fill(T0, b"x" * 265)
    assert len(brokers.logs[T0].entries[1]) == 300
    harness = FetcherHarness(brokers, fetch_message_max_bytes=300)
    stream = harness.stream()
    harness.start(stream, steps=3)
    assert offsets(stream.drain()) == [0, 1]


def test_stream_raises_for_a_message_that_old_brokers_cut_off() -> None:
    brokers = BrokerHarness(1, {"t": 1})
    brokers.newest[ApiKey.FETCH] = 2
    brokers.fill(T0, b"small")
    brokers.fill(T0, b"x" * 500)
    harness = FetcherHarness(brokers, fetch_message_max_bytes=300)
    stream = harness.stream()
    harness.start(stream, steps=4)
    assert offsets(stream.take(1)) == [0]
    for _ in range(2):
        error = error_of(stream)
        assert isinstance(error, MessageSizeTooLarge)
        assert (error.topic, error.partition, error.offset, error.allowed_bytes) == ("t", 0, 1, 300)
        assert error.size_bytes == len(brokers.logs[T0].entries[1])
    assert len(brokers.asked(ApiKey.FETCH)) == 2


def corrupt_header(brokers: BrokerHarness, index: int) -> None:
    """Make the size in an entry's header smaller than any message."""
    brokers.damage(index, lambda entry: entry[:8] + b"\0\0\0\1" + entry[12:])


def test_records_corrupt_twice_are_raised_and_can_be_skipped() -> None:
    brokers, harness, stream = five_messages(queued_max_message_chunks=5)
    corrupt_header(brokers, 2)
    harness.start(stream, steps=2)
    assert offsets(stream.drain()) == [0, 1]
    harness.step()
    error = error_of(stream)
    assert isinstance(error, CorruptMessage)
    assert (error.topic, error.partition, error.offset) == ("t", 0, 2)
    assert str(error).startswith("CORRUPT_MESSAGE: t-0 at offset 2: the size field holds less ")
    assert stream.stream.iterator().skip_corrupt() == 3
    harness.step()
    assert offsets(stream.drain()) == [3, 4]


def test_permanent_broker_error_is_raised_in_the_stream() -> None:
    brokers, harness, stream = five_messages()
    brokers.script(ApiKey.FETCH, fetch_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    harness.start(stream, steps=3)
    error = error_of(stream)
    assert isinstance(error, BrokerError)
    assert error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert len(brokers.asked(ApiKey.FETCH)) == 1


# --- starting and stopping


def test_connections_start_and_stop_repeatedly() -> None:
    _, harness, stream = five_messages()
    for number in range(3):
        info = harness.info(stream, offset=number)
        harness.fetch([info])
        harness.manager.stop_connections()
        harness.manager.stop_connections()
        assert offsets(stream.take(1)) == [number]
        stream.stream.clear()
    harness.manager.shutdown()
    harness.manager.shutdown()


def test_connections_are_not_started_twice() -> None:
    _, harness, stream = five_messages()
    harness.manager.start_connections([harness.info(stream)])
    with pytest.raises(RuntimeError, match="already started"):
        harness.manager.start_connections([])


def test_stop_ends_fetches_and_leader_lookups() -> None:
    brokers, harness, stream = five_messages()
    harness.manager.start_connections([harness.info(stream)])
    harness.manager.stop_connections()
    harness.step()
    assert brokers.requests == []
    assert stream.drain() == []
