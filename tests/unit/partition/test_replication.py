"""The leader of several replicas: committed messages, the ISR, and its updates."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.partition.partition import Partition
from minikafka.partition.replica import LeaderAndIsr
from tests.support.replicas import ALL, leadership, leading, messages, taken, write

LAG_MS = 10_000


def refused(action: object, *arguments: object, **options: object) -> ErrorCode:
    assert callable(action)
    with pytest.raises(BrokerError) as caught:
        action(*arguments, **options)
    return caught.value.code


def shrunk(partition: Partition, now_ms: int = LAG_MS + 1) -> LeaderAndIsr:
    """Return the ISR that the leader proposes."""
    wanted = partition.shrink_isr(now_ms, LAG_MS)
    assert wanted is not None
    return wanted


# --- the high watermark -------------------------------------------------------------------------------------


@pytest.fixture
def leader() -> Partition:
    """Replica 1, which leads; all are in sync."""
    return leading()


def test_message_is_committed_once_all_in_sync_fetch_behind_it(leader: Partition) -> None:
    last = write(leader, 3)
    assert not leader.update_follower_fetch_state(2, 3, 0).high_watermark_advanced
    assert not leader.is_committed(last, 0)
    assert leader.update_follower_fetch_state(3, 3, 0).high_watermark_advanced
    assert (leader.high_watermark, leader.is_committed(last, 0)) == (3, True)


def test_hw_of_a_new_leader_lags_until_the_log_end_at_its_election(leader: Partition) -> None:
    write(leader, 3)
    leader.apply_leadership(leadership(2, epoch=1))
    leader.apply_leadership(leadership(1, epoch=2))
    assert leader.is_high_watermark_behind
    write(leader)
    for follower in (2, 3):
        leader.update_follower_fetch_state(follower, 3, 0)
    assert not leader.is_high_watermark_behind


def test_the_slowest_in_sync_decides(leader: Partition) -> None:
    write(leader, 5)
    leader.update_follower_fetch_state(2, 5, 0)
    leader.update_follower_fetch_state(3, 2, 0)
    assert leader.high_watermark == 2


def test_follower_outside_the_isr_does_not_hold_up_commits() -> None:
    leader = leading((1, 2), messages=5)
    leader.update_follower_fetch_state(2, 5, 0)
    assert leader.high_watermark == 5


def test_in_sync_follower_that_never_fetched_holds_up_commits() -> None:
    leader = leading((1, 2), messages=5)
    leader.update_follower_fetch_state(3, 5, 0)
    assert leader.high_watermark == 0


def test_the_high_watermark_never_goes_back_when_a_follower_does() -> None:
    leader = leading((1, 2), messages=5)
    leader.update_follower_fetch_state(2, 5, 0)
    leader.update_follower_fetch_state(2, 1, 0)
    write(leader, 1)
    assert leader.high_watermark == 5


def test_the_leaders_own_share_waits_for_its_flush() -> None:
    leader = leading((1, 2), flush_messages=1, messages=2)
    assert not leader.update_follower_fetch_state(2, 2, 0).high_watermark_advanced
    assert leader.complete_flush(leader.log.flush())
    assert leader.high_watermark == 2


def test_consumers_see_what_is_committed_and_followers_all() -> None:
    leader = leading((1, 2), messages=2)
    assert leader.read(0, 1000, at_least_one=True).slice is None
    assert taken(leader, 0).next_offset == 2


def test_fetch_beyond_the_leaders_log_changes_neither_hw_nor_isr() -> None:
    leader = leading((1, 2), messages=2)
    beyond = leader.update_follower_fetch_state(3, 7, 0)
    assert (beyond.high_watermark_advanced, beyond.proposed_isr) == (False, None)
    leader.update_follower_fetch_state(2, 2, 0)
    leader.update_follower_fetch_state(2, 7, 0)
    write(leader, 3)
    assert leader.high_watermark == 2


# --- min.insync.replicas ------------------------------------------------------------------------------------


def test_with_too_few_in_sync_acks_all_is_refused_and_the_rest_is_not() -> None:
    leader = leading((1,), min_in_sync=2)
    assert refused(leader.append, messages(b"a"), all_in_sync=True) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert leader.log.end_offset == 0
    assert write(leader) == 0


def test_produce_waiting_while_the_isr_shrinks_fails_after_append() -> None:
    leader = leading((1, 2), min_in_sync=2)
    last = write(leader, all_in_sync=True)
    leader.complete_isr_update(wanted := shrunk(leader), wanted)
    assert refused(leader.is_committed, last, 0) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_replica_about_to_join_does_not_count_for_min_insync() -> None:
    leader = leading((1,), min_in_sync=2)
    assert leader.update_follower_fetch_state(2, 0, 0).proposed_isr is not None
    assert refused(leader.append, messages(b"a"), all_in_sync=True) is ErrorCode.NOT_ENOUGH_REPLICAS


# --- leaving the ISR ----------------------------------------------------------------------------------------


def test_stalled_follower_leaves_the_isr_and_others_stay(leader: Partition) -> None:
    write(leader)
    leader.update_follower_fetch_state(2, 1, LAG_MS)
    assert leader.shrink_isr(LAG_MS, LAG_MS) is None
    wanted = shrunk(leader)
    assert (wanted.isr, wanted.version, wanted.leader_epoch) == ((1, 2), 1, 0)


def test_slow_follower_leaves_the_isr_despite_its_fetches() -> None:
    leader = leading((1, 2))
    for now_ms in range(0, LAG_MS + 1, 100):
        write(leader, 3)
        leader.update_follower_fetch_state(2, now_ms // 100, now_ms)
    write(leader)
    assert shrunk(leader).isr == (1,)


def test_new_leader_gives_only_in_sync_followers_the_full_lag_time() -> None:
    leader = leading((1, 2), now_ms=500)
    assert leader.shrink_isr(500 + LAG_MS, LAG_MS) is None
    assert shrunk(leader, 501 + LAG_MS).isr == (1,)


def test_as_long_as_a_smaller_isr_is_not_written_the_old_one_counts(leader: Partition) -> None:
    write(leader, 2)
    leader.update_follower_fetch_state(2, 2, 1)
    wanted = shrunk(leader)
    assert leader.high_watermark == 0
    leader.update_follower_fetch_state(2, 2, LAG_MS)
    write(leader)
    assert leader.high_watermark == 0
    assert leader.complete_isr_update(wanted, wanted)
    assert leader.high_watermark == 2


def test_only_one_isr_update_is_pending(leader: Partition) -> None:
    shrunk(leader)
    assert leader.shrink_isr(9 * LAG_MS, LAG_MS) is None


def test_a_broker_that_follows_drops_nobody() -> None:
    follower = leading()
    follower.apply_leadership(leadership(2, 1))
    assert follower.shrink_isr(9 * LAG_MS, LAG_MS) is None


# --- coming back --------------------------------------------------------------------------------------------


def test_caught_up_replica_rejoins_the_isr_at_its_place() -> None:
    leader = leading((1, 3), messages=4)
    leader.update_follower_fetch_state(3, 4, 0)
    assert leader.update_follower_fetch_state(2, 3, 0).proposed_isr is None
    wanted = leader.update_follower_fetch_state(2, 4, 0).proposed_isr
    assert wanted is not None
    assert (wanted.isr, wanted.version) == (ALL, 1)


def test_returning_replica_must_have_the_earlier_leaders_messages() -> None:
    leader = leading((1, 2), messages=4)
    leader.apply_leadership(leadership(2, 1))
    leader.apply_leadership(leadership(1, 2, (1, 2)))
    assert leader.high_watermark == 0
    assert leader.update_follower_fetch_state(3, 0, 0).proposed_isr is None
    assert leader.update_follower_fetch_state(3, 3, 0).proposed_isr is None
    assert leader.update_follower_fetch_state(3, 4, 0).proposed_isr is not None


def test_as_long_as_a_larger_isr_is_not_written_both_count() -> None:
    leader = leading((1, 2), messages=2)
    leader.update_follower_fetch_state(2, 2, 0)
    wanted = leader.update_follower_fetch_state(3, 2, 0).proposed_isr
    assert wanted is not None
    write(leader)
    leader.update_follower_fetch_state(2, 3, 0)
    assert leader.high_watermark == 2
    leader.update_follower_fetch_state(3, 3, 0)
    assert leader.high_watermark == 3
    leader.complete_isr_update(wanted, wanted)
    write(leader)
    leader.update_follower_fetch_state(2, 4, 0)
    assert leader.high_watermark == 3


# --- what ZooKeeper answers ---------------------------------------------------------------------------------


def test_a_write_that_a_newer_state_overtook_leaves_the_isr_as_it_was(leader: Partition) -> None:
    write(leader, 2)
    leader.update_follower_fetch_state(2, 2, LAG_MS)
    wanted = shrunk(leader)
    assert not leader.complete_isr_update(wanted, leadership(2, 1, (2, 3), version=1))
    assert leader.leadership == leadership(1)
    assert leader.high_watermark == 0
    assert leader.shrink_isr(LAG_MS + 1, LAG_MS) is not None


def test_a_state_of_its_own_epoch_that_is_there_instead_is_taken(leader: Partition) -> None:
    write(leader, 2)
    leader.update_follower_fetch_state(2, 2, LAG_MS)
    wanted = shrunk(leader)
    stored = replace(wanted, version=4)
    assert leader.complete_isr_update(wanted, stored)
    assert leader.leadership == stored
    assert shrunk(leader, 9 * LAG_MS).version == 5


def test_a_state_without_its_leader_in_sync_is_nonsense_and_not_taken(leader: Partition) -> None:
    wanted = shrunk(leader)
    leader.complete_isr_update(wanted, replace(wanted, isr=(2, 3)))
    assert leader.leadership == leadership(1)


def test_unknown_outcome_keeps_the_old_isr_and_is_retried(leader: Partition) -> None:
    leader.complete_isr_update(shrunk(leader), None)
    assert leader.leadership == leadership(1)
    assert shrunk(leader).version == 1


@pytest.mark.parametrize("stored", [None, leadership(2, 1, ALL, version=2)], ids=["nothing", "newer"])
def test_joining_replica_counts_until_the_update_completes(stored: LeaderAndIsr | None) -> None:
    leader = leading((1, 2))
    wanted = leader.update_follower_fetch_state(3, 0, 0).proposed_isr
    assert wanted is not None
    write(leader)
    leader.update_follower_fetch_state(2, 1, 0)
    assert not leader.complete_isr_update(wanted, stored)
    assert leader.high_watermark == 0
    again = leader.shrink_isr(0, LAG_MS)
    assert again == leadership(1, 0, (1, 2), version=1)
    assert leader.complete_isr_update(again, again)
    assert leader.high_watermark == 1


def test_an_answer_to_a_write_of_an_earlier_leader_epoch_is_not_heard(leader: Partition) -> None:
    wanted = shrunk(leader)
    leader.apply_leadership(leadership(1, 1, (1, 2), version=1))
    assert not leader.complete_isr_update(wanted, wanted)
    assert leader.leadership == leadership(1, 1, (1, 2), version=1)


# --- leader epochs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epoch", [0, 1])
def test_older_or_equal_epoch_changes_nothing(leader: Partition, epoch: int) -> None:
    leader.apply_leadership(leadership(1, 1))
    assert not leader.apply_leadership(leadership(2, epoch))
    assert leader.is_leader


def test_waiting_produce_fails_when_the_leader_was_replaced() -> None:
    leader = leading((1,))
    last = write(leader)
    leader.apply_leadership(leadership(2, 1))
    assert refused(leader.is_committed, last, 0) is ErrorCode.NOT_LEADER_FOR_PARTITION
    leader.apply_leadership(leadership(1, 2, (1,)))
    assert refused(leader.is_committed, last, 0) is ErrorCode.NOT_LEADER_FOR_PARTITION


def test_waiting_produce_fails_when_the_leader_may_be_replaced() -> None:
    leader = leading((1,))
    last = write(leader)
    leader.apply_leadership(leadership(1, 2, (1,)))
    assert refused(leader.is_committed, last, 0) is ErrorCode.NOT_LEADER_FOR_PARTITION


def test_waiting_produce_continues_in_the_same_leaders_next_epoch() -> None:
    leader = leading((1, 2))
    last = write(leader)
    leader.apply_leadership(leadership(1, 1, (1, 2)))
    assert not leader.is_committed(last, 0)
    leader.update_follower_fetch_state(2, last + 1, 0)
    assert leader.is_committed(last, 0)


@pytest.mark.parametrize(
    ("epoch", "code"), [(0, ErrorCode.FENCED_LEADER_EPOCH), (2, ErrorCode.UNKNOWN_LEADER_EPOCH)]
)
def test_request_with_another_epoch_is_refused(leader: Partition, epoch: int, code: ErrorCode) -> None:
    leader.apply_leadership(leadership(1, 1))
    assert refused(leader.check_leader, epoch) is code


def test_same_leader_in_another_epoch_keeps_follower_progress(leader: Partition) -> None:
    write(leader, 2)
    leader.update_follower_fetch_state(2, 2, 0)
    leader.apply_leadership(leadership(1, 1, (1, 2)))
    assert leader.high_watermark == 2


def test_leader_replaced_meanwhile_knows_no_follower_progress() -> None:
    leader = leading((1, 2), messages=2)
    leader.apply_leadership(leadership(2, 1))
    leader.apply_leadership(leadership(1, 2, (1, 2)))
    assert leader.high_watermark == 0
    leader.update_follower_fetch_state(2, 2, 0)
    assert leader.high_watermark == 2


def test_a_leader_that_missed_an_epoch_knows_nothing_of_its_followers(leader: Partition) -> None:
    write(leader, 2)
    leader.update_follower_fetch_state(2, 2, 0)
    leader.apply_leadership(
        leadership(1, 2, (1, 2))
    )  # in epoch 1 broker 2 may have been cut to follow broker 3
    assert leader.high_watermark == 0
    leader.update_follower_fetch_state(2, 2, 0)
    assert leader.high_watermark == 2


def test_a_leader_alone_in_sync_has_committed_what_it_has(leader: Partition) -> None:
    write(leader, 2)
    leader.apply_leadership(leadership(1, 1, (1,)))
    assert leader.high_watermark == 2


def test_fetch_of_a_broker_without_a_replica_is_refused() -> None:
    leader = leading((1, 2))
    assert refused(leader.update_follower_fetch_state, 9, 0, 0) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_fetch_of_a_follower_means_nothing_to_who_does_not_lead() -> None:
    follower = leading()
    follower.apply_leadership(leadership(2, 1))
    assert refused(follower.update_follower_fetch_state, 3, 0, 0) is ErrorCode.NOT_LEADER_FOR_PARTITION


def test_append_while_a_new_epoch_starts_belongs_to_that_epoch() -> None:
    leader = leading((1,))
    leader.log.start_epoch(0)
    write(leader, 2)
    leader.log.start_epoch(1)
    write(leader, 3)
    leader.apply_leadership(leadership(1, 1, (1,)))
    assert taken(leader, 2).epochs == ((1, 2),)
    assert [leader.log.end_offset_for_epoch(epoch) for epoch in (0, 1)] == [(0, 2), (1, 5)]
