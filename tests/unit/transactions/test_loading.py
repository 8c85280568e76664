"""Transactions that another broker loads from the log, and the ends that it goes on with."""

from __future__ import annotations

import logging

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import ProducerIdAndEpoch, TopicPartition
from minikafka.transactions.loading import TransactionMetadataLoader
from minikafka.transactions.messages import (
    TransactionLogPartitions,
    TransactionLogValue,
    key_bytes,
    value_bytes,
)
from minikafka.transactions.shard import TransactionSettings
from minikafka.transactions.states import TransactionState
from tests.support.transaction_harness import FIRST_PRODUCER_ID, TIMEOUT_MS, CoordinatorHarness

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
TWO = (TransactionLogPartitions("t", (0, 1)),)


@pytest.fixture
def txn() -> CoordinatorHarness:
    return CoordinatorHarness()


def value(state: TransactionState | int, topics: tuple[TransactionLogPartitions, ...] | None = TWO) -> bytes:
    status = state if isinstance(state, int) else state.value
    return value_bytes(TransactionLogValue(7, 3, TIMEOUT_MS, status, topics, 20, 10))


def test_an_open_transaction_goes_on(txn: CoordinatorHarness) -> None:
    producer = txn.producer()
    txn.add(producer, T0)
    described = txn.shard.describe("a")
    txn.move()
    assert txn.shard.describe("a") == described
    assert txn.add(producer, T1) is txn.end(producer) is ErrorCode.NONE
    assert txn.markers[0].partitions == {T0, T1}
    assert txn.markers[0].coordinator_epoch == 2


@pytest.mark.parametrize(("commit", "state"), [(True, "CompleteCommit"), (False, "CompleteAbort")])
def test_markers_are_written_again(txn: CoordinatorHarness, commit: bool, state: str) -> None:
    producer = txn.producer()
    txn.add(producer, T0, T1)
    txn.end(producer, commit=commit)
    txn.write_markers(T0)
    txn.move()
    first, second = txn.markers
    assert second.partitions == first.partitions == {T0, T1}
    assert second.commit is commit
    assert (first.coordinator_epoch, second.coordinator_epoch) == (1, 2)
    txn.write_markers()
    assert txn.state().label == state
    assert txn.end(producer, commit=commit) is ErrorCode.NONE


def test_an_end_without_partitions_is_completed(txn: CoordinatorHarness) -> None:
    txn.log.append((key_bytes("a"), value(TransactionState.PREPARE_COMMIT, ())))
    txn.move()
    assert txn.state() is TransactionState.COMPLETE_COMMIT


def test_nothing_is_left_of_a_completed_transaction(txn: CoordinatorHarness) -> None:
    producer = txn.producer()
    txn.add(producer, T0)
    txn.end(producer)
    txn.write_markers()
    assert txn.loaded().resume(txn.now_ms) == []


def test_the_end_of_a_failed_append_counts_if_it_is_in_the_log(txn: CoordinatorHarness) -> None:
    producer = txn.producer()
    txn.add(producer, T0)
    txn.error, txn.is_written = ErrorCode.REQUEST_TIMED_OUT, True
    assert txn.end(producer) is ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE
    txn.error = ErrorCode.NONE
    txn.move()
    assert txn.markers[0].commit
    assert txn.end(producer) is ErrorCode.CONCURRENT_TRANSACTIONS


def test_a_time_out_goes_on_after_a_move(txn: CoordinatorHarness) -> None:
    txn.add(txn.producer(), T0)
    txn.now_ms += TIMEOUT_MS + 1
    txn.move()
    assert len(txn.shard.expired(txn.now_ms, 10)) == 1


def test_an_epoch_bump_cannot_be_repeated_after_a_move(txn: CoordinatorHarness) -> None:
    # As with Kafka: version 0 of the log has no former epoch.
    producer = txn.producer()
    txn.init(producer)
    txn.move()
    assert txn.init(producer).error is ErrorCode.PRODUCER_FENCED
    assert txn.init(ProducerIdAndEpoch(FIRST_PRODUCER_ID, 1)).producer_epoch == 2


def test_values_of_version_1_are_loaded() -> None:
    stored = TransactionLogValue(7, 3, TIMEOUT_MS, TransactionState.ONGOING.value, TWO, 20, 10)
    loader = TransactionMetadataLoader(TransactionSettings())
    loader.add([key_bytes("a")], [0], [value_bytes(stored, 1)])
    described = loader.finish(1).describe("a")
    assert described.state is TransactionState.ONGOING
    assert described.partitions == (T0, T1)
    assert (described.producer_id, described.producer_epoch, described.start_ms) == (7, 3, 10)


def test_the_newest_record_of_all_windows_counts() -> None:
    loader = TransactionMetadataLoader(TransactionSettings())
    a, b, c = key_bytes("a"), key_bytes("b"), key_bytes("c")
    empty, ongoing = value(TransactionState.EMPTY, None), value(TransactionState.ONGOING)
    loader.add([a, b, a, None], [0, 1, 2, 3], [empty, empty, ongoing, empty])
    loader.add([c, b, c], [4, 5, 6], [ongoing, None, empty])
    shard = loader.finish(1)
    assert sorted(shard.transactional_ids()) == ["a", "c"]
    assert shard.describe("a").state is TransactionState.ONGOING
    assert shard.describe("c").state is TransactionState.EMPTY


def test_empty_has_no_partitions_even_if_the_log_does() -> None:
    loader = TransactionMetadataLoader(TransactionSettings())
    loader.add([key_bytes("a")], [0], [value(TransactionState.EMPTY)])
    assert loader.finish(1).describe("a").partitions == ()


def test_unreadable_records_are_skipped_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    loader = TransactionMetadataLoader(TransactionSettings())
    good = value(TransactionState.EMPTY, None)
    keys = [b"", bytes.fromhex("0009"), *map(key_bytes, "abcde")]
    values = [good, good, b"\0\0", bytes.fromhex("0007"), value(TransactionState.DEAD), value(9), good]
    loader.add(keys, range(10, 17), values)
    with caplog.at_level(logging.WARNING):
        assert loader.finish(1).transactional_ids() == ["e"]
    assert caplog.messages == [
        "skipped 6 transaction records, the first at offset 10: b'' is too short for a version"
    ]
