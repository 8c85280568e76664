"""Offsets become ranges, and losses are told."""

from __future__ import annotations

import pickle

from minikafka.base.ids import TopicPartition
from pyspark_minikafka.planning.ranges import DataLoss, OffsetRange, new_partitions, plan_stream

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def test_ranges_come_in_order_and_empty_ones_are_left_out() -> None:
    plan = plan_stream({B0: 2, A1: 0, A0: 5}, {B0: 4, A1: 0, A0: 9}, {})
    assert plan.ranges == (OffsetRange(A0, 5, 9), OffsetRange(B0, 2, 4))
    assert [r.size for r in plan.ranges] == [4, 2]


def test_a_new_partition_starts_at_its_first_offset() -> None:
    plan = plan_stream({A0: 3}, {A0: 4, A1: 2}, {A1: 0})
    assert plan.ranges == (OffsetRange(A0, 3, 4), OffsetRange(A1, 0, 2))
    assert plan.losses == ()


def test_new_partitions_are_those_that_only_the_end_has() -> None:
    assert new_partitions({A0: 1}, {B0: 1, A1: 1, A0: 1}) == [A1, B0]


def test_new_partition_not_starting_at_zero_is_a_loss_and_read() -> None:
    plan = plan_stream({}, {A1: 9}, {A1: 7})
    assert plan.ranges == (OffsetRange(A1, 7, 9),)
    assert plan.losses == ("the new partition a-1 starts at offset 7 instead of 0",)


def test_a_new_partition_whose_first_offset_is_unknown_is_a_loss() -> None:
    plan = plan_stream({}, {A1: 9}, {})
    assert plan.ranges == ()
    assert plan.losses == ("cannot find the first offset of the new partition a-1",)


def test_partitions_that_are_gone_are_one_loss() -> None:
    plan = plan_stream({A0: 1, A1: 1, B0: 1}, {B0: 2}, {})
    assert plan.ranges == (OffsetRange(B0, 1, 2),)
    assert plan.losses == ("partitions a-0, a-1 are gone",)


def test_a_log_whose_end_moved_back_is_read_whole_and_reported() -> None:
    plan = plan_stream({A0: 10, A1: 9}, {A0: 4, A1: 5}, {A0: 0, A1: 5})
    assert plan.ranges == (OffsetRange(A0, 0, 4),)
    assert [loss.partition(":")[0] for loss in plan.losses] == [
        "the end of a-0 moved back from offset 10 to 4",
        "the end of a-1 moved back from offset 9 to 5",
    ]
    assert "the topic was recreated" in plan.losses[0]
    assert "reading from its first offset, 0" in plan.losses[0]


def test_data_loss_names_cause_and_option_and_can_be_pickled() -> None:
    problem = pickle.loads(pickle.dumps(DataLoss(["partitions a-0 are gone"])))
    assert str(problem).startswith("partitions a-0 are gone. ")
    assert "failOnDataLoss" in str(problem)
