"""A partition as follower: appends, the high watermark, and truncation."""

from __future__ import annotations

import pytest

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.log.config import LogConfig
from tests.support.replicas import follow, leadership, leading, replica, taken, values, write


def test_follower_learns_a_commit_one_fetch_later() -> None:
    leader, follower = leading((1, 2)), replica(2)
    follower.apply_leadership(leadership(1, isr=(1, 2)))
    write(leader, 3)
    write(leader, 2)
    leader.update_follower_fetch_state(2, 0, 0)
    follower.append_as_follower(taken(leader, 0), 0)
    follower.update_high_watermark(leader.high_watermark)
    assert (follower.log.end_offset, follower.high_watermark) == (5, 0)
    follow(follower, leader)
    assert follower.high_watermark == leader.high_watermark == 5
    assert values(follower) == values(leader)


@pytest.mark.parametrize(("reported", "known"), [(-1, 0), (2, 2), (99, 3)])
def test_its_high_watermark_is_at_most_its_end(reported: int, known: int) -> None:
    leader, follower = leading((1, 2)), replica(2)
    follower.apply_leadership(leadership(1))
    write(leader, 3)
    follower.append_as_follower(taken(leader, 0), 0)
    follower.update_high_watermark(reported)
    assert follower.high_watermark == known


def test_a_leader_learns_no_high_watermark() -> None:
    leader = leading(messages=3)
    leader.update_high_watermark(3)
    assert leader.high_watermark == 0


@pytest.mark.parametrize(("written_down", "known"), [(0, 0), (2, 2), (99, 3)])
def test_checkpointed_high_watermark_is_clamped_to_the_log(written_down: int, known: int) -> None:
    leader = leading((1,), messages=3)
    again = type(leader)(leader.topic_partition, leader.log, 1, high_watermark=written_down)
    assert again.high_watermark == known


def test_records_of_an_earlier_leader_are_not_appended() -> None:
    leader, follower = leading((1, 2)), replica(2)
    follower.apply_leadership(leadership(1))
    write(leader)
    copied = taken(leader, 0)
    follower.apply_leadership(leadership(3, 1))
    with pytest.raises(BrokerError) as refused:
        follower.append_as_follower(copied, 0)
    assert refused.value.code is ErrorCode.NOT_LEADER_FOR_PARTITION
    follower.apply_leadership(leadership(2, 2))
    with pytest.raises(BrokerError):
        follower.append_as_follower(copied, 2)
    assert follower.log.end_offset == 0


def test_follower_reports_when_it_must_flush_before_it_acknowledges() -> None:
    leader, follower = leading((1, 2)), replica(2, config=LogConfig(flush_messages=2))
    follower.apply_leadership(leadership(1))
    write(leader)
    assert not follower.append_as_follower(taken(leader, 0), 0)
    write(leader)
    assert follower.append_as_follower(taken(leader, 1), 0)


def test_a_cut_takes_the_high_watermark_along() -> None:
    leader, follower = leading((1, 2)), replica(2)
    follower.apply_leadership(leadership(1))
    for _ in range(4):
        write(leader)
    follow(follower, leader)
    assert follower.high_watermark == 4
    follower.log.truncate_to(2)
    follower.complete_truncation()
    assert (follower.high_watermark, follower.log.end_offset) == (2, 2)
    follower.log.truncate_fully_and_start_at(9)
    follower.complete_truncation()
    assert follower.high_watermark == 9


def test_unflushed_messages_of_a_truncated_log_are_not_durable_later() -> None:
    leader = leading((1,), flush_messages=1, messages=3)
    leader.complete_flush(leader.log.flush())
    leader.apply_leadership(leadership(2, 1))
    leader.log.truncate_to(0)
    leader.complete_truncation()
    leader.apply_leadership(leadership(1, 2, (1,)))
    write(leader, 3)
    assert leader.high_watermark == 0
    assert leader.complete_flush(leader.log.flush())


def test_a_log_begins_with_the_batch_that_its_leaders_start_lies_in() -> None:
    leader, follower = leading((1, 2)), replica(2)
    follower.apply_leadership(leadership(1))
    write(leader, 5)
    write(leader, 5)
    leader.update_follower_fetch_state(2, 10, 0)
    leader.log.increment_start_offset(7)
    follower.log.truncate_fully_and_start_at(7)
    follower.complete_truncation()
    follower.append_as_follower(taken(leader, 7), 0)
    assert (follower.log.start_offset, follower.log.end_offset) == (5, 10)
    assert values(follower) == [b"%d" % number for number in range(5, 10)]


def test_a_batch_that_overlaps_what_is_there_is_not_written() -> None:
    leader, other, follower = leading((1,)), leading((1,)), replica(2)
    write(leader, 5)
    write(other, 3)
    follower.apply_leadership(leadership(1))
    follower.append_as_follower(taken(other, 0), 0)
    with pytest.raises(Exception, match="ends at offset 3, the records to append begin at 0"):
        follower.append_as_follower(taken(leader, 3), 0)
    assert follower.log.end_offset == 3


def test_follower_that_becomes_leader_knows_no_progress_of_others() -> None:
    leader, follower = leading((1, 2)), replica(2)
    follower.apply_leadership(leadership(1))
    write(leader, 3)
    follow(follower, leader)
    follower.apply_leadership(leadership(2, 1, (2, 1)))
    write(follower)
    assert (follower.high_watermark, follower.log.end_offset) == (3, 4)
    follower.update_follower_fetch_state(1, 4, 0)
    assert follower.high_watermark == 4


def test_messages_a_follower_failed_to_flush_are_not_committed() -> None:
    leader, follower = leading((1, 2)), replica(2, config=LogConfig(flush_messages=1))
    follower.apply_leadership(leadership(1))
    write(leader)
    assert follower.append_as_follower(taken(leader, 0), 0)
    follower.apply_leadership(leadership(2, 1, (2,)))
    assert follower.high_watermark == 0
    assert follower.complete_flush(follower.log.flush())
    assert follower.high_watermark == 1
