"""Markers of transactions in a partition, and its last stable offset, as leader and as follower."""

from __future__ import annotations

import pytest

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.partition.partition import Partition
from tests.support.replicas import follow, leadership, leading, replica, write
from tests.support.transactions import entries, part_of_transaction


def write_in_transaction(leader: Partition, producer: int, sequence: int = 0) -> None:
    leader.append(part_of_transaction(producer, 1, sequence=sequence))


def end_transaction(leader: Partition, producer: int, *, commit: bool = False) -> int:
    return leader.append_end_marker(producer, 0, 0, commit=commit).append_info.last_offset


def fetched(leader: Partition, offset: int) -> int:
    """Let both followers fetch at an offset; the last stable offset then."""
    for follower in (2, 3):
        leader.update_follower_fetch_state(follower, offset, 0)
    return leader.last_stable_offset


def refused(leader: Partition) -> ErrorCode:
    before = leader.log.end_offset
    with pytest.raises(BrokerError) as caught:
        end_transaction(leader, 1)
    assert leader.log.end_offset == before
    return caught.value.code


def test_only_a_leader_appends_a_marker() -> None:
    follower = replica(1)
    assert refused(follower) is ErrorCode.NOT_LEADER_FOR_PARTITION
    follower.apply_leadership(leadership(2))
    assert refused(follower) is ErrorCode.NOT_LEADER_FOR_PARTITION


def test_a_marker_needs_as_many_replicas_as_acks_all() -> None:
    assert refused(leading((1,), min_in_sync=2)) is ErrorCode.NOT_ENOUGH_REPLICAS


def test_a_marker_is_committed_once_all_in_sync_have_it() -> None:
    leader = leading()
    write_in_transaction(leader, 1)
    appended = leader.append_end_marker(1, 0, 0, commit=True)
    at = appended.append_info.last_offset
    assert (at, appended.leader_epoch, appended.must_flush) == (1, 0, False)
    assert not leader.is_committed(at, 0)
    fetched(leader, 2)
    assert leader.is_committed(at, 0)


def test_a_marker_waits_for_the_flush_that_the_topic_requires() -> None:
    leader = leading((1,), flush_messages=1)
    assert leader.append_end_marker(1, 0, 0, commit=True).must_flush
    assert leader.high_watermark == 0


def test_the_last_stable_offset_waits_for_the_replicated_marker() -> None:
    leader = leading()
    write(leader, 2)
    write_in_transaction(leader, 1)
    write(leader)
    assert fetched(leader, 4) == 2
    end_transaction(leader, 1)
    write(leader)
    assert [fetched(leader, offset) for offset in (4, 5, 6)] == [2, 5, 6]


def test_a_transaction_that_ends_later_holds_the_last_stable_offset() -> None:
    leader = leading()
    write_in_transaction(leader, 1)
    write_in_transaction(leader, 2)
    end_transaction(leader, 2, commit=True)
    assert fetched(leader, 3) == 0
    end_transaction(leader, 1)
    write_in_transaction(leader, 2, sequence=1)
    assert [fetched(leader, offset) for offset in (3, 4, 5)] == [0, 4, 4]


def test_a_leader_alone_decides_at_once() -> None:
    leader = leading((1,))
    write_in_transaction(leader, 1)
    assert (leader.high_watermark, leader.last_stable_offset) == (1, 0)
    end_transaction(leader, 1)
    assert (leader.high_watermark, leader.last_stable_offset) == (2, 2)


def test_the_last_stable_offset_is_not_before_the_log() -> None:
    leader = leading((1,))
    write_in_transaction(leader, 1)
    write(leader, 4)
    leader.log.increment_start_offset(3)
    assert leader.last_stable_offset == 3


def test_a_follower_has_the_same_transactions() -> None:
    leader, follower = leading((1, 2)), replica(2)
    follower.apply_leadership(leadership(1, isr=(1, 2)))
    write_in_transaction(leader, 1)
    write_in_transaction(leader, 2)
    end_transaction(leader, 1)
    follow(follower, leader)
    assert follower.last_stable_offset == leader.last_stable_offset == 1
    end_transaction(leader, 2)
    follow(follower, leader)
    assert follower.last_stable_offset == leader.last_stable_offset == 4
    assert entries(follower.log) == entries(leader.log)


def test_a_new_leader_waits_for_the_markers_that_it_copied() -> None:
    leader, follower = leading((1, 2)), replica(2)
    follower.apply_leadership(leadership(1, isr=(1, 2)))
    write_in_transaction(leader, 1)
    end_transaction(leader, 1)
    follow(follower, leader)
    follower.update_high_watermark(1)
    follower.apply_leadership(leadership(2, epoch=1, isr=(1, 2)))
    assert (follower.high_watermark, follower.last_stable_offset) == (1, 0)
    follower.update_follower_fetch_state(1, 2, 0)
    assert follower.last_stable_offset == 2


def test_truncation_of_a_marker_opens_its_transaction_again() -> None:
    follower, leader = replica(2), leading((1, 2))
    follower.apply_leadership(leadership(1, isr=(1, 2)))
    write(leader)
    write_in_transaction(leader, 1)
    end_transaction(leader, 1)
    follow(follower, leader)
    follow(follower, leader)
    follower.log.truncate_to(2)
    follower.complete_truncation()
    assert (follower.high_watermark, follower.last_stable_offset) == (2, 1)
