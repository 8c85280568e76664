"""The transactions of one partition: each request in each state, appends that fail, markers, expiration."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import OFFSETS_TOPIC, ProducerIdAndEpoch, TopicPartition
from minikafka.transactions import metadata
from minikafka.transactions.decisions import (
    Answer,
    AppendOutcome,
    AppendTransition,
    TransactionDescription,
    TransactionListing,
)
from minikafka.transactions.messages import read_value
from minikafka.transactions.shard import TransactionSettings
from minikafka.transactions.states import TransactionState
from tests.support.transaction_harness import TIMEOUT_MS, CoordinatorHarness

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
DAY_MS = 24 * 3_600_000

EMPTY, ONGOING, DEAD = TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.DEAD
PREPARE_COMMIT, PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
COMPLETE_COMMIT, COMPLETE_ABORT = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT

NONE, FENCED = ErrorCode.NONE, ErrorCode.PRODUCER_FENCED
CONCURRENT, INVALID_STATE = ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.INVALID_TXN_STATE
UNKNOWN_ID = ErrorCode.INVALID_PRODUCER_ID_MAPPING

STATES = [EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT]


@pytest.fixture
def txn() -> CoordinatorHarness:
    return CoordinatorHarness(TransactionSettings(id_expiration_ms=DAY_MS))


def in_state(txn: CoordinatorHarness, state: TransactionState) -> ProducerIdAndEpoch:
    """Bring the transaction with the partition T0 into a state."""
    producer = txn.producer()
    if state is EMPTY:
        return producer
    assert txn.add(producer, T0) is NONE
    if state is ONGOING:
        return producer
    assert txn.end(producer, commit=state in {PREPARE_COMMIT, COMPLETE_COMMIT}) is NONE
    if state in {COMPLETE_COMMIT, COMPLETE_ABORT}:
        txn.write_markers()
    assert txn.state() is state
    return producer


# --- who may ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(
    ("id_difference", "epoch_difference", "error"),
    [(0, -1, FENCED), (0, 1, FENCED), (1, 0, UNKNOWN_ID), (-1, 0, UNKNOWN_ID)],
)
def test_another_producer_changes_nothing_in_any_state(
    txn: CoordinatorHarness,
    state: TransactionState,
    id_difference: int,
    epoch_difference: int,
    error: ErrorCode,
) -> None:
    producer_id, epoch = in_state(txn, state)
    other, log = ProducerIdAndEpoch(producer_id + id_difference, epoch + epoch_difference), [*txn.log]
    assert txn.add(other, T0) is error
    assert txn.end(other, commit=True) is txn.end(other, commit=False) is error
    assert txn.shard.verify_partitions("a", other, [T0]) == {T0: error}
    assert txn.log == log


def test_unknown_and_empty_ids_are_refused(txn: CoordinatorHarness) -> None:
    producer = ProducerIdAndEpoch(1, 0)
    for name, error in (("b", UNKNOWN_ID), ("", ErrorCode.INVALID_REQUEST)):
        assert txn.add(producer, T0, name=name) is error
        assert txn.end(producer, name=name) is error
        assert txn.shard.verify_partitions(name, producer, [T0]) == {T0: error}


# --- AddPartitionsToTxn, AddOffsetsToTxn --------------------------------------------------------------------


@pytest.mark.parametrize("state", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_the_first_partitions_begin_a_transaction(txn: CoordinatorHarness, state: TransactionState) -> None:
    producer = in_state(txn, state)
    txn.now_ms += 50
    assert txn.add(producer, T1, U0) is NONE
    described = txn.shard.describe("a")
    assert (described.state, described.start_ms, described.partitions) == (ONGOING, txn.now_ms, (T1, U0))
    assert txn.states()[-1] is ONGOING


def test_more_partitions_keep_the_start_of_the_transaction(txn: CoordinatorHarness) -> None:
    producer = in_state(txn, ONGOING)
    began_ms = txn.now_ms
    txn.now_ms += 50
    assert txn.add(producer, T1) is NONE
    described = txn.shard.describe("a")
    assert (described.start_ms, described.partitions) == (began_ms, (T0, T1))


def stored(txn: CoordinatorHarness) -> list[TopicPartition]:
    """The partitions of the newest record, in their order."""
    value = txn.log[-1][1]
    assert value is not None
    rows = read_value(value).transaction_partitions or ()
    return [TopicPartition(row.topic, number) for row in rows for number in row.partition_ids]


@pytest.mark.parametrize("sorted_from", [2, 1000])
def test_partitions_are_stored_in_order_however_they_come(
    txn: CoordinatorHarness, monkeypatch: pytest.MonkeyPatch, sorted_from: int
) -> None:
    monkeypatch.setattr(metadata, "SORTED_FROM", sorted_from)
    producer, chance = txn.producer(), random.Random(5)
    left = [TopicPartition(topic, number) for topic in "cab" for number in range(8)]
    added: set[TopicPartition] = set()
    chance.shuffle(left)
    while left:
        some = [left.pop() for _ in range(min(len(left), chance.randrange(1, 4)))]
        added.update(some)
        assert txn.add(producer, *some) is NONE
        assert stored(txn) == sorted(added)
        if chance.random() < 0.3:
            txn.shard.partitions_deleted(some[:1], txn.now_ms)
            added.discard(some[0])
    assert txn.end(producer) is NONE
    assert stored(txn) == sorted(added)


def test_one_partition_more_does_not_sort_all_of_many(
    txn: CoordinatorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = txn.producer()
    assert txn.add(producer, *(TopicPartition("t", number) for number in range(1000))) is NONE
    sorted_rows = metadata._rows_of
    counts: list[int] = []

    def counted(partitions: Iterable[TopicPartition]) -> metadata.LogPartitions:
        counts.append(len(listed := list(partitions)))
        return sorted_rows(listed)

    monkeypatch.setattr(metadata, "_rows_of", counted)
    assert txn.add(producer, TopicPartition("t", 1000)) is NONE
    assert txn.add(producer, TopicPartition("u", 0), TopicPartition("s", 0)) is NONE
    assert counts == [1, 2]
    assert len(stored(txn)) == 1003


def test_known_partitions_are_answered_without_an_append(txn: CoordinatorHarness) -> None:
    producer = in_state(txn, ONGOING)
    assert txn.decide_add(producer, [T0]) == Answer(NONE)
    assert isinstance(txn.decide_add(producer, [T0, T1]), AppendTransition)


@pytest.mark.parametrize("state", [PREPARE_COMMIT, PREPARE_ABORT])
def test_no_partition_is_added_while_markers_are_written(
    txn: CoordinatorHarness, state: TransactionState
) -> None:
    assert txn.add(in_state(txn, state), T1) is CONCURRENT


def test_the_offsets_of_a_group_are_a_partition(txn: CoordinatorHarness) -> None:
    producer = in_state(txn, ONGOING)
    assert txn.add(producer, TopicPartition(OFFSETS_TOPIC, 17)) is NONE
    txn.end(producer)
    assert txn.markers[0].partitions == {T0, TopicPartition(OFFSETS_TOPIC, 17)}


# --- verification by partition leaders (KIP-890) ------------------------------------------------------------


def test_partitions_of_an_open_transaction_are_verified(txn: CoordinatorHarness) -> None:
    producer = in_state(txn, ONGOING)
    assert txn.shard.verify_partitions("a", producer, [T0, T1]) == {
        T0: NONE,
        T1: ErrorCode.TRANSACTION_ABORTABLE,
    }
    assert len(txn.log) == 2


@pytest.mark.parametrize("state", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_no_partition_is_verified_without_a_transaction(
    txn: CoordinatorHarness, state: TransactionState
) -> None:
    producer = in_state(txn, state)
    assert txn.shard.verify_partitions("a", producer, [T0]) == {T0: ErrorCode.TRANSACTION_ABORTABLE}


@pytest.mark.parametrize("state", [PREPARE_COMMIT, PREPARE_ABORT])
def test_no_partition_is_verified_while_markers_are_written(
    txn: CoordinatorHarness, state: TransactionState
) -> None:
    assert txn.shard.verify_partitions("a", in_state(txn, state), [T0]) == {T0: CONCURRENT}


def test_verification_does_not_wait_for_a_pending_change(txn: CoordinatorHarness) -> None:
    producer = in_state(txn, ONGOING)
    txn.decide_add(producer, [T1])
    assert txn.shard.verify_partitions("a", producer, [T0, T1]) == {
        T0: NONE,
        T1: ErrorCode.TRANSACTION_ABORTABLE,
    }


# --- EndTxn -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "commit", "error"),
    [
        (EMPTY, True, INVALID_STATE),
        (EMPTY, False, INVALID_STATE),
        (ONGOING, True, NONE),
        (ONGOING, False, NONE),
        (PREPARE_COMMIT, True, CONCURRENT),
        (PREPARE_COMMIT, False, INVALID_STATE),
        (PREPARE_ABORT, True, INVALID_STATE),
        (PREPARE_ABORT, False, CONCURRENT),
        (COMPLETE_COMMIT, True, NONE),
        (COMPLETE_COMMIT, False, INVALID_STATE),
        (COMPLETE_ABORT, True, INVALID_STATE),
        (COMPLETE_ABORT, False, NONE),
    ],
)
def test_end_txn_in_each_state(
    txn: CoordinatorHarness, state: TransactionState, commit: bool, error: ErrorCode
) -> None:
    producer = in_state(txn, state)
    appends = len(txn.log) + (state is ONGOING)
    assert txn.end(producer, commit=commit) is error
    assert len(txn.log) == appends


@pytest.mark.parametrize(
    ("commit", "prepared", "completed"),
    [(True, PREPARE_COMMIT, COMPLETE_COMMIT), (False, PREPARE_ABORT, COMPLETE_ABORT)],
)
def test_the_end_is_answered_before_its_markers(
    txn: CoordinatorHarness, commit: bool, prepared: TransactionState, completed: TransactionState
) -> None:
    producer = in_state(txn, ONGOING)
    assert txn.end(producer, commit=commit) is NONE
    assert txn.state() is prepared
    (markers,) = txn.markers
    assert markers.commit is commit
    assert (markers.transactional_id, markers.coordinator_epoch) == ("a", 1)
    assert (markers.producer_id, markers.producer_epoch) == producer
    txn.write_markers()
    assert txn.state() is completed
    assert txn.states()[-2:] == [prepared, completed]


def test_a_second_transaction_follows_with_the_same_epoch(txn: CoordinatorHarness) -> None:
    producer = in_state(txn, COMPLETE_COMMIT)
    assert txn.add(producer, T1) is NONE
    assert txn.end(producer, commit=False) is NONE
    assert txn.markers[-1].partitions == {T1}
    assert txn.markers[-1].producer_epoch == producer.epoch


# --- pending appends ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [EMPTY, ONGOING, COMPLETE_COMMIT])
def test_all_requests_wait_for_a_pending_append(txn: CoordinatorHarness, state: TransactionState) -> None:
    producer = in_state(txn, state)
    assert isinstance(txn.decide_add(producer, [T1]), AppendTransition)
    assert txn.decide_add(producer, [T0]) == Answer(CONCURRENT)
    assert (
        txn.decide_end(producer, commit=True) == txn.decide_end(producer, commit=False) == Answer(CONCURRENT)
    )
    assert txn.decide_init() == txn.decide_init(producer) == Answer(CONCURRENT)
    txn.now_ms += TIMEOUT_MS + 2 * DAY_MS
    assert txn.shard.expired(txn.now_ms, 10) == []
    assert txn.shard.expire_ids(txn.now_ms, 10) is None


def test_a_pending_append_shows_nothing(txn: CoordinatorHarness) -> None:
    producer = in_state(txn, ONGOING)
    before = txn.shard.describe("a")
    txn.decide_end(producer, commit=True)
    assert txn.shard.describe("a") == before
    assert txn.markers == []


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_FOR_PARTITION, ErrorCode.NOT_COORDINATOR_FOR_GROUP),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR_FOR_GROUP),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN),
        (ErrorCode.INVALID_REQUIRED_ACKS, ErrorCode.INVALID_REQUIRED_ACKS),
    ],
)
def test_a_failed_append_is_answered_as_kafka_does(
    txn: CoordinatorHarness, error: ErrorCode, answer: ErrorCode
) -> None:
    producer = in_state(txn, ONGOING)
    txn.error = error
    assert txn.end(producer) is answer
    assert txn.state() is ONGOING
    assert txn.markers == []
    txn.error = NONE
    assert txn.end(producer, commit=False) is NONE


def test_known_partitions_are_appended_after_a_failed_append(txn: CoordinatorHarness) -> None:
    # The log may have the end that failed: a coordinator that loads it would end the transaction.
    producer = in_state(txn, ONGOING)
    txn.error, txn.is_written = ErrorCode.REQUEST_TIMED_OUT, True
    txn.end(producer)
    txn.error = NONE
    assert isinstance(txn.decide_add(producer, [T0]), AppendTransition)


def test_a_failed_complete_is_repeated_and_keeps_others_waiting(txn: CoordinatorHarness) -> None:
    producer = in_state(txn, PREPARE_COMMIT)
    append = txn.shard.markers_written(txn.markers[0], [T0], txn.now_ms)
    assert append is not None
    for _ in range(2):
        outcome = txn.shard.appended(append, ErrorCode.NOT_ENOUGH_REPLICAS, txn.now_ms)
        assert outcome == AppendOutcome(retry=append)
        assert txn.end(producer) is CONCURRENT
    txn.perform(append)
    assert txn.end(producer) is NONE


# --- markers ------------------------------------------------------------------------------------------------


def test_the_last_marker_completes_the_transaction(txn: CoordinatorHarness) -> None:
    producer = in_state(txn, ONGOING)
    txn.add(producer, T1, U0)
    txn.end(producer)
    for partition in (T1, T0):
        txn.write_markers(partition)
        assert txn.state() is PREPARE_COMMIT
    assert txn.shard.describe("a").partitions == (U0,)
    txn.write_markers(U0)
    assert txn.state() is COMPLETE_COMMIT
    assert txn.shard.describe("a").partitions == ()


def test_a_transaction_without_partitions_completes_at_once(txn: CoordinatorHarness) -> None:
    producer = txn.producer()
    assert txn.add(producer) is NONE
    assert txn.end(producer) is NONE
    assert txn.state() is COMPLETE_COMMIT
    assert txn.markers == []


def test_a_marker_is_counted_once(txn: CoordinatorHarness) -> None:
    in_state(txn, PREPARE_COMMIT)
    assert txn.shard.markers_written(txn.markers[0], [T0], txn.now_ms) is not None
    assert txn.shard.markers_written(txn.markers[0], [T0], txn.now_ms) is None


def test_late_markers_do_not_complete_the_next_transaction(txn: CoordinatorHarness) -> None:
    producer = in_state(txn, COMPLETE_COMMIT)
    txn.add(producer, T0)
    txn.end(producer)
    former, newest = txn.markers
    assert former == newest
    assert txn.shard.markers_written(former, [T0], txn.now_ms) is None
    assert txn.state() is PREPARE_COMMIT


def test_late_markers_leave_the_next_transaction_its_partitions(txn: CoordinatorHarness) -> None:
    producer = in_state(txn, COMPLETE_COMMIT)
    txn.add(producer, T0)
    assert txn.shard.markers_written(txn.markers[0], [T0], txn.now_ms) is None
    assert txn.shard.describe("a").partitions == (T0,)


# --- deleted topics -----------------------------------------------------------------------------------------


def test_a_deleted_partition_needs_no_marker(txn: CoordinatorHarness) -> None:
    producer = in_state(txn, ONGOING)
    txn.add(producer, U0)
    txn.end(producer)
    assert txn.shard.partitions_deleted([T0, T1], txn.now_ms) == []
    (append,) = txn.shard.partitions_deleted([U0], txn.now_ms)
    txn.perform(append)
    assert txn.state() is COMPLETE_COMMIT


def test_a_deleted_partition_leaves_an_open_transaction(txn: CoordinatorHarness) -> None:
    producer = in_state(txn, ONGOING)
    assert txn.shard.partitions_deleted([T0], txn.now_ms) == []
    assert txn.shard.describe("a").partitions == ()
    assert txn.end(producer) is NONE
    assert txn.state() is COMPLETE_COMMIT


def test_a_partition_deleted_during_an_append_is_gone_after_it(txn: CoordinatorHarness) -> None:
    producer = in_state(txn, ONGOING)
    txn.add(producer, U0)
    append = txn.decide_end(producer, commit=True)
    assert isinstance(append, AppendTransition)
    assert txn.shard.partitions_deleted([T0], txn.now_ms) == []
    assert txn.run(append).error is NONE
    assert txn.markers[0].partitions == {U0}


def test_a_partition_deleted_during_a_failed_append_is_gone(txn: CoordinatorHarness) -> None:
    producer = in_state(txn, ONGOING)
    append = txn.decide_add(producer, [U0])
    assert isinstance(append, AppendTransition)
    txn.shard.partitions_deleted([T0, U0], txn.now_ms)
    txn.report(append, ErrorCode.REQUEST_TIMED_OUT)
    assert txn.shard.describe("a").partitions == ()
    assert txn.add(producer, U0) is NONE
    assert txn.shard.describe("a").partitions == (U0,)


# --- time-outs ----------------------------------------------------------------------------------------------


def test_a_transaction_is_aborted_after_its_time_out(txn: CoordinatorHarness) -> None:
    producer = in_state(txn, ONGOING)
    began_ms = txn.now_ms
    assert txn.shard.expired(began_ms + TIMEOUT_MS, 10) == []
    txn.now_ms = began_ms + TIMEOUT_MS + 1
    (append,) = txn.shard.expired(txn.now_ms, 10)
    assert append.answer is None
    assert txn.shard.expired(txn.now_ms, 10) == []
    txn.perform(append)
    assert txn.state() is PREPARE_ABORT
    assert txn.markers[0].producer_epoch == producer.epoch + 1
    assert txn.end(producer) is FENCED
    txn.write_markers()
    assert txn.init(producer).error is FENCED
    assert txn.init().producer_epoch == producer.epoch + 2


def test_the_time_counts_from_the_first_partition(txn: CoordinatorHarness) -> None:
    producer = in_state(txn, ONGOING)
    txn.now_ms += TIMEOUT_MS - 1
    txn.add(producer, T1)
    assert len(txn.shard.expired(txn.now_ms + 2, 10)) == 1


@pytest.mark.parametrize("state", [state for state in STATES if state is not ONGOING])
def test_only_open_transactions_time_out(txn: CoordinatorHarness, state: TransactionState) -> None:
    in_state(txn, state)
    assert txn.shard.expired(txn.now_ms + 10 * TIMEOUT_MS, 10) == []


def test_an_abort_that_failed_is_tried_again(txn: CoordinatorHarness) -> None:
    in_state(txn, ONGOING)
    txn.now_ms += 2 * TIMEOUT_MS
    (append,) = txn.shard.expired(txn.now_ms, 10)
    assert txn.report(append, ErrorCode.REQUEST_TIMED_OUT) == AppendOutcome()
    assert len(txn.shard.expired(txn.now_ms, 10)) == 1


def test_time_outs_come_in_steps(txn: CoordinatorHarness) -> None:
    for number in range(5):
        txn.add(txn.producer(name=f"n{number}"), T0, name=f"n{number}")
    later_ms = txn.now_ms + 2 * TIMEOUT_MS
    assert [len(txn.shard.expired(later_ms, 2)) for _ in range(4)] == [2, 2, 1, 0]


# --- expiration of ids --------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_an_id_expires_after_its_last_change(txn: CoordinatorHarness, state: TransactionState) -> None:
    in_state(txn, state)
    assert txn.shard.expire_ids(txn.now_ms + DAY_MS - 1, 10) is None
    expiration = txn.shard.expire_ids(txn.now_ms + DAY_MS, 10)
    assert expiration is not None
    assert len(txn.shard) == 1
    txn.log += expiration.records
    txn.shard.ids_expired(expiration, NONE)
    assert len(txn.shard) == len(txn.loaded()) == 0
    assert txn.states()[-1] is DEAD


@pytest.mark.parametrize("state", [ONGOING, PREPARE_COMMIT, PREPARE_ABORT])
def test_an_id_with_a_transaction_does_not_expire(txn: CoordinatorHarness, state: TransactionState) -> None:
    in_state(txn, state)
    assert txn.shard.expire_ids(txn.now_ms + 10 * DAY_MS, 10) is None


def test_an_id_that_is_being_removed_keeps_others_waiting(txn: CoordinatorHarness) -> None:
    producer = in_state(txn, EMPTY)
    expiration = txn.shard.expire_ids(txn.now_ms + DAY_MS, 10)
    assert expiration is not None
    assert txn.add(producer, T0) is CONCURRENT
    assert txn.init().error is CONCURRENT
    txn.shard.ids_expired(expiration, ErrorCode.NOT_ENOUGH_REPLICAS)
    assert txn.add(producer, T0) is NONE


def test_ids_expire_in_steps(txn: CoordinatorHarness) -> None:
    for number in range(5):
        txn.init(name=f"n{number}")
    later_ms = txn.now_ms + DAY_MS
    steps = [txn.shard.expire_ids(later_ms, 2) for _ in range(4)]
    assert [len(step.records) if step else 0 for step in steps] == [2, 2, 1, 0]


# --- queries ------------------------------------------------------------------------------------------------


def test_a_transaction_is_described(txn: CoordinatorHarness) -> None:
    producer_id, epoch = in_state(txn, ONGOING)
    assert txn.shard.describe("a") == TransactionDescription(
        NONE, ONGOING, TIMEOUT_MS, txn.now_ms, producer_id, epoch, (T0,)
    )


@pytest.mark.parametrize(
    ("name", "error"), [("b", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND), ("", ErrorCode.INVALID_REQUEST)]
)
def test_an_unknown_id_is_not_described(txn: CoordinatorHarness, name: str, error: ErrorCode) -> None:
    assert txn.shard.describe(name).error is error


def test_transactions_are_listed_by_state_producer_and_duration(txn: CoordinatorHarness) -> None:
    first = in_state(txn, ONGOING)
    txn.now_ms += 1_000
    second = txn.producer(name="b")
    txn.add(second, T0, name="b")
    one = TransactionListing("a", first.producer_id, ONGOING)
    two = TransactionListing("b", second.producer_id, ONGOING)
    now_ms = txn.now_ms + 500
    assert txn.shard.list_transactions(now_ms) == [one, two]
    assert txn.shard.list_transactions(now_ms, ["Empty", "Nonsense"]) == []
    assert txn.shard.list_transactions(now_ms, ["Ongoing", "Empty"]) == [one, two]
    assert txn.shard.list_transactions(now_ms, producer_id_filters=[second.producer_id]) == [two]
    assert txn.shard.list_transactions(now_ms, duration_filter_ms=500) == [one]
    assert txn.shard.list_transactions(now_ms, duration_filter_ms=499) == [one, two]


# --- unloading ----------------------------------------------------------------------------------------------


def test_an_unloaded_shard_refuses_everything(txn: CoordinatorHarness) -> None:
    producer = in_state(txn, ONGOING)
    txn.shard.unload()
    gone = ErrorCode.NOT_COORDINATOR_FOR_GROUP
    assert txn.init().error is txn.add(producer, T1) is txn.end(producer) is gone
    assert txn.shard.verify_partitions("a", producer, [T0]) == {T0: gone}
    assert txn.shard.describe("a").error is gone
    assert txn.shard.list_transactions(0) == []
    assert len(txn.shard) == 0


@pytest.mark.parametrize("error", [NONE, ErrorCode.NOT_LEADER_FOR_PARTITION])
def test_a_request_that_waits_while_unloading_is_answered(txn: CoordinatorHarness, error: ErrorCode) -> None:
    append = txn.decide_end(in_state(txn, ONGOING), commit=True)
    assert isinstance(append, AppendTransition)
    txn.shard.unload()
    assert txn.report(append, error) == AppendOutcome(Answer(ErrorCode.NOT_COORDINATOR_FOR_GROUP))
    assert txn.markers == []


def test_markers_and_tombstones_after_unloading_change_nothing(txn: CoordinatorHarness) -> None:
    in_state(txn, PREPARE_COMMIT)
    txn.init(name="b")
    expiration = txn.shard.expire_ids(txn.now_ms + DAY_MS, 10)
    assert expiration is not None
    txn.shard.unload()
    assert txn.shard.markers_written(txn.markers[0], [T0], txn.now_ms) is None
    txn.shard.ids_expired(expiration, NONE)
