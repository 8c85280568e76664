"""Transactions that a leader verifies before their first batch: which batches may begin one."""

from __future__ import annotations

import pytest

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.memory_files import MemoryFiles
from minikafka.log.log import Log
from minikafka.log.producers import producer_state_manager
from minikafka.log.producers.producer_state import OPEN_TRANSACTION, VerificationGuard
from minikafka.records.append.replicated import replicated
from tests.support.logs import NOW_MS, open_log
from tests.support.transactions import ONE_SEGMENT, end_transaction, part_of_transaction, write_in_transaction

P = 7


@pytest.fixture
def log(files: MemoryFiles) -> Log:
    return open_log(files, ONE_SEGMENT)


def start(log: Log, sequence: int = 0, *, producer: int = P, epoch: int = 0) -> VerificationGuard:
    return log.producers.start_verification(producer, epoch, sequence, NOW_MS)


def send(log: Log, guard: VerificationGuard | None, sequence: int = 0, *, epoch: int = 0) -> ErrorCode:
    """Append one record of a transaction; return the error."""
    before = log.end_offset
    try:
        log.append(part_of_transaction(P, 1, epoch=epoch, sequence=sequence), now_ms=NOW_MS, guard=guard)
    except BrokerError as error:
        assert log.end_offset == before
        return error.code
    return ErrorCode.NONE


def test_verified_batch_begins_a_transaction(log: Log) -> None:
    assert send(log, start(log)) is ErrorCode.NONE
    assert log.producers.first_undecided_offset == 0


def test_batches_of_an_open_transaction_need_no_verification(log: Log) -> None:
    send(log, start(log))
    guard = start(log, 1)
    assert guard is OPEN_TRANSACTION
    assert send(log, guard, 1) is ErrorCode.NONE


def test_other_epoch_than_that_of_the_open_transaction_is_verified(log: Log) -> None:
    send(log, start(log))
    guard = start(log, epoch=1)
    assert guard is not OPEN_TRANSACTION
    assert send(log, OPEN_TRANSACTION, epoch=1) is ErrorCode.INVALID_TXN_STATE
    assert start(log, 1) is OPEN_TRANSACTION
    assert send(log, OPEN_TRANSACTION, 1) is ErrorCode.NONE


@pytest.mark.parametrize("commit", [True, False])
def test_batch_verified_before_a_marker_opens_nothing(log: Log, commit: bool) -> None:
    guard = start(log)
    end_transaction(log, P, commit=commit)
    assert send(log, guard) is ErrorCode.INVALID_TXN_STATE
    assert log.producers.first_undecided_offset is None


def test_batch_of_a_transaction_that_just_ended_opens_nothing(log: Log) -> None:
    send(log, start(log))
    guard = start(log, 1)
    end_transaction(log, P, commit=True)
    assert send(log, guard, 1) is ErrorCode.INVALID_TXN_STATE


def test_late_verification_does_not_serve_the_next_transaction(log: Log) -> None:
    late = start(log)
    end_transaction(log, P, commit=False)
    current = start(log)
    assert send(log, late) is ErrorCode.INVALID_TXN_STATE
    assert send(log, current) is ErrorCode.NONE


def test_batches_in_flight_share_one_verification(log: Log) -> None:
    first, second = start(log, 0), start(log, 1)
    assert first is second
    assert [send(log, first, 0), send(log, second, 1)] == [ErrorCode.NONE] * 2


def test_batch_sent_again_while_another_waits_is_a_duplicate(log: Log) -> None:
    guard = start(log)
    assert send(log, guard) is ErrorCode.NONE
    assert log.append(part_of_transaction(P, 1), now_ms=NOW_MS, guard=guard).duplicate


def test_later_batch_waits_for_an_earlier_one(log: Log) -> None:
    start(log, 0)
    guard = start(log, 3)
    assert send(log, guard, 3) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, guard, 0) is ErrorCode.NONE


def test_new_epoch_forgets_the_numbers_of_the_last(log: Log) -> None:
    write_in_transaction(log, P, 5)
    end_transaction(log, P, commit=True)
    start(log, 5)
    assert send(log, start(log, 0, epoch=1), 0, epoch=1) is ErrorCode.NONE


def test_marker_copied_from_the_leader_ends_a_verification(log: Log) -> None:
    leader = open_log(MemoryFiles(), ONE_SEGMENT)
    end_transaction(leader, P, commit=True)
    read = leader.read(0, 1 << 20).slice
    assert read is not None
    guard = start(log)
    log.append_as_follower(replicated(read.read(), 0), now_ms=NOW_MS)
    assert send(log, guard) is ErrorCode.INVALID_TXN_STATE


def test_truncation_ends_a_verification(log: Log) -> None:
    write_in_transaction(log, P + 1, 2)
    guard = start(log)
    log.truncate_to(0)
    assert send(log, guard) is ErrorCode.INVALID_TXN_STATE


def test_batch_that_needs_no_verification_is_appended(log: Log) -> None:
    assert send(log, None) is ErrorCode.NONE


def test_verifications_are_bounded(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state_manager, "PRODUCERS_MOST", 2)
    first, second = start(log), start(log, producer=8)
    start(log, producer=9)
    assert start(log, producer=8) is second
    assert send(log, first) is ErrorCode.INVALID_TXN_STATE


def test_old_verifications_expire(log: Log) -> None:
    guard = start(log)
    log.remove_expired_producers(NOW_MS + log.config.producer_expiration_ms - 1)
    assert start(log) is guard
    log.remove_expired_producers(NOW_MS + log.config.producer_expiration_ms)
    assert start(log) is not guard
