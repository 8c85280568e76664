"""``clients/consumer``: requests of the fetchers, chunks that they put into streams, and errors."""

from __future__ import annotations

import logging
from dataclasses import replace

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
from minikafka.wire.apis.fetch import FetchRequest, FetchResponse
from minikafka.wire.apis.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.support.brokers_in_memory import FIRST_PORT, HOST, BrokersInMemory, fetch_error
from tests.support.consumer_streams import OneStream, offsets
from tests.support.fetcher_harness import CLIENT, Fetching, one_partition, values

T0, T1, T2, T3 = (TopicPartition("t", number) for number in range(4))


def end_of_first_only(_: int, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """An answer that tells where the first partition begins, and of the others that they are elsewhere."""
    (topic,) = request.topics
    first, *others = topic.partitions
    elsewhere = int(ErrorCode.NOT_LEADER_FOR_PARTITION)
    rows = [ListOffsetsPartitionResponse(first.index, 0, (0,), -1, 0)]
    rows += [ListOffsetsPartitionResponse(one.index, elsewhere) for one in others]
    return ListOffsetsResponse(0, (ListOffsetsTopicResponse(topic.name, tuple(rows)),))


def error_of(stream: OneStream) -> Exception:
    with pytest.raises(Exception) as raised:
        stream.take(1)
    return raised.value


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_messages_of_all_partitions_come_into_the_stream(magic: int, codec: Codec) -> None:
    brokers = BrokersInMemory(2, {"t": 3})
    for tp in (T0, T1, T2):
        brokers.fill(tp, *values(0, 1, 2), magic=magic, codec=codec)
    fetching = Fetching(brokers, queued_max_message_chunks=5)
    stream = fetching.stream()
    infos = [fetching.info(stream, number) for number in range(3)]
    fetching.manager.start_connections(infos)
    fetching.step()
    found = stream.drain()
    assert sorted((m.partition, m.offset, m.message) for m in found) == [
        (partition, offset, b"%d" % offset) for partition in range(3) for offset in range(3)
    ]
    assert [info.consumed_offset for info in infos] == [3, 3, 3]
    for tp in (T0, T1, T2):
        brokers.fill(tp, b"3")
    fetching.step()
    assert offsets(stream.drain()) == [3, 3, 3]


def test_fetch_begins_at_its_offset_even_inside_a_compressed_set() -> None:
    brokers = BrokersInMemory(1, {"t": 1})
    brokers.fill(T0, *values(0, 1, 2, 3, 4), codec=Codec.GZIP)
    fetching = Fetching(brokers)
    stream = fetching.stream()
    fetching.manager.start_connections([fetching.info(stream, offset=3)])
    fetching.step()
    assert offsets(stream.drain()) == [3, 4]


@pytest.mark.parametrize(("version", "size"), [(2, 100), (3, 50), (10, 50)])
def test_one_answer_brings_what_one_chunk_may_have_in_all(version: int, size: int) -> None:
    brokers, fetching, stream = one_partition(fetch_message_max_bytes=100)
    brokers.newest[ApiKey.FETCH] = version
    fetching.manager.start_connections([fetching.info(stream)])
    fetching.step()
    (asked,) = brokers.asked(ApiKey.FETCH)
    assert asked.topics[0].partitions[0].partition_max_bytes == size
    assert version < 3 or asked.max_bytes == size
    assert (asked.min_bytes, asked.max_wait_ms, asked.replica_id) == (1, 100, -1)


def test_a_fetch_asks_for_no_more_in_all_than_is_set() -> None:
    brokers, fetching, stream = one_partition(fetch_max_bytes=70)
    fetching.manager.start_connections([fetching.info(stream)])
    fetching.step()
    (asked,) = brokers.asked(ApiKey.FETCH)
    assert asked.max_bytes == 70


def test_nothing_is_asked_for_a_stream_without_room() -> None:
    brokers, fetching, stream = one_partition(fetch_message_max_bytes=50, queued_max_message_chunks=2)
    fetching.manager.start_connections([fetching.info(stream)])
    fetching.step(5)
    assert len(brokers.asked(ApiKey.FETCH)) == 2
    assert len(stream.queue) == 2
    assert offsets(stream.take(1)) == [0]
    fetching.step()
    assert len(brokers.asked(ApiKey.FETCH)) == 2  # what is worked on has its place, too
    assert offsets(stream.take(1)) == [1]
    fetching.step(5)
    assert len(brokers.asked(ApiKey.FETCH)) == 3


def test_records_without_room_wait_and_no_more_are_fetched() -> None:
    brokers = BrokersInMemory(1, {"t": 3})
    for tp in (T0, T1, T2):
        brokers.fill(tp, b"0")
    fetching = Fetching(brokers, queued_max_message_chunks=1)
    stream = fetching.stream()
    fetching.manager.start_connections([fetching.info(stream, number) for number in range(3)])
    fetching.step(3)
    assert len(brokers.asked(ApiKey.FETCH)) == 1
    found = []
    for _ in range(3):
        found += stream.take(1)
        with pytest.raises(ConsumerTimeout):
            stream.take(1)
        fetching.step(2)
    assert sorted(message.partition for message in found) == [0, 1, 2]
    assert stream.drain() == []
    assert fetching.positions[1] == {T0: 1, T1: 1, T2: 1}


def test_a_slow_application_makes_a_stream_hold_no_more_than_its_chunks() -> None:
    size = 200_000
    brokers = BrokersInMemory(2, {"t": 6})
    for number in range(6):
        for _ in range(20):
            brokers.fill(TopicPartition("t", number), b"x" * 60_000)
    fetching = Fetching(brokers, fetch_message_max_bytes=size, queued_max_message_chunks=3)
    stream = fetching.stream()
    infos = [fetching.info(stream, number) for number in range(6)]
    fetching.manager.start_connections(infos)
    taken = 0
    for _ in range(30):
        fetching.step(3)
        taken += len(stream.take(1))
        # Each message has its own offset; those in a queue were fetched and not taken.
        held = sum(info.fetched_offset for info in infos) - taken + 1
        assert len(stream.queue) <= 3
        assert held * 60_000 <= 3 * size
    found = taken + len(stream.drain())
    while found < 120:
        fetching.step()
        found += len(stream.drain())
    assert found == 120


def test_a_full_stream_does_not_hold_up_another() -> None:
    brokers = BrokersInMemory(1, {"t": 2})
    brokers.fill(T0, *values(0, 1, 2, 3))
    fetching = Fetching(brokers, fetch_message_max_bytes=50, queued_max_message_chunks=1)
    slow, quick = fetching.stream(), fetching.stream()
    fetching.manager.start_connections([fetching.info(slow, 0), fetching.info(quick, 1)])
    fetching.step()
    assert fetching.positions == [{T0: 0, T1: 0}]
    for number in range(5):
        brokers.fill(T1, b"%d" % number)
        fetching.step()
        assert offsets(quick.drain()) == [number]
    assert [list(one) for one in fetching.positions[1:]] == [[T1]] * 5


def test_fetch_wait_is_limited_by_the_time_a_stream_was_full() -> None:
    brokers = BrokersInMemory(1, {"t": 2})
    brokers.fill(T0, *values(0, 1, 2, 3))
    fetching = Fetching(brokers, fetch_message_max_bytes=50, queued_max_message_chunks=1)
    full, empty = fetching.stream(), fetching.stream()
    fetching.manager.start_connections([fetching.info(full, 0), fetching.info(empty, 1)])
    fetching.step(2)
    for milliseconds in (3, 7, 20, 1_000):
        brokers.clock.advance(milliseconds)
        fetching.step()
    assert fetching.waits_ms == [100, 5, 5, 10, 30, 100]
    full.drain()
    fetching.step()
    assert fetching.waits_ms[-1] == 100


def test_partitions_that_gave_data_come_last_the_next_time() -> None:
    brokers = BrokersInMemory(1, {"t": 3})
    brokers.fill(T0, b"0")
    brokers.fill(T1, b"0")
    fetching = Fetching(brokers, queued_max_message_chunks=5)
    stream = fetching.stream()
    fetching.manager.start_connections([fetching.info(stream, number) for number in range(3)])
    fetching.step(2)
    assert [[tp.partition for tp in one] for one in fetching.positions] == [[0, 1, 2], [2, 0, 1]]


def test_a_message_that_is_cut_off_comes_first_the_next_time() -> None:
    brokers = BrokersInMemory(1, {"t": 2})
    brokers.fill(T1, b"x" * 50)
    brokers.newest[ApiKey.FETCH] = 3
    fetching = Fetching(brokers)
    stream = fetching.stream()

    def cut(broker_id: int, request: FetchRequest) -> FetchResponse:
        answer = brokers.answer_fetch(broker_id, request)
        (topic,) = answer.topics
        parts = tuple(replace(part, records=bytes(part.records or b"")[:60]) for part in topic.partitions)
        return replace(answer, topics=(replace(topic, partitions=parts),))

    brokers.script(ApiKey.FETCH, cut)
    fetching.manager.start_connections([fetching.info(stream, number) for number in range(2)])
    fetching.step(2)
    assert [[tp.partition for tp in one] for one in fetching.positions] == [[0, 1], [1, 0]]
    assert [message.message for message in stream.drain()] == [b"x" * 50]


def test_partitions_of_a_broker_are_shared_out_to_its_fetchers() -> None:
    brokers = BrokersInMemory(1, {"t": 4})
    fetching = Fetching(brokers, num_consumer_fetchers=2)
    stream = fetching.stream()
    fetching.manager.start_connections([fetching.info(stream, number) for number in range(4)])
    fetching.step()
    # 31 * "t".hashCode() is even.
    assert sorted(map(sorted, fetching.positions)) == [[T0, T2], [T1, T3]]


def test_the_lag_is_that_of_the_partition_which_is_farthest_behind() -> None:
    _, fetching, stream = one_partition(fetch_message_max_bytes=50)
    assert fetching.manager.max_lag == 0
    fetching.manager.start_connections([fetching.info(stream)])
    assert fetching.manager.max_lag == 0
    fetching.step()
    assert fetching.manager.max_lag == 4


def test_fetches_and_what_they_brought_are_counted() -> None:
    brokers, fetching, stream = one_partition()
    fetching.manager.start_connections([fetching.info(stream)])
    fetching.step(2)
    stats = FetchRequestAndResponseStatsRegistry.get(CLIENT)
    size = sum(len(entry) for _, _, entry in brokers.logs[T0].entries)
    for one in (stats.all_brokers, stats.brokers[f"{HOST}:{FIRST_PORT + 1}"]):
        assert (one.requests.count, one.request_ms.count) == (2, 2)
        assert (one.response_bytes.max, one.response_bytes.min) == (size, 0)
        assert one.throttle_ms.sum == 0
    assert ConsumerTopicStatsRegistry.get(CLIENT).topic("t").bytes_.count == size


# --- where to begin


@pytest.mark.parametrize(("rule", "found"), [("smallest", 2), ("largest", 5)])
@pytest.mark.parametrize("version", [0, 1])
def test_without_a_committed_offset_the_rule_says_where_to_begin(rule: str, found: int, version: int) -> None:
    brokers, fetching, stream = one_partition(auto_offset_reset=rule)
    brokers.newest[ApiKey.LIST_OFFSETS] = version
    brokers.logs[T0].start_offset = 2
    info = fetching.info(stream, offset=-1)
    fetching.manager.start_connections([info])
    fetching.step()
    assert (fetching.positions[0], info.consumed_offset) == ({T0: found}, found)


@pytest.mark.parametrize("version", [0, 1])
def test_a_broker_is_asked_once_where_all_its_partitions_begin(version: int) -> None:
    brokers = BrokersInMemory(1, {"t": 3})
    brokers.newest[ApiKey.LIST_OFFSETS] = version
    fetching = Fetching(brokers)
    infos = [fetching.info(fetching.stream(), number, offset=-1) for number in range(3)]
    fetching.manager.start_connections(infos)
    fetching.step()
    assert [info.consumed_offset for info in infos] == [0, 0, 0]
    assert len(brokers.asked(ApiKey.LIST_OFFSETS)) == 1


def test_one_request_resets_all_out_of_range_partitions() -> None:
    brokers = BrokersInMemory(1, {"t": 3})
    fetching = Fetching(brokers)
    infos = [fetching.info(fetching.stream(), number, offset=7) for number in range(3)]
    fetching.manager.start_connections(infos)
    fetching.step()
    assert [info.fetched_offset for info in infos] == [0, 0, 0]
    assert len(brokers.asked(ApiKey.LIST_OFFSETS)) == 1


def test_partition_without_a_known_start_does_not_delay_others() -> None:
    brokers = BrokersInMemory(2, {"t": 2})
    fetching = Fetching(brokers)
    infos = [fetching.info(fetching.stream(), number, offset=-1) for number in range(2)]
    brokers.script(ApiKey.LIST_OFFSETS, end_of_first_only)
    brokers.leaders = dict.fromkeys(brokers.leaders, 1)
    fetching.manager.start_connections(infos)
    fetching.step()
    assert [info.consumed_offset for info in infos] == [0, -1]
    fetching.step(2)
    assert [info.consumed_offset for info in infos] == [0, 0]


@pytest.mark.parametrize(("rule", "found"), [("smallest", [3, 4]), ("largest", [])])
@pytest.mark.parametrize("offset", [1, 9])
def test_an_offset_that_the_log_does_not_have_is_replaced_by_the_rule(
    rule: str, found: list[int], offset: int, caplog: pytest.LogCaptureFixture
) -> None:
    brokers, fetching, stream = one_partition(auto_offset_reset=rule)
    brokers.logs[T0].start_offset = 3
    fetching.manager.start_connections([fetching.info(stream, offset=offset)])
    with caplog.at_level(logging.WARNING, "minikafka.clients"):
        fetching.step(2)
    assert offsets(stream.drain()) == found
    at = 3 if rule == "smallest" else 5
    assert caplog.messages == [f"t-0: offset {offset} is out of range, resetting to the {rule} offset {at}"]


def test_messages_fetched_before_a_truncation_come_first() -> None:
    brokers, fetching, stream = one_partition(queued_max_message_chunks=5)
    info = fetching.info(stream)
    fetching.manager.start_connections([info])
    fetching.step()
    assert offsets(stream.take(1)) == [0]
    brokers.logs[T0].entries = brokers.logs[T0].entries[:2]
    brokers.logs[T0].end_offset = 2
    fetching.step(2)
    assert offsets(stream.take(4)) == [1, 2, 3, 4]
    assert offsets(stream.drain()) == [0, 1]
    assert info.consumed_offset == 2


def test_any_other_rule_is_raised_in_the_stream_and_others_go_on() -> None:
    brokers = BrokersInMemory(1, {"t": 2})
    brokers.fill(T1, b"0")
    fetching = Fetching(brokers, auto_offset_reset="none")
    bad, good = fetching.stream(), fetching.stream()
    fetching.manager.start_connections([fetching.info(bad, 0, offset=7), fetching.info(good, 1)])
    fetching.step(3)
    for _ in range(2):
        error = error_of(bad)
        assert isinstance(error, BrokerError)
        assert str(error) == (
            "OFFSET_OUT_OF_RANGE: the log of t-0 does not have offset 7, and auto.offset.reset is 'none': "
            "set smallest or largest"
        )
    assert offsets(good.drain()) == [0]
    fetching.step()
    assert list(fetching.positions[-1]) == [T1]


def test_no_committed_offset_and_no_rule_is_raised_in_the_stream() -> None:
    brokers, fetching, stream = one_partition(auto_offset_reset="none")
    fetching.manager.start_connections([fetching.info(stream, offset=-1)])
    fetching.step(3)
    assert isinstance(error_of(stream), NoCommittedOffset)
    assert brokers.asked(ApiKey.FETCH) == []


def test_an_error_waits_for_room_in_the_queue_too() -> None:
    brokers, fetching, stream = one_partition(auto_offset_reset="none", queued_max_message_chunks=1)
    info = fetching.info(stream)
    fetching.manager.start_connections([info])
    fetching.step()
    assert offsets(stream.take(4)) == [0, 1, 2, 3]
    brokers.logs[T0].start_offset = brokers.logs[T0].end_offset = 10
    fetching.step()
    assert offsets(stream.take(1)) == [4]
    with pytest.raises(ConsumerTimeout):
        stream.take(1)
    fetching.step(2)
    assert isinstance(error_of(stream), BrokerError)


# --- what cannot be read


@pytest.mark.parametrize("version", [2, 3, 10])
def test_a_message_as_large_as_a_fetch_comes(version: int) -> None:
    brokers = BrokersInMemory(1, {"t": 1})
    brokers.newest[ApiKey.FETCH] = version
    brokers.fill(T0, b"small")
    brokers.fill(T0, b"x" * 265)
    assert len(brokers.logs[T0].entries[1][2]) == 300
    fetching = Fetching(brokers, fetch_message_max_bytes=300)
    stream = fetching.stream()
    fetching.manager.start_connections([fetching.info(stream)])
    fetching.step(2)
    assert offsets(stream.drain()) == [0, 1]


def test_stream_raises_for_a_message_that_old_brokers_cut_off() -> None:
    brokers, fetching, stream = a_large_message(2)
    fetching.step(4)
    assert offsets(stream.take(1)) == [0]
    for _ in range(2):
        error = error_of(stream)
        assert isinstance(error, MessageSizeTooLarge)
        assert (error.topic, error.partition, error.offset, error.allowed_bytes) == ("t", 0, 1, 300)
        assert error.size_bytes == len(brokers.logs[T0].entries[1][2])
    assert len(brokers.asked(ApiKey.FETCH)) == 2


@pytest.mark.parametrize("version", [3, 10])
def test_message_larger_than_a_fetch_is_read_if_sent_whole(version: int) -> None:
    _, fetching, stream = a_large_message(version)
    fetching.step(4)
    assert offsets(stream.drain()) == [0, 1]


@pytest.mark.parametrize("version", [3, 10])
def test_large_message_without_room_is_requested_first(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = BrokersInMemory(1, {"t": 2})
    brokers.newest[ApiKey.FETCH] = version
    brokers.fill(T0, *values(0, 1, 2))
    brokers.fill(T1, b"x" * 500)
    answer = brokers.answer_fetch

    def only_the_first_whole(broker_id: int, request: FetchRequest) -> FetchResponse:
        response = answer(broker_id, request)
        (topic,) = response.topics
        first, *others = topic.partitions
        cut = [replace(one, records=one.records[:100]) for one in others]
        return replace(response, topics=(replace(topic, partitions=(first, *cut)),))

    monkeypatch.setattr(brokers, "answer_fetch", only_the_first_whole)
    fetching = Fetching(brokers, fetch_message_max_bytes=300)
    stream = fetching.stream()
    fetching.manager.start_connections([fetching.info(stream), fetching.info(stream, 1)])
    fetching.step(4)
    assert [(m.partition, m.offset) for m in stream.drain()] == [(0, 0), (0, 1), (0, 2), (1, 0)]


def a_large_message(version: int) -> tuple[BrokersInMemory, Fetching, OneStream]:
    """Of 300 bytes that are allowed, the second message takes more."""
    brokers = BrokersInMemory(1, {"t": 1})
    brokers.newest[ApiKey.FETCH] = version
    brokers.fill(T0, b"small")
    brokers.fill(T0, b"x" * 500)
    fetching = Fetching(brokers, fetch_message_max_bytes=300)
    stream = fetching.stream()
    fetching.manager.start_connections([fetching.info(stream)])
    return brokers, fetching, stream


def spoil(brokers: BrokersInMemory, index: int) -> None:
    """The entry says that it is shorter than any message is."""
    first, last, entry = brokers.logs[T0].entries[index]
    brokers.logs[T0].entries[index] = first, last, entry[:8] + b"\0\0\0\1" + entry[12:]


def test_records_corrupt_twice_are_raised_and_can_be_skipped() -> None:
    brokers, fetching, stream = one_partition(queued_max_message_chunks=5)
    spoil(brokers, 2)
    fetching.manager.start_connections([fetching.info(stream)])
    fetching.step(2)
    assert offsets(stream.drain()) == [0, 1]
    fetching.step()
    error = error_of(stream)
    assert isinstance(error, CorruptMessage)
    assert (error.topic, error.partition, error.offset) == ("t", 0, 2)
    assert stream.stream.iterator().skip_corrupt() == 3
    fetching.step()
    assert offsets(stream.drain()) == [3, 4]


def test_records_corrupt_once_are_fetched_again() -> None:
    brokers, fetching, stream = one_partition()
    good = list(brokers.logs[T0].entries)
    spoil(brokers, 0)
    fetching.manager.start_connections([fetching.info(stream)])
    fetching.step()
    brokers.logs[T0].entries = good
    fetching.step()
    assert offsets(stream.drain()) == [0, 1, 2, 3, 4]


def test_permanent_broker_error_is_raised_in_the_stream() -> None:
    brokers, fetching, stream = one_partition()
    brokers.script(ApiKey.FETCH, fetch_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    fetching.manager.start_connections([fetching.info(stream)])
    fetching.step(3)
    error = error_of(stream)
    assert isinstance(error, BrokerError)
    assert error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert len(brokers.asked(ApiKey.FETCH)) == 1


# --- starting and stopping


def test_connections_are_started_and_stopped_again_and_again() -> None:
    _, fetching, stream = one_partition()
    for number in range(3):
        info = fetching.info(stream, offset=number)
        fetching.manager.start_connections([info])
        fetching.step()
        fetching.manager.stop_connections()
        fetching.manager.stop_connections()
        assert offsets(stream.take(1)) == [number]
        stream.stream.clear()
    fetching.manager.shutdown()
    fetching.manager.shutdown()


def test_connections_are_not_started_twice() -> None:
    _, fetching, stream = one_partition()
    fetching.manager.start_connections([fetching.info(stream)])
    with pytest.raises(RuntimeError, match="already started"):
        fetching.manager.start_connections([])


def test_stop_ends_fetches_and_leader_lookups() -> None:
    brokers, fetching, stream = one_partition()
    fetching.manager.start_connections([fetching.info(stream)])
    fetching.manager.stop_connections()
    fetching.step()
    fetching.manager.add_partitions_with_error([T0])
    fetching.step()
    assert brokers.requests == []
    assert stream.drain() == []


def test_a_partition_that_is_reported_is_looked_for_again() -> None:
    brokers, fetching, stream = one_partition()
    fetching.manager.start_connections([fetching.info(stream)])
    fetching.step()
    fetching.manager.add_partitions_with_error([T0, TopicPartition("other", 0)])
    fetching.step()
    assert len(brokers.asked(ApiKey.METADATA)) == 2
    assert offsets(stream.drain()) == [0, 1, 2, 3, 4]
