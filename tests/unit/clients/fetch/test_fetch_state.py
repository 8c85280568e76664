"""``clients/fetch/fetch_state``: the meaning of what a broker returns for one partition."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.clients.fetch.fetch_state import (
    FETCH_ERRORS,
    NO_POSITION,
    UNKNOWN_ENTRY_BYTES,
    CompletedFetch,
    FetchSettings,
    FetchStatus,
    PartitionFetchState,
    fetch_status,
    larger_fetch_bytes,
)
from minikafka.clients.fetch.isolation_level import IsolationLevel
from minikafka.clients.network.retry import Backoff
from minikafka.records.format.batch import build_batch
from minikafka.records.format.message_set import Record, build_message_set, iterate
from minikafka.wire.apis.fetch import LARGEST_MESSAGE_BYTES, AbortedTransaction, FetchPartitionResponse

TP = TopicPartition("t", 3)
SETTINGS = FetchSettings(
    partition_max_bytes=100, max_bytes=100, message_max_bytes=1_000, retry_backoff=Backoff(50, 200)
)


def response(records: bytes = b"", code: ErrorCode = ErrorCode.NONE) -> FetchPartitionResponse:
    return FetchPartitionResponse(3, code, 70, 60, 2, None, memoryview(records))


def entries(first_offset: int, *values: bytes) -> bytes:
    """Messages of magic 1 from ``first_offset`` on."""
    found = b""
    for offset, value in enumerate(values, first_offset):
        entry = build_message_set([Record(None, value)])
        found += offset.to_bytes(8, "big") + entry[8:]
    return found


def header(size: int) -> bytes:
    """The start of a message with ``size`` in its header."""
    return bytes(8) + size.to_bytes(4, "big") + b"\0\0\0\0\1" + bytes(20)


def complete(
    state: PartitionFetchState, part: FetchPartitionResponse, now_ms: int = 0, *, had_room: bool = True
) -> CompletedFetch:
    return state.complete(part, now_ms, had_room=had_room)


def at(offset: int, settings: FetchSettings = SETTINGS) -> PartitionFetchState:
    return PartitionFetchState(TP, settings, offset)


@pytest.fixture
def state() -> PartitionFetchState:
    return at(7)


@pytest.mark.parametrize("code", [code for code in ErrorCode if code is not ErrorCode.NONE])
def test_every_error_code_has_one_meaning(code: ErrorCode) -> None:
    status = fetch_status(code)
    assert status is FETCH_ERRORS.get(code, FetchStatus.FAILED)
    state = at(5)
    completed = complete(state, response(code=code), 1_000)
    if status is FetchStatus.CORRUPT:
        assert completed.status is FetchStatus.RETRY
        completed = complete(state, response(code=code), 1_000)
    assert (completed.status, completed.offset, completed.next_offset) == (status, 5, 5)
    assert completed.error is not None
    assert completed.error.code is code
    assert completed.error.detail.startswith("fetching t-3 from offset 5")
    assert state.not_before_ms == (1_050 if status is FetchStatus.LEADER_LOST else 0)
    assert state.offset == (NO_POSITION if status is FetchStatus.OUT_OF_RANGE else 5)


def test_retriable_errors_of_a_fetch_are_not_final() -> None:
    of_other_apis = {
        ErrorCode.GROUP_LOAD_IN_PROGRESS,
        ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR_FOR_GROUP,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    }
    final = {code for code in ErrorCode if code.is_retriable and fetch_status(code) is FetchStatus.FAILED}
    assert final == of_other_apis


def test_position_moves_behind_the_last_complete_entry(state: PartitionFetchState) -> None:
    data = entries(7, b"a", b"b") + entries(9, b"cut")[:-1]
    completed = complete(state, response(data))
    assert (completed.status, completed.offset, completed.next_offset) == (FetchStatus.RECORDS, 7, 9)
    assert [record.value for record in iterate(completed.records)] == [b"a", b"b"]
    assert completed.high_watermark == 70
    assert state.offset == 9


def test_records_are_a_view_of_the_response() -> None:
    data = entries(0, b"a")
    completed = complete(at(0), response(data))
    assert completed.records.obj is data


def test_no_records_leave_the_position(state: PartitionFetchState) -> None:
    completed = complete(state, response())
    assert (completed.status, completed.next_offset, state.offset) == (FetchStatus.EMPTY, 7, 7)


@pytest.mark.parametrize(
    ("isolation", "stable", "last_stable_offset", "readable_end"),
    [
        (IsolationLevel.READ_UNCOMMITTED, 60, None, 70),
        (IsolationLevel.READ_COMMITTED, 60, 60, 60),
        (IsolationLevel.READ_COMMITTED, -1, None, 70),  # a broker without transactions
    ],
)
def test_isolation_level_selects_the_readable_end(
    isolation: IsolationLevel, stable: int, last_stable_offset: int | None, readable_end: int
) -> None:
    state = at(7, replace(SETTINGS, isolation=isolation))
    completed = complete(state, replace(response(), last_stable_offset=stable))
    assert (completed.last_stable_offset, completed.readable_end) == (last_stable_offset, readable_end)


def test_aborted_transactions_are_cut_out_and_passed() -> None:
    aborted, kept = (
        build_batch(
            [Record(None, b"%d" % producer)],
            base_offset=producer,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=0,
            transactional=producer == 0,
        )
        for producer in (0, 1)
    )
    part = replace(response(aborted + kept), aborted_transactions=(AbortedTransaction(0, 0),))
    completed = complete(at(0), part)
    assert [record.value for record in iterate(completed.records)] == [b"1"]
    assert completed.next_offset == 2
    alone = complete(at(0), replace(part, records=memoryview(aborted)))
    assert (alone.status, bytes(alone.records), alone.next_offset) == (FetchStatus.RECORDS, b"", 1)


# --- messages that do not fit


@pytest.mark.parametrize(
    ("fetch_bytes", "entry_bytes", "larger"),
    [
        (100, 150, 200),
        (100, 201, 400),
        (100, 0, 200),  # even the header was cut off
        (100, 900, 1_000),
        (100, 1_000, 1_000),
        (100, 1_001, None),
        (100, UNKNOWN_ENTRY_BYTES, 200),
        (600, UNKNOWN_ENTRY_BYTES, 1_000),
        (1_000, UNKNOWN_ENTRY_BYTES, None),
        (1_000, 900, None),
    ],
)
def test_fetch_is_doubled_until_the_message_fits(
    fetch_bytes: int, entry_bytes: int, larger: int | None
) -> None:
    assert larger_fetch_bytes(fetch_bytes, entry_bytes, 1_000) == larger


def test_cut_off_message_is_fetched_with_a_larger_size(state: PartitionFetchState) -> None:
    assert complete(state, response(header(300))).status is FetchStatus.RETRY
    assert (state.offset, state.request(-1).partition_max_bytes) == (7, 400)
    assert complete(state, response(entries(7, b"x" * 266))).status is FetchStatus.RECORDS
    assert state.request(-1).partition_max_bytes == 100


def test_cut_off_message_without_room_keeps_its_size(state: PartitionFetchState) -> None:
    assert complete(state, response(header(300)), had_room=False).status is FetchStatus.RETRY
    assert state.request(-1).partition_max_bytes == 100


def test_message_beyond_the_largest_fetch_is_too_large(state: PartitionFetchState) -> None:
    completed = complete(state, response(header(989)))
    assert (completed.status, completed.entry_bytes) == (FetchStatus.TOO_LARGE, 1_001)
    assert completed.error is not None
    assert completed.error.code is ErrorCode.MESSAGE_TOO_LARGE
    assert state.offset == 7


# --- damage


@pytest.mark.parametrize(
    "records",
    [
        pytest.param(header(3), id="a size below any message's"),
        pytest.param(header(LARGEST_MESSAGE_BYTES), id="a size above any message's"),
        pytest.param(entries(5, b"a"), id="entries before the position"),
    ],
)
def test_unreadable_data_is_damaged_when_it_comes_again(state: PartitionFetchState, records: bytes) -> None:
    first, second = (complete(state, response(records)) for _ in range(2))
    assert (first.status, first.error) == (FetchStatus.RETRY, None)
    assert second.status is FetchStatus.CORRUPT
    assert second.error is not None
    assert second.error.code is ErrorCode.CORRUPT_MESSAGE
    assert second.error.detail.startswith("t-3, fetched from offset 7: ")
    assert state.request(-1).partition_max_bytes == 100


def test_unreadable_data_that_comes_whole_later_is_no_damage(state: PartitionFetchState) -> None:
    complete(state, response(header(3)))
    assert complete(state, response(entries(7, b"a"))).status is FetchStatus.RECORDS
    assert complete(state, response(header(3))).status is FetchStatus.RETRY


# --- failures


def test_back_off_grows_until_the_broker_answers() -> None:
    state, moved = at(7), response(code=ErrorCode.NOT_LEADER_FOR_PARTITION)
    pauses = []
    for now_ms in (0, 1_000, 2_000, 3_000):
        completed = complete(state, moved, now_ms)
        pauses.append((completed.failures, state.not_before_ms - now_ms))
    assert pauses == [(1, 50), (2, 100), (3, 200), (4, 200)]
    complete(state, response(), 4_000)
    assert complete(state, moved, 5_000).failures == 1


@pytest.mark.parametrize(("throttle_time_ms", "pause_ms"), [(0, 10), (700, 700)])
def test_partition_left_out_is_fetched_after_the_throttle_time(
    state: PartitionFetchState, throttle_time_ms: int, pause_ms: int
) -> None:
    assert state.throttle(1_000, throttle_time_ms).status is FetchStatus.THROTTLED
    assert (state.not_before_ms, state.failures) == (1_000 + pause_ms, 0)


def test_seek_gives_up_the_larger_size(state: PartitionFetchState) -> None:
    complete(state, response(header(300)))
    state.seek(7)
    assert state.request(-1).partition_max_bytes == 400
    state.seek(9)
    assert (state.request(-1).fetch_offset, state.request(-1).partition_max_bytes) == (9, 100)
