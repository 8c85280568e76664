"""``clients/fetch/range_fetcher``: the message sets of a range, with failures on the way."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.base.errors import BrokerError, ErrorCode, NetworkError, OffsetOutOfRange
from minikafka.base.ids import TopicPartition
from minikafka.clients.fetch.list_offsets import LATEST, list_offsets
from minikafka.clients.fetch.range_fetcher import RangeFetcher, log_reaches
from minikafka.clients.network.broker_connection import ResponseFuture
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.connections import ConnectionPool
from minikafka.clients.produce import BatchingProducer
from minikafka.net.memory import Fault
from minikafka.records.columns import decode
from minikafka.records.format.batch import ControlType, build_control_batch
from minikafka.records.format.message_set import Codec, iterate
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.fetch import FetchPartitionResponse, FetchRequest, FetchResponse, FetchTopicResponse
from tests.support.broker_harness import BrokerHarness, fetch_error

TP = TopicPartition("t", 0)
VALUES = [b"value-%03d" % number for number in range(100)]
MESSAGE_BYTES = 34 + 1 + 9


@pytest.fixture
def brokers() -> BrokerHarness:
    brokers = BrokerHarness(2, {"t": 2})
    brokers.fill(TP, *VALUES)
    return brokers


def fetcher(brokers: BrokerHarness | ClusterClient, start: int, end: int, **options: Any) -> RangeFetcher:
    cluster = brokers.client() if isinstance(brokers, BrokerHarness) else brokers
    return RangeFetcher(cluster, TP, start, end, **{"timeout_ms": 10_000} | options)


def offsets(sets: RangeFetcher) -> list[int]:
    """All offsets that come, those around the range too."""
    return [record.offset for data in sets for record in iterate(data)]


def within(found: list[int], start: int, end: int) -> list[int]:
    return [offset for offset in found if start <= offset < end]


@pytest.mark.parametrize("max_bytes", [10, 200, 1_000, 1 << 20])
@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_a_range_comes_whole_and_in_order(brokers: BrokerHarness, version: int, max_bytes: int) -> None:
    cluster = brokers.client(newest_versions={ApiKey.FETCH: version})
    found = offsets(fetcher(cluster, 7, 93, max_bytes=max_bytes))
    assert within(found, 7, 93) == list(range(7, 93))
    assert found == sorted(found)
    assert {v for _, key, v, _ in brokers.requests if key is ApiKey.FETCH} == {version}


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4, Codec.ZSTD])
def test_batches_come_whole_around_the_range(brokers: BrokerHarness, codec: Codec) -> None:
    brokers.fill(TP, *VALUES[:50], codec=codec, magic=2)
    brokers.fill(TP, *VALUES[50:], codec=codec, magic=2)
    assert offsets(fetcher(brokers, 120, 180, max_bytes=100)) == list(range(100, 200))
    assert offsets(fetcher(brokers, 149, 150, max_bytes=100)) == list(range(100, 150))
    assert within(offsets(fetcher(brokers, 90, 110)), 90, 110) == list(range(90, 110))


def test_control_record_has_no_row_and_does_not_end_the_range(brokers: BrokerHarness) -> None:
    mark = build_control_batch(
        ControlType.ABORT, coordinator_epoch=0, producer_id=7, producer_epoch=0, timestamp_ms=0
    )
    brokers.logs[TP].append(mark)
    brokers.fill(TP, b"behind", magic=2)
    for start, rows in ((99, [99, 101]), (100, [101]), (101, [101])):
        found = [
            int(offset)
            for data in fetcher(brokers, start, 102)
            for offset in decode(data, start, 102).offsets
        ]
        assert found == rows


def test_brokers_without_the_oldest_versions_are_written_and_read() -> None:
    """Kafka 4 (KIP-896)."""
    brokers = BrokerHarness(1, {"t": 1})
    brokers.oldest = {ApiKey.PRODUCE: 3, ApiKey.FETCH: 4, ApiKey.LIST_OFFSETS: 1, ApiKey.DELETE_TOPICS: 1}
    brokers.newest = {ApiKey.PRODUCE: 13, ApiKey.FETCH: 18, ApiKey.LIST_OFFSETS: 11, ApiKey.METADATA: 13}
    with brokers.client() as cluster:
        with BatchingProducer(cluster, threads=False) as producer:
            for value in VALUES:
                producer.send("t", value, partition=0)
        end = list_offsets(cluster, {TP: LATEST}, cluster.deadline())[TP]
        assert end == len(VALUES)
        assert offsets(fetcher(cluster, 0, end)) == list(range(end))


def test_sets_end_at_a_message_and_are_views_of_the_response(brokers: BrokerHarness) -> None:
    sets = list(fetcher(brokers, 0, 100, max_bytes=1_000))
    assert {type(data) for data in sets} == {memoryview}
    assert [len(data) % MESSAGE_BYTES for data in sets] == [0] * len(sets)
    assert len(sets[0]) == 1_000 // MESSAGE_BYTES * MESSAGE_BYTES


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("version", [2, 3])
def test_compressed_messages_come_whole_around_the_range(
    brokers: BrokerHarness, codec: Codec, version: int
) -> None:
    brokers.fill(TP, *VALUES[:50], codec=codec)
    brokers.fill(TP, *VALUES[50:], codec=codec)
    cluster = brokers.client(newest_versions={ApiKey.FETCH: version})
    found = offsets(fetcher(cluster, 120, 180, max_bytes=100))
    assert found == list(range(100, 200))


def test_the_next_request_is_sent_before_a_set_is_given_out(brokers: BrokerHarness) -> None:
    sets = fetcher(brokers, 0, 100, max_bytes=1_000)
    next(sets)
    brokers.network.run()
    asked = [r.topics[0].partitions[0].fetch_offset for r in brokers.asked(ApiKey.FETCH)]
    assert asked == [0, 22]
    for _ in sets:
        pass
    asked = [r.topics[0].partitions[0].fetch_offset for r in brokers.asked(ApiKey.FETCH)]
    assert asked == [0, 22, 44, 66, 88]


def test_nothing_is_asked_beyond_the_range(brokers: BrokerHarness) -> None:
    assert offsets(fetcher(brokers, 50, 50)) == []
    assert brokers.requests == []
    sets = fetcher(brokers, 0, 100)
    assert len(list(sets)) == 1
    assert len(brokers.asked(ApiKey.FETCH)) == 1
    assert sets.next_offset == 100
    assert sets.high_watermark == 100


def test_a_caller_that_takes_longer_than_the_time_out_loses_nothing(brokers: BrokerHarness) -> None:
    sets = fetcher(brokers, 0, 100, max_bytes=1_000, timeout_ms=5_000)
    found = []
    for data in sets:
        found += [record.offset for record in iterate(data)]
        brokers.advance(600_000)
    assert found == list(range(100))
    # The answers that were under way were used: no offset was asked for twice.
    asked = [r.topics[0].partitions[0].fetch_offset for r in brokers.asked(ApiKey.FETCH)]
    assert len(asked) == len(set(asked))


def test_timeout_of_a_prefetched_response_starts_when_it_is_needed(
    brokers: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    patience: list[int | None] = []
    result = ResponseFuture.result

    def watched(reply: ResponseFuture[object], timeout_ms: int | None = None) -> object:
        patience.append(timeout_ms)
        return result(reply, timeout_ms)

    monkeypatch.setattr(ResponseFuture, "result", watched)
    sets = fetcher(brokers, 0, 100, max_bytes=1_000, timeout_ms=5_000)
    next(sets)
    brokers.advance(600_000)
    next(sets)
    # Counted from the request, as connections do.
    assert patience[-1] == 605_000


def test_compacted_records_at_the_end_do_not_keep_it_waiting(brokers: BrokerHarness) -> None:
    brokers.logs[TP].compact(*range(90, 100))
    before = brokers.clock.monotonic_ms()
    assert within(offsets(fetcher(brokers, 80, 100)), 80, 100) == list(range(80, 90))
    assert brokers.clock.monotonic_ms() - before < 1_000


def test_a_range_that_is_compacted_away_is_empty(brokers: BrokerHarness) -> None:
    brokers.logs[TP].compact(*range(10, 20))
    assert list(fetcher(brokers, 10, 20)) == []
    brokers.logs[TP].compact(*range(20, 100))
    assert list(fetcher(brokers, 10, 50)) == []


def one_answer(records: bytes) -> FetchResponse:
    part = FetchPartitionResponse(0, 0, 100, 100, 0, None, records)
    return FetchResponse(0, 0, 0, (FetchTopicResponse("t", (part,)),))


def answer_of_a_read_before_the_last_append(broker_id: int, request: FetchRequest) -> FetchResponse:
    """The response of 0.10.1 if records are appended between its reads of log and high watermark."""
    return one_answer(b"")


def test_an_empty_answer_with_a_newer_high_watermark_ends_nothing(brokers: BrokerHarness) -> None:
    brokers.script(ApiKey.FETCH, answer_of_a_read_before_the_last_append)
    assert offsets(fetcher(brokers, 90, 100)) == list(range(90, 100))


def test_empty_response_of_another_broker_does_not_end_the_range(brokers: BrokerHarness) -> None:
    def led_by_the_other_from_now_on(broker_id: int, request: FetchRequest) -> FetchResponse:
        brokers.move_leader(TP, 3 - broker_id)
        cluster.invalidate("t")
        return answer_of_a_read_before_the_last_append(broker_id, request)

    cluster = brokers.client()
    brokers.script(ApiKey.FETCH, led_by_the_other_from_now_on, answer_of_a_read_before_the_last_append)
    assert offsets(fetcher(cluster, 90, 100)) == list(range(90, 100))
    assert len({broker for broker, key, _, _ in brokers.requests if key is ApiKey.FETCH}) == 2


def test_a_failure_between_two_empty_answers_begins_the_proof_anew(brokers: BrokerHarness) -> None:
    brokers.script(
        ApiKey.FETCH,
        answer_of_a_read_before_the_last_append,
        fetch_error(ErrorCode.NOT_LEADER_FOR_PARTITION),
        answer_of_a_read_before_the_last_append,
    )
    assert offsets(fetcher(brokers, 90, 100)) == list(range(90, 100))


def test_gaps_inside_are_passed_over(brokers: BrokerHarness) -> None:
    brokers.logs[TP].compact(*range(10, 60))
    found = within(offsets(fetcher(brokers, 5, 70, max_bytes=200)), 5, 70)
    assert found == [*range(5, 10), *range(60, 70)]


def test_records_that_are_not_there_yet_are_waited_for(brokers: BrokerHarness) -> None:
    def nothing_yet(_: int, request: FetchRequest) -> FetchResponse:
        brokers.advance(500)
        return one_answer(b"")

    def grown(broker_id: int, request: FetchRequest) -> FetchResponse:
        brokers.fill(TP, b"new")
        return brokers.serve(broker_id, request)

    brokers.script(ApiKey.FETCH, nothing_yet, nothing_yet, nothing_yet, grown)
    assert offsets(fetcher(brokers, 100, 101)) == [100]


def test_missing_messages_end_with_a_timeout_and_the_high_watermark(brokers: BrokerHarness) -> None:
    with pytest.raises(
        NetworkError,
        match=r"no messages of t-0 from offset 100 within 2000 ms \(wanted up to 105; high watermark 100",
    ):
        next(fetcher(brokers, 100, 105, timeout_ms=2_000))
    assert brokers.clock.monotonic_ms() <= 2_600


def test_a_moved_leader_is_followed_and_nothing_is_lost_or_read_twice(brokers: BrokerHarness) -> None:
    found = []
    for number, data in enumerate(fetcher(brokers, 0, 100, max_bytes=1_000)):
        found += [record.offset for record in iterate(data)]
        brokers.move_leader(TP, number // 2 % 2 + 1)
    assert found == list(range(100))
    assert {broker for broker, key, _, _ in brokers.requests if key is ApiKey.FETCH} == {1, 2}


@pytest.mark.parametrize(
    "fault", [Fault.CUT_REQUEST, Fault.CUT_RESPONSE, Fault.DROP_RESPONSE, Fault.DROP_REQUEST]
)
def test_broken_and_silent_connections_are_tried_again(brokers: BrokerHarness, fault: Fault) -> None:
    cluster = brokers.client()
    sets = fetcher(cluster, 0, 100, max_bytes=1_000, timeout_ms=120_000)
    found = [record.offset for record in iterate(next(sets))]
    brokers.fault(1, fault)
    found += offsets(sets)
    assert found == list(range(100))


def test_a_lasting_failure_ends_with_what_was_tried(brokers: BrokerHarness) -> None:
    brokers.script(ApiKey.FETCH, *[fetch_error(ErrorCode.NOT_LEADER_FOR_PARTITION)] * 1_000)
    with pytest.raises(BrokerError, match=r"t-0 from offset 3 within 5000 ms .*: fetching t-0") as caught:
        next(fetcher(brokers, 3, 100, timeout_ms=5_000))
    assert caught.value.code is ErrorCode.NOT_LEADER_FOR_PARTITION


def test_what_does_not_pass_is_raised_at_once(brokers: BrokerHarness) -> None:
    brokers.script(ApiKey.FETCH, fetch_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED: fetching t-0 from offset 3"):
        next(fetcher(brokers, 3, 100))
    assert brokers.waiter.waits == []


def test_what_the_caller_wants_to_judge_is_raised_at_once(brokers: BrokerHarness) -> None:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    brokers.script(ApiKey.FETCH, fetch_error(code), fetch_error(code))
    assert offsets(fetcher(brokers, 0, 100)) == list(range(100))
    brokers.script(ApiKey.FETCH, fetch_error(code))
    waits = len(brokers.waiter.waits)
    with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        offsets(fetcher(brokers, 0, 100, unretried_codes=[code]))
    assert len(brokers.waiter.waits) == waits


def test_an_offset_outside_of_the_log_is_told_with_its_range(brokers: BrokerHarness) -> None:
    brokers.logs[TP].delete_before(40)
    for start in (5, 101):
        with pytest.raises(OffsetOutOfRange) as caught:
            next(fetcher(brokers, start, 200))
        error = caught.value
        assert (error.offset, error.start_offset, error.end_offset) == (start, 40, 100)


def test_a_range_that_cannot_be_asked_for_is_asked_for_again(brokers: BrokerHarness) -> None:
    brokers.script(ApiKey.LIST_OFFSETS, *[lambda *_: Fault.CUT_REQUEST] * 20)
    with pytest.raises(OffsetOutOfRange) as caught:
        next(fetcher(brokers, 500, 600))
    assert (caught.value.start_offset, caught.value.end_offset) == (0, 100)


def test_a_range_that_stays_unknown_is_no_loss_of_records(brokers: BrokerHarness) -> None:
    brokers.script(ApiKey.LIST_OFFSETS, *[lambda *_: Fault.CUT_REQUEST] * 1_000)
    with pytest.raises(NetworkError, match="offset 500 is out of range, and the log's range cannot be"):
        next(fetcher(brokers, 500, 600))


def test_an_offset_that_the_log_has_after_all_is_fetched_again(brokers: BrokerHarness) -> None:
    brokers.script(ApiKey.FETCH, *[fetch_error(ErrorCode.OFFSET_OUT_OF_RANGE)] * 2)
    assert len(offsets(fetcher(brokers, 0, 100))) == 100


def test_damage_is_told_with_the_place_after_what_lies_before_it(brokers: BrokerHarness) -> None:
    brokers.damage(30, lambda entry: entry[:8] + (3).to_bytes(4, "big") + entry[12:])
    sets = fetcher(brokers, 20, 100)
    found = [record.offset for record in iterate(next(sets))]
    assert found == list(range(20, 30))
    with pytest.raises(BrokerError, match=r"CORRUPT_MESSAGE: t-0, fetched from offset 30: .*position 0"):
        next(sets)


def test_stop_ends_the_iteration(brokers: BrokerHarness) -> None:
    sets = fetcher(brokers, 0, 100, max_bytes=1_000)
    next(sets)
    sets.stop()
    assert list(sets) == []


def test_stop_ends_the_wait_of_a_throttled_client(brokers: BrokerHarness) -> None:
    brokers.always(ApiKey.FETCH, lambda *_: FetchResponse(60_000, 0, 0, ()))
    sets = fetcher(brokers, 0, 10)
    begun_ms = brokers.clock.monotonic_ms()
    wait = brokers.waiter.wait

    def stopping(milliseconds: int) -> None:
        sets.stop()
        wait(milliseconds)

    brokers.waiter.wait = stopping  # type: ignore[method-assign]
    assert list(sets) == []
    assert brokers.clock.monotonic_ms() - begun_ms <= 1_000


def test_a_range_must_begin_at_a_real_offset(brokers: BrokerHarness) -> None:
    with pytest.raises(ValueError, match="not -2"):
        fetcher(brokers, -2, 5)


def test_fetches_do_not_wait_in_the_way_of_other_requests(brokers: BrokerHarness) -> None:
    cluster = brokers.client()
    next(fetcher(cluster, 0, 100, max_bytes=1_000))
    assert cluster.connection(1, ConnectionPool.FETCH) is not cluster.connection(1, ConnectionPool.CONTROL)


def test_a_log_reaches_as_far_as_a_fetch_is_not_refused(brokers: BrokerHarness) -> None:
    cluster = brokers.client()
    brokers.logs[TP].delete_before(40)
    assert [log_reaches(cluster, TP, offset) for offset in (39, 40, 99, 100, 101)] == [
        False,
        True,
        True,
        True,
        False,
    ]


def test_how_far_a_log_reaches_is_asked_again_while_its_leader_moves(brokers: BrokerHarness) -> None:
    moved = fetch_error(ErrorCode.NOT_LEADER_FOR_PARTITION)
    brokers.script(ApiKey.FETCH, moved, lambda *_: Fault.CUT_REQUEST)
    assert log_reaches(brokers.client(), TP, 100)


def test_how_far_a_log_reaches_is_not_told_to_who_may_not_read_it(brokers: BrokerHarness) -> None:
    brokers.script(ApiKey.FETCH, fetch_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
        log_reaches(brokers.client(), TP, 100)
