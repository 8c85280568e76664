"""InitProducerId in each state of a transaction, and the producers that it fences."""

from __future__ import annotations

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import ProducerIdAndEpoch, TopicPartition
from minikafka.transactions.decisions import Answer, AppendTransition, NeedProducerId
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
LATE_ID = 900
"""A producer whose epochs are nearly exhausted."""
CONCURRENT, FENCED = Answer(ErrorCode.CONCURRENT_TRANSACTIONS), Answer(ErrorCode.PRODUCER_FENCED)


def given(producer_id: int, epoch: int) -> Answer:
    return Answer(ErrorCode.NONE, producer_id, epoch)


@pytest.fixture
def txn() -> CoordinatorHarness:
    return CoordinatorHarness()


def at_epoch(txn: CoordinatorHarness, epoch: int, state: int = 0) -> ProducerIdAndEpoch:
    """Let the log have a producer with a late epoch."""
    topics = (TransactionLogPartitions("t", (0,)),) if state else None
    value = TransactionLogValue(LATE_ID, epoch, TIMEOUT_MS, state, topics, txn.now_ms, txn.now_ms)
    txn.log.append((key_bytes("a"), value_bytes(value)))
    txn.move()
    return ProducerIdAndEpoch(LATE_ID, epoch)


# --- new ids ------------------------------------------------------------------------------------------------


def test_new_id_needs_a_producer_id(txn: CoordinatorHarness) -> None:
    assert txn.shard.init_producer_id("a", TIMEOUT_MS, None, 0) == NeedProducerId()
    assert len(txn.shard) == 0


def test_new_id_begins_with_epoch_0(txn: CoordinatorHarness) -> None:
    assert txn.init() == given(FIRST_PRODUCER_ID, 0)
    assert txn.states() == [TransactionState.EMPTY]


def test_producer_whose_id_expired_gets_a_new_one(txn: CoordinatorHarness) -> None:
    assert txn.init(ProducerIdAndEpoch(77, 5)) == given(FIRST_PRODUCER_ID, 0)


def test_empty_id_is_refused(txn: CoordinatorHarness) -> None:
    assert txn.init(name="") == Answer(ErrorCode.INVALID_REQUEST)


@pytest.mark.parametrize("timeout_ms", [-1, 0, 100_001])
def test_time_out_outside_the_limits_is_refused(timeout_ms: int) -> None:
    txn = CoordinatorHarness(TransactionSettings(max_timeout_ms=100_000))
    assert txn.init(timeout_ms=timeout_ms) == Answer(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    assert txn.init(timeout_ms=100_000).error is ErrorCode.NONE


def test_new_id_whose_append_failed_is_forgotten(txn: CoordinatorHarness) -> None:
    txn.error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert txn.init() == Answer(ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE)
    assert len(txn.shard) == 0


def test_new_id_is_not_shown_before_it_is_stored(txn: CoordinatorHarness) -> None:
    txn.decide_init()
    assert txn.shard.describe("a").error is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert txn.shard.list_transactions(0) == []


# --- the next epoch -----------------------------------------------------------------------------------------


def test_the_next_producer_gets_the_next_epoch(txn: CoordinatorHarness) -> None:
    txn.init()
    assert txn.init() == given(FIRST_PRODUCER_ID, 1)


def test_the_former_producer_is_fenced(txn: CoordinatorHarness) -> None:
    former = txn.producer()
    txn.producer()
    assert txn.add(former, T0) is ErrorCode.PRODUCER_FENCED
    assert txn.end(former) is ErrorCode.PRODUCER_FENCED
    assert txn.init(former) == FENCED


@pytest.mark.parametrize("commit", [True, False])
def test_a_completed_transaction_is_left_with_the_next_epoch(txn: CoordinatorHarness, commit: bool) -> None:
    producer = txn.producer()
    txn.add(producer, T0)
    txn.end(producer, commit=commit)
    txn.write_markers()
    assert txn.init() == given(FIRST_PRODUCER_ID, 1)
    assert txn.state() is TransactionState.EMPTY
    assert txn.shard.describe("a").start_ms == -1


def test_the_time_out_of_the_newest_request_counts(txn: CoordinatorHarness) -> None:
    txn.init()
    txn.init(timeout_ms=5)
    assert txn.shard.describe("a").timeout_ms == 5


def test_a_request_during_an_append_waits(txn: CoordinatorHarness) -> None:
    txn.init()
    txn.decide_init()
    assert txn.decide_init() == CONCURRENT


@pytest.mark.parametrize("commit", [True, False])
def test_a_request_while_markers_are_written_waits(txn: CoordinatorHarness, commit: bool) -> None:
    producer = txn.producer()
    txn.add(producer, T0)
    txn.end(producer, commit=commit)
    assert txn.init() == txn.init(producer) == CONCURRENT


# --- an open transaction ------------------------------------------------------------------------------------


def test_an_open_transaction_is_aborted_with_the_next_epoch(txn: CoordinatorHarness) -> None:
    txn.add(txn.producer(), T0, T1)
    assert txn.init() == CONCURRENT
    assert txn.state() is TransactionState.PREPARE_ABORT
    (markers,) = txn.markers
    assert (markers.producer_id, markers.producer_epoch) == (FIRST_PRODUCER_ID, 1)
    assert not markers.commit
    assert markers.partitions == {T0, T1}


def test_the_retry_after_the_abort_gets_a_further_epoch(txn: CoordinatorHarness) -> None:
    txn.add(txn.producer(), T0)
    txn.init()
    txn.write_markers()
    assert txn.init() == given(FIRST_PRODUCER_ID, 2)


def test_the_producer_of_an_aborted_transaction_is_fenced(txn: CoordinatorHarness) -> None:
    producer = txn.producer()
    txn.add(producer, T0)
    txn.init()
    assert txn.end(producer) is ErrorCode.PRODUCER_FENCED
    txn.write_markers()
    assert txn.end(producer) is ErrorCode.PRODUCER_FENCED
    assert txn.init(producer) == FENCED


def test_failed_fence_raises_the_epoch_once(txn: CoordinatorHarness) -> None:
    producer = txn.producer()
    txn.add(producer, T0)
    txn.error = ErrorCode.NOT_ENOUGH_REPLICAS
    for _ in range(3):
        assert txn.init() == Answer(ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE)
    assert txn.shard.describe("a").producer_epoch == 0
    txn.error = ErrorCode.NONE
    assert txn.init() == CONCURRENT
    assert txn.markers[0].producer_epoch == 1


# --- KIP-360: the producer sends its id and epoch -----------------------------------------------------------


def test_a_producer_raises_its_own_epoch(txn: CoordinatorHarness) -> None:
    assert txn.init(txn.producer()) == given(FIRST_PRODUCER_ID, 1)


def test_a_repeated_request_gets_the_same_epoch(txn: CoordinatorHarness) -> None:
    producer = txn.producer()
    txn.init(producer)
    assert txn.init(producer) == txn.init(producer) == given(FIRST_PRODUCER_ID, 1)


def test_a_repeated_request_of_a_fenced_producer_is_refused(txn: CoordinatorHarness) -> None:
    producer = txn.producer()
    txn.init(producer)
    txn.init()
    assert txn.init(producer) == FENCED


@pytest.mark.parametrize(
    "expected",
    [
        ProducerIdAndEpoch(FIRST_PRODUCER_ID, 7),
        ProducerIdAndEpoch(FIRST_PRODUCER_ID, -1),
        ProducerIdAndEpoch(FIRST_PRODUCER_ID + 1, 0),
        ProducerIdAndEpoch(-1, -1),
    ],
)
def test_another_id_or_epoch_is_fenced(txn: CoordinatorHarness, expected: ProducerIdAndEpoch) -> None:
    txn.init()
    assert txn.init(expected) == FENCED


def test_a_producer_aborts_its_own_open_transaction(txn: CoordinatorHarness) -> None:
    producer = txn.producer()
    txn.add(producer, T0)
    assert txn.init(producer) == CONCURRENT
    txn.write_markers()
    # As in Kafka: the epoch of the fence is nobody's.
    assert txn.init(producer) == FENCED


def test_a_former_epoch_does_not_end_the_newer_transaction(txn: CoordinatorHarness) -> None:
    former = txn.producer()
    producer = txn.producer()
    txn.add(producer, T0)
    assert txn.init(former) == FENCED
    assert txn.end(producer) is ErrorCode.NONE


def test_a_late_repeated_request_does_not_end_a_transaction(txn: CoordinatorHarness) -> None:
    former = txn.producer()
    answer = txn.init(former)
    producer = ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)
    txn.add(producer, T0)
    assert txn.init(former) == FENCED
    txn.end(producer)
    txn.write_markers()
    assert txn.init(former) == FENCED
    assert txn.end(producer) is ErrorCode.NONE


# --- exhausted epochs ---------------------------------------------------------------------------------------


def test_epoch_32766_is_the_last_of_a_client(txn: CoordinatorHarness) -> None:
    at_epoch(txn, 32_765)
    assert txn.init() == given(LATE_ID, 32_766)


def test_exhausted_epochs_need_a_producer_id(txn: CoordinatorHarness) -> None:
    producer = at_epoch(txn, 32_766)
    assert txn.shard.init_producer_id("a", TIMEOUT_MS, None, 0) == NeedProducerId()
    assert txn.shard.init_producer_id("a", TIMEOUT_MS, producer, 0) == NeedProducerId()


def test_exhausted_epochs_of_another_producer_are_kept(txn: CoordinatorHarness) -> None:
    at_epoch(txn, 32_766)
    assert txn.init(ProducerIdAndEpoch(LATE_ID, 32_765)) == FENCED


def test_exhausted_epochs_lead_to_a_new_producer_id(txn: CoordinatorHarness) -> None:
    former = at_epoch(txn, 32_766)
    assert txn.init() == given(FIRST_PRODUCER_ID, 0)
    assert txn.add(former, T0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert txn.init(former) == FENCED


def test_a_repeated_request_gets_the_same_new_producer_id(txn: CoordinatorHarness) -> None:
    former = at_epoch(txn, 32_766)
    for _ in range(3):
        assert txn.init(former) == given(FIRST_PRODUCER_ID, 0)
    txn.add(ProducerIdAndEpoch(FIRST_PRODUCER_ID, 0), T0)
    assert txn.init(former) == FENCED


def test_a_repeated_request_for_the_last_epoch_gets_it(txn: CoordinatorHarness) -> None:
    former = at_epoch(txn, 32_765)
    for _ in range(2):
        assert txn.init(former) == given(LATE_ID, 32_766)


def test_the_last_epoch_of_a_client_can_be_fenced(txn: CoordinatorHarness) -> None:
    at_epoch(txn, 32_766, state=TransactionState.ONGOING.value)
    assert txn.init() == CONCURRENT
    assert txn.markers[0].producer_epoch == 32_767
    txn.write_markers()
    assert txn.init() == given(FIRST_PRODUCER_ID, 0)


def test_an_epoch_that_cannot_be_fenced_is_aborted(txn: CoordinatorHarness) -> None:
    # No coordinator gives this epoch to a client; the log of another one may have it.
    at_epoch(txn, 32_767, state=TransactionState.ONGOING.value)
    assert txn.init() == CONCURRENT
    assert txn.markers[0].producer_epoch == 32_767


def test_a_new_producer_id_that_is_not_needed_is_ignored(txn: CoordinatorHarness) -> None:
    txn.init()
    decision = txn.shard.init_producer_id("a", TIMEOUT_MS, None, 0, 5_555)
    assert isinstance(decision, AppendTransition)
    assert decision.answer == given(FIRST_PRODUCER_ID, 1)
