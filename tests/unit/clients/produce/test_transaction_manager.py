"""``clients/produce/transaction_manager``: states, requests, and what follows from each outcome."""

from __future__ import annotations

import pytest

from minikafka.base.errors import (
    AuthenticationFailed,
    BrokerError,
    ErrorCode,
    MinikafkaError,
    NetworkError,
    ProducerFenced,
    TransactionAbortable,
)
from minikafka.base.ids import ProducerIdAndEpoch
from minikafka.clients.produce.transaction_manager import TransactionState
from minikafka.clients.produce.transaction_requests import (
    AddOffsets,
    AddPartitions,
    CommitOffsets,
    EndTransaction,
    FindCoordinator,
    InitProducerId,
)
from minikafka.wire.apis.find_coordinator import CoordinatorType
from tests.support.transactional_producers import GROUP, LOST, OFFSETS, A, B, Transactions, refused

State = TransactionState


@pytest.fixture
def txn() -> Transactions:
    return Transactions()


def test_a_producer_finds_its_coordinator_then_gets_an_id(txn: Transactions) -> None:
    result = txn.manager.initialize()
    found = txn.serve(FindCoordinator)
    assert found == FindCoordinator(CoordinatorType.TRANSACTION, "x")
    assert txn.serve(InitProducerId).producer == (-1, -1)
    assert result.done
    assert result.error is None
    assert txn.manager.state is State.READY
    assert txn.manager.producer == (9, 0)


def test_a_transaction_before_the_initialization_is_refused(txn: Transactions) -> None:
    with pytest.raises(ValueError, match=r"call init_transactions\(\) first"):
        txn.manager.begin()


def test_records_outside_of_a_transaction_are_refused(txn: Transactions) -> None:
    txn.begin()
    txn.manager.check_open()
    txn.manager.acknowledge(txn.manager.commit())
    txn.next_task()
    with pytest.raises(ValueError, match=r"no transaction is open; call begin\(\) first"):
        txn.manager.check_open()


def test_a_batch_waits_until_its_partition_is_added(txn: Transactions) -> None:
    txn.begin()
    assert not txn.manager.is_ready(txn.batch())
    txn.manager.add_partitions([A, B, A])
    task, operation = txn.take(AddPartitions)
    assert operation.partitions == (A, B)
    assert not txn.manager.is_ready(txn.batch())
    txn.end(task)
    assert txn.manager.is_ready(txn.batch())


def test_a_partition_is_added_once_in_each_transaction(txn: Transactions) -> None:
    txn.begin(A)
    txn.manager.add_partitions([A])
    assert txn.next_task() is None
    txn.manager.acknowledge(txn.manager.commit())
    txn.serve(EndTransaction)
    txn.manager.begin()
    txn.manager.add_partitions([A])
    assert txn.serve(AddPartitions).partitions == (A,)


def test_batches_carry_the_id_and_are_transactional(txn: Transactions) -> None:
    txn.begin(A)
    assert txn.sent(count=3).producer_sequence == (9, 0, 0, True)
    assert txn.sent().producer_sequence == (9, 0, 3, True)


def test_numbers_continue_in_the_next_transaction_of_an_epoch(txn: Transactions) -> None:
    txn.begin(A)
    txn.sent(count=3)
    txn.manager.acknowledge(txn.manager.commit())
    txn.serve(EndTransaction)
    txn.begin(A)
    assert txn.sent().producer_sequence == (9, 0, 3, True)


def test_one_request_is_in_flight_at_a_time(txn: Transactions) -> None:
    txn.begin()
    txn.manager.add_partitions([A])
    task, _ = txn.take(AddPartitions)
    txn.manager.add_partitions([B])
    assert txn.next_task() is None
    txn.end(task)
    assert txn.serve(AddPartitions).partitions == (B,)


def test_a_commit_waits_for_the_last_batch(txn: Transactions) -> None:
    txn.begin(A)
    txn.has_batches = True
    result = txn.manager.commit()
    assert txn.next_task() is None
    txn.has_batches = False
    assert txn.serve(EndTransaction).committed
    assert result.done
    assert txn.manager.state is State.READY


def test_partitions_of_queued_batches_are_added_during_a_commit(txn: Transactions) -> None:
    txn.begin()
    txn.has_batches = True
    txn.manager.commit()
    txn.manager.add_partitions([A])
    txn.serve(AddPartitions)
    assert txn.manager.is_ready(txn.batch())


def test_an_empty_transaction_ends_without_a_request(txn: Transactions) -> None:
    txn.begin()
    result = txn.manager.commit()
    assert txn.next_task() is None
    assert result.done
    assert txn.manager.state is State.READY


@pytest.mark.parametrize("began", [True, False])
def test_an_abort_after_an_unsure_addition_gets_a_new_epoch(txn: Transactions, began: bool) -> None:
    """InitProducerId alone would abort what is open, and fence its own repetition."""
    txn.begin()
    txn.manager.add_partitions([A])
    txn.serve(AddPartitions, LOST)
    result = txn.manager.abort()
    outcome = () if began else (refused(ErrorCode.INVALID_TXN_STATE),)
    assert not txn.serve(EndTransaction, *outcome).committed
    assert result.done
    assert result.error is None
    assert txn.serve(InitProducerId).producer == (9, 0)
    assert txn.manager.state is State.READY


def test_an_abort_that_the_coordinator_refuses_is_final(txn: Transactions) -> None:
    txn.begin(A)
    txn.manager.abort()
    txn.serve(EndTransaction, refused(ErrorCode.INVALID_TXN_STATE))
    assert txn.manager.state is State.FATAL_ERROR


@pytest.mark.parametrize("first", [20, 40])
def test_concurrent_transactions_are_retried_after_20_ms(txn: Transactions, first: int) -> None:
    txn.begin()
    txn.manager.add_partitions([A])
    for _ in range(first // 20):
        txn.serve(AddPartitions, {A: ErrorCode.CONCURRENT_TRANSACTIONS})
    assert txn.manager.next_id_request_ms(txn.now_ms) == first
    assert txn.serve(AddPartitions).partitions == (A,)
    assert txn.manager.state is State.IN_TRANSACTION


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_COORDINATOR_FOR_GROUP, ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE]
)
def test_a_coordinator_that_has_moved_is_found_again(txn: Transactions, code: ErrorCode) -> None:
    txn.begin()
    txn.manager.add_partitions([A])
    txn.serve(AddPartitions, {A: code})
    txn.now_ms += 1_000
    task = txn.next_task()
    assert task is not None
    assert isinstance(task.operation, FindCoordinator)


def test_a_coordinator_that_loads_is_asked_again(txn: Transactions) -> None:
    txn.manager.initialize()
    txn.serve(InitProducerId, refused(ErrorCode.GROUP_LOAD_IN_PROGRESS))
    assert txn.next_task() is None
    txn.now_ms += 1_000
    task = txn.next_task()
    assert task is not None
    assert isinstance(task.operation, InitProducerId)


@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_a_fenced_producer_has_failed_for_good(txn: Transactions, code: ErrorCode) -> None:
    txn.begin(A)
    result = txn.manager.commit()
    txn.serve(EndTransaction, refused(code))
    assert txn.manager.state is State.FATAL_ERROR
    assert isinstance(result.error, ProducerFenced)
    assert "another producer with this transactional.id was started" in str(result.error)
    for call in (txn.manager.begin, txn.manager.abort, txn.manager.check_open):
        with pytest.raises(ProducerFenced):
            call()


def test_a_batch_of_a_fenced_producer_ends_it(txn: Transactions) -> None:
    txn.begin(A)
    txn.manager.handle_failed_batch(txn.sent(), refused(ErrorCode.INVALID_PRODUCER_EPOCH))
    assert txn.manager.state is State.FATAL_ERROR


def test_the_error_of_a_transaction_that_took_too_long_says_so(txn: Transactions) -> None:
    txn.begin(A)
    txn.now_ms += 70_000
    result = txn.manager.commit()
    txn.serve(EndTransaction, refused(ErrorCode.PRODUCER_FENCED))
    assert "open for 70000 ms" in str(result.error)
    assert "transaction.timeout.ms=60000" in str(result.error)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ],
)
def test_a_refused_initialization_is_final(txn: Transactions, code: ErrorCode) -> None:
    result = txn.manager.initialize()
    txn.serve(InitProducerId, refused(code))
    assert isinstance(result.error, BrokerError)
    assert result.error.code is code
    assert txn.manager.state is State.FATAL_ERROR


def test_a_refused_login_is_final(txn: Transactions) -> None:
    result = txn.manager.initialize()
    task = txn.next_task()
    assert task is not None
    txn.end(task, AuthenticationFailed("wrong password"))
    assert isinstance(result.error, AuthenticationFailed)


def test_a_failed_batch_makes_the_commit_raise(txn: Transactions) -> None:
    txn.begin(A)
    failed = txn.sent()
    txn.has_batches = True
    result = txn.manager.commit()
    txn.manager.handle_failed_batch(failed, refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
    assert isinstance(result.error, TransactionAbortable)
    assert result.error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    txn.has_batches = False
    assert txn.next_task() is None


def test_calls_after_a_failed_batch_say_to_abort(txn: Transactions) -> None:
    txn.begin(A)
    txn.manager.handle_failed_batch(txn.sent(), refused(ErrorCode.TRANSACTION_ABORTABLE))
    for call in (txn.manager.commit, txn.manager.check_open):
        with pytest.raises(TransactionAbortable, match="abort it"):
            call()


def test_an_abort_after_a_failed_batch_gets_a_new_epoch(txn: Transactions) -> None:
    txn.begin(A)
    txn.sent()
    txn.manager.handle_failed_batch(txn.sent(), refused(ErrorCode.UNKNOWN_PRODUCER_ID))
    result = txn.manager.abort()
    assert not txn.serve(EndTransaction).committed
    assert result.done
    assert txn.serve(InitProducerId).producer == (9, 0)
    txn.begin(A)
    assert txn.sent().producer_sequence == (9, 1, 0, True)


def test_a_batch_that_was_never_sent_needs_no_new_epoch(txn: Transactions) -> None:
    txn.begin(A)
    txn.manager.handle_failed_batch(txn.batch(), NetworkError("expired"))
    txn.manager.abort()
    txn.serve(EndTransaction)
    assert txn.manager.state is State.READY


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC])
def test_a_refused_partition_fails_the_transaction(txn: Transactions, code: ErrorCode) -> None:
    txn.begin()
    txn.manager.add_partitions([A, B])
    txn.serve(AddPartitions, {A: ErrorCode.OPERATION_NOT_ATTEMPTED, B: code})
    assert txn.manager.state is State.ABORTABLE_ERROR
    assert str(B) in str(txn.manager.drop_error())


def test_a_refusal_counts_before_a_code_that_passes(txn: Transactions) -> None:
    txn.begin()
    txn.manager.add_partitions([A, B])
    codes = {A: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, B: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    txn.serve(AddPartitions, codes)
    assert txn.manager.state is State.ABORTABLE_ERROR


def test_a_response_without_a_partition_is_asked_for_again(txn: Transactions) -> None:
    txn.begin()
    txn.manager.add_partitions([A, B])
    txn.serve(AddPartitions, {A: ErrorCode.NONE})
    assert txn.serve(AddPartitions).partitions == (A, B)


def test_an_id_that_the_coordinator_has_forgotten_is_replaced(txn: Transactions) -> None:
    txn.begin()
    txn.manager.add_partitions([A])
    txn.serve(AddPartitions, {A: ErrorCode.INVALID_PRODUCER_ID_MAPPING})
    result = txn.manager.abort()
    assert txn.serve(InitProducerId).producer == (9, 0)
    assert result.done


def test_an_abort_with_a_forgotten_id_has_nothing_to_abort(txn: Transactions) -> None:
    txn.begin(A)
    result = txn.manager.abort()
    txn.serve(EndTransaction, refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING))
    assert result.done
    assert result.error is None
    assert txn.manager.state is State.INITIALIZING


def test_a_lost_end_is_repeated_and_then_the_epoch_changes(txn: Transactions) -> None:
    txn.begin(A)
    result = txn.manager.commit()
    txn.serve(EndTransaction, LOST)
    assert not result.done
    assert txn.serve(EndTransaction).committed
    assert result.done
    assert txn.manager.state is State.INITIALIZING
    assert txn.serve(InitProducerId).producer == (9, 0)
    assert txn.manager.producer == (9, 1)


def test_a_lost_addition_changes_the_epoch_after_the_end(txn: Transactions) -> None:
    txn.begin()
    txn.manager.add_partitions([A])
    txn.serve(AddPartitions, LOST)
    txn.serve(AddPartitions)
    txn.manager.commit()
    txn.serve(EndTransaction)
    assert txn.manager.state is State.INITIALIZING


def test_a_commit_that_timed_out_changes_the_epoch(txn: Transactions) -> None:
    txn.begin(A)
    result = txn.manager.commit()
    task, _ = txn.take(EndTransaction)
    txn.manager.time_out(result)
    txn.end(task)
    assert txn.manager.state is State.INITIALIZING


def test_a_commit_that_timed_out_may_be_called_again(txn: Transactions) -> None:
    txn.begin(A)
    result = txn.manager.commit()
    txn.manager.time_out(result)
    assert txn.manager.commit() is result
    txn.serve(EndTransaction)
    assert txn.manager.commit() is result
    txn.manager.acknowledge(result)
    assert txn.manager.ready() is not result


def test_an_abort_after_a_commit_that_timed_out_is_refused(txn: Transactions) -> None:
    txn.begin(A)
    txn.manager.time_out(txn.manager.commit())
    for call in (txn.manager.abort, txn.manager.ready):
        with pytest.raises(ValueError, match=r"call commit\(\) again"):
            call()


def test_a_fence_after_a_lost_commit_leaves_its_outcome_unknown(txn: Transactions) -> None:
    txn.begin(A)
    result = txn.manager.commit()
    txn.serve(EndTransaction, LOST)
    txn.serve(EndTransaction, refused(ErrorCode.PRODUCER_FENCED))
    assert "the outcome of the transaction is unknown" in str(result.error)


def test_offsets_are_added_then_committed_at_the_group(txn: Transactions) -> None:
    txn.begin()
    result = txn.manager.send_offsets(OFFSETS, GROUP)
    assert txn.serve(AddOffsets).group_id == "g"
    found = txn.serve(FindCoordinator)
    assert found == FindCoordinator(CoordinatorType.GROUP, "g")
    assert not result.done
    assert txn.serve(CommitOffsets).offsets == OFFSETS
    assert result.done
    txn.manager.commit()
    assert txn.serve(EndTransaction).committed


def test_a_commit_waits_for_offsets(txn: Transactions) -> None:
    txn.begin()
    txn.manager.send_offsets(OFFSETS, GROUP)
    txn.manager.commit()
    txn.serve(AddOffsets)
    txn.serve(CommitOffsets)
    txn.serve(EndTransaction)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ],
)
def test_offsets_that_the_group_refuses_fail_the_transaction(txn: Transactions, code: ErrorCode) -> None:
    txn.begin()
    result = txn.manager.send_offsets(OFFSETS, GROUP)
    txn.serve(AddOffsets)
    txn.serve(CommitOffsets, {A: code})
    assert isinstance(result.error, TransactionAbortable)
    assert result.error.code is code
    txn.manager.abort()
    txn.serve(EndTransaction)
    assert txn.manager.state is State.READY


def test_offsets_of_a_moved_group_are_sent_to_its_new_coordinator(txn: Transactions) -> None:
    txn.begin()
    txn.manager.send_offsets(OFFSETS, GROUP)
    txn.serve(AddOffsets)
    txn.serve(CommitOffsets, {A: ErrorCode.NOT_COORDINATOR_FOR_GROUP})
    assert txn.serve(FindCoordinator).type is CoordinatorType.GROUP
    txn.serve(CommitOffsets)
    assert txn.manager.state is State.IN_TRANSACTION


def test_an_abort_drops_offsets_that_were_not_sent(txn: Transactions) -> None:
    txn.begin()
    result = txn.manager.send_offsets(OFFSETS, GROUP)
    aborted = txn.manager.abort()
    assert result.error is not None
    assert txn.next_task() is None
    assert aborted.done


def test_an_abort_waits_for_the_request_in_flight(txn: Transactions) -> None:
    txn.begin()
    txn.manager.add_partitions([A])
    task, _ = txn.take(AddPartitions)
    result = txn.manager.abort()
    assert txn.next_task() is None
    txn.end(task)
    assert not txn.serve(EndTransaction).committed
    assert result.done


def test_a_retried_batch_is_sent_during_an_abort(txn: Transactions) -> None:
    txn.begin(A)
    sent, unsent = txn.sent(), txn.batch()
    txn.manager.abort()
    assert txn.manager.is_ready(sent)
    assert not txn.manager.is_ready(unsent)
    assert txn.manager.drops_batches


def test_a_commit_in_a_wrong_state_of_the_coordinator_is_final(txn: Transactions) -> None:
    txn.begin(A)
    txn.manager.commit()
    txn.serve(EndTransaction, refused(ErrorCode.INVALID_TXN_STATE))
    assert txn.manager.state is State.FATAL_ERROR


def test_a_coordinator_may_ask_for_an_abort_at_the_commit(txn: Transactions) -> None:
    txn.begin(A)
    result = txn.manager.commit()
    txn.serve(EndTransaction, refused(ErrorCode.TRANSACTION_ABORTABLE))
    assert isinstance(result.error, TransactionAbortable)
    txn.manager.abort()
    assert not txn.serve(EndTransaction).committed


def test_an_unexpected_error_is_final(txn: Transactions) -> None:
    result = txn.manager.initialize()
    txn.serve(InitProducerId, MinikafkaError("unexpected"))
    assert result.error is not None
    assert txn.manager.state is State.FATAL_ERROR


def test_an_interrupted_request_is_repeated(txn: Transactions) -> None:
    interrupted = MinikafkaError("unexpected")
    interrupted.__cause__ = KeyboardInterrupt()
    txn.begin(A)
    result = txn.manager.commit()
    txn.serve(EndTransaction, interrupted)
    txn.serve(EndTransaction)
    assert result.done
    assert txn.manager.state is State.INITIALIZING


def test_an_exhausted_epoch_continues_with_another_id(txn: Transactions) -> None:
    txn.begin(A)
    txn.sent()
    txn.manager.time_out(txn.manager.commit())
    txn.serve(EndTransaction)
    txn.serve(InitProducerId, ProducerIdAndEpoch(10, 0))
    txn.manager.acknowledge(txn.manager.commit())
    txn.begin(A)
    assert txn.sent().producer_sequence == (10, 0, 0, True)
