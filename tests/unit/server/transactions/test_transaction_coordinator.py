"""The transaction coordinator of simulated brokers: its log, loads, timers, and the markers that it sends."""

from __future__ import annotations

import logging

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import ProducerIdAndEpoch
from minikafka.server.transactions import transaction_coordinator
from tests.support import requests
from tests.support.coordinated_transactions import ID, T0, T1, CoordinatedTransactions

E = ErrorCode


@pytest.fixture
def txn() -> CoordinatedTransactions:
    return CoordinatedTransactions()


def test_a_transaction_is_committed(txn: CoordinatedTransactions) -> None:
    producer = txn.init()
    assert (producer.epoch, txn.state) == (0, "Empty")
    assert txn.add(producer, T0, T1) is E.NONE
    assert (txn.state, txn.describe().partitions) == ("Ongoing", (T0, T1))
    assert txn.end(producer, commit=True) is E.NONE
    (markers,) = txn.sent
    assert (markers.commit, markers.partitions) == (True, {T0, T1})
    assert markers.coordinator_epoch == txn.partition.leadership.leader_epoch  # type: ignore[union-attr]
    assert txn.state == "PrepareCommit"
    txn.write_markers()
    assert txn.state == "CompleteCommit"
    assert txn.end(producer, commit=True) is E.NONE
    assert txn.end(producer, commit=False) is E.INVALID_TXN_STATE


def test_next_producer_aborts_the_open_transaction(txn: CoordinatedTransactions) -> None:
    former = txn.init()
    txn.add(former)
    assert txn.try_init().error is E.CONCURRENT_TRANSACTIONS
    assert txn.try_init().error is E.CONCURRENT_TRANSACTIONS
    (markers,) = txn.sent
    assert (markers.commit, markers.producer_epoch) == (False, former.epoch + 1)
    txn.write_markers()
    assert txn.init() == ProducerIdAndEpoch(former.producer_id, former.epoch + 2)
    assert txn.add(former) is E.PRODUCER_FENCED


def test_verification_tells_the_partitions_of_the_transaction(txn: CoordinatedTransactions) -> None:
    producer = txn.init()
    txn.add(producer, T0)
    assert txn.coordinator.verify_partitions(ID, producer, [T0, T1]) == {
        T0: E.NONE,
        T1: E.TRANSACTION_ABORTABLE,
    }


def test_broker_that_does_not_lead_refuses_everything() -> None:
    txn = CoordinatedTransactions(brokers=2, transaction_state_log_replication_factor="1")
    other = next(one for one in txn.coordinators if one is not txn.coordinator)
    nobody = ProducerIdAndEpoch(1, 0)
    assert other.verify_partitions(ID, nobody, [T0]) == {T0: E.NOT_COORDINATOR_FOR_GROUP}
    assert other.describe(ID).error is E.NOT_COORDINATOR_FOR_GROUP
    assert other.transactions() == (E.NONE, [])


def test_topic_has_the_settings_of_its_broker(txn: CoordinatedTransactions) -> None:
    config = txn.partition.log.config
    assert (config.compacted, config.min_insync_replicas, config.unclean_election) == (True, 1, False)


# --- loading ------------------------------------------------------------------------------------------------


def test_transactions_are_loaded_and_their_ends_go_on(txn: CoordinatedTransactions) -> None:
    producer = txn.init()
    txn.add(producer, T0)
    txn.restart()
    assert (txn.state, txn.sent) == ("Ongoing", [])
    txn.end(producer)
    txn.restart()
    assert txn.state == "PrepareCommit"
    assert [markers.partitions for markers in txn.sent] == [{T0}]
    txn.write_markers()
    txn.restart()
    assert (txn.state, txn.sent) == ("CompleteCommit", [])


def test_requests_wait_for_the_load(txn: CoordinatedTransactions) -> None:
    producer = txn.init()
    txn.world.loading_is_held = True
    txn.restart()
    assert txn.add(producer) is E.GROUP_LOAD_IN_PROGRESS
    assert txn.coordinator.transactions() == (E.GROUP_LOAD_IN_PROGRESS, [])
    txn.world.loading_is_held = False
    txn.world.settle()
    assert txn.add(producer) is E.NONE


def test_partition_deleted_during_the_load_needs_no_marker(txn: CoordinatedTransactions) -> None:
    producer = txn.init()
    txn.add(producer, T0)
    txn.end(producer)
    txn.world.loading_is_held = True
    txn.restart()
    coordinator = txn.coordinator
    coordinator.broker.run(lambda: coordinator.partitions_deleted([T0]))
    txn.world.loading_is_held = False
    txn.world.settle()
    assert (txn.state, txn.sent) == ("CompleteCommit", [])


def test_unloading_drops_the_markers() -> None:
    txn = CoordinatedTransactions()
    producer = txn.init()
    txn.add(producer, T0)
    txn.end(producer)
    coordinator, held = txn.coordinator, txn.markers[txn.coordinator]
    assert len(held.sent) == 1
    coordinator.stop()
    assert held.sent == []
    assert coordinator.describe(ID).error is E.GROUP_COORDINATOR_NOT_AVAILABLE


# --- replication --------------------------------------------------------------------------------------------


@pytest.fixture
def two() -> CoordinatedTransactions:
    return CoordinatedTransactions(brokers=2)


def hold_follower(txn: CoordinatedTransactions, *, held: bool) -> None:
    txn.world.machine_of(1 - txn.coordinator.broker.broker_id).held = held


def test_change_counts_once_every_replica_has_it(two: CoordinatedTransactions) -> None:
    producer = two.init()
    hold_follower(two, held=True)
    assert two.add(producer) is None
    assert (two.state, two.add(producer)) == ("Empty", E.CONCURRENT_TRANSACTIONS)
    hold_follower(two, held=False)
    two.world.pass_time(2_000)
    assert two.state == "Ongoing"


def test_change_that_cannot_be_replicated_is_undone(two: CoordinatedTransactions) -> None:
    producer = two.init()
    hold_follower(two, held=True)
    assert two.add(producer) is None
    two.world.pass_time(6_000)
    assert two.state == "Empty"
    hold_follower(two, held=False)
    two.world.pass_time(2_000)
    assert two.add(producer) is None
    two.world.pass_time(2_000)
    assert two.state == "Ongoing"


def test_end_that_cannot_be_stored_is_stored_later(two: CoordinatedTransactions) -> None:
    producer = two.init()
    two.add(producer)
    two.world.settle()
    two.end(producer)
    two.world.settle()
    hold_follower(two, held=True)
    two.write_markers()
    two.world.pass_time(6_000)
    assert two.state == "PrepareCommit"
    hold_follower(two, held=False)
    two.world.pass_time(5_000)
    assert two.state == "CompleteCommit"


def test_end_that_cannot_be_stored_takes_few_lines_of_the_log(
    two: CoordinatedTransactions, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    producer = two.init()
    two.add(producer)
    two.world.settle()
    two.end(producer)
    two.world.settle()
    hold_follower(two, held=True)
    two.world.pass_time(61_000)
    two.write_markers()
    two.world.pass_time(24_000)  # it is tried twice a second
    lines = [line for line in caplog.messages if "append" in line or "CompleteCommit" in line]
    text = "failed to store CompleteCommit of transactional id x: NOT_ENOUGH_REPLICAS, retrying"
    assert lines == [text, *[f"{text}; 19 more since the last message"] * 2]


# --- timers -------------------------------------------------------------------------------------------------


def test_transaction_that_is_open_too_long_is_aborted(txn: CoordinatedTransactions) -> None:
    producer = txn.init(timeout_ms=15_000)
    txn.add(producer)
    txn.world.pass_time(14_000)
    assert txn.state == "Ongoing"
    txn.world.pass_time(20_000)
    assert (txn.state, txn.describe().producer_epoch) == ("PrepareAbort", producer.epoch + 1)
    assert txn.end(producer) is E.PRODUCER_FENCED


def test_unused_id_expires() -> None:
    txn = CoordinatedTransactions(
        transactional_id_expiration_ms="60000",
        transaction_remove_expired_transaction_cleanup_interval_ms="10000",
    )
    producer = txn.init()
    txn.world.pass_time(50_000)
    assert txn.state == "Empty"
    txn.world.pass_time(30_000)
    assert txn.state == "TRANSACTIONAL_ID_NOT_FOUND"
    assert txn.add(producer) is E.INVALID_PRODUCER_ID_MAPPING
    txn.restart()
    assert txn.state == "TRANSACTIONAL_ID_NOT_FOUND"


def test_expiration_goes_on_later_if_replicas_are_missing() -> None:
    """The housekeeper would repeat it without a pause, as long as the pass is not finished."""
    txn = CoordinatedTransactions(
        brokers=2,
        transactional_id_expiration_ms="60000",
        transaction_remove_expired_transaction_cleanup_interval_ms="3600000",
    )
    txn.init()
    hold_follower(txn, held=True)
    txn.world.pass_time(61_000)
    assert txn.partition.leadership is not None
    assert len(txn.partition.leadership.isr) == 1
    assert not txn.coordinator.expire_ids()
    assert txn.state == "Empty"


def test_aborts_go_on_later_if_replicas_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_coordinator, "_ABORTS_PER_STEP", 1)
    txn = CoordinatedTransactions(
        brokers=2, transaction_abort_timed_out_transaction_cleanup_interval_ms="3600000"
    )
    producer = txn.init(timeout_ms=10_000)
    txn.add(producer)
    txn.world.settle()
    hold_follower(txn, held=True)
    txn.world.pass_time(61_000)
    assert not txn.coordinator.abort_timed_out()
    assert txn.state == "Ongoing"
    hold_follower(txn, held=False)
    txn.world.pass_time(2_000)
    assert txn.coordinator.abort_timed_out()
    txn.world.settle()
    assert txn.state == "PrepareAbort"


# --- deleted topics -----------------------------------------------------------------------------------------


def test_deleted_topic_leaves_the_transaction(txn: CoordinatedTransactions) -> None:
    txn.world.create_topic("t", partitions=1)
    producer = txn.init()
    txn.add(producer, T0)
    txn.end(producer)
    txn.world.call(requests.delete_topics("t", timeout_ms=5_000))
    txn.world.settle()
    assert txn.state == "CompleteCommit"


def test_no_marker_is_sent_to_a_deleted_topic(txn: CoordinatedTransactions) -> None:
    """A topic that is created again with the same name must not get it."""
    coordinator = txn.coordinators[-1]
    coordinator.broker.run(lambda: coordinator.partitions_deleted([T0]))
    assert txn.markers[coordinator].deleted == [T0]
