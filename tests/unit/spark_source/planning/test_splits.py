"""The split of ranges into tasks: the arithmetic of Spark's Kafka connector."""

from __future__ import annotations

import pytest

from minikafka.base.ids import TopicPartition
from pyspark_minikafka.planning.ranges import OffsetRange
from pyspark_minikafka.planning.splits import split

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


def sizes(
    *ends: int, min_partitions: int | None = None, max_records: int | None = None
) -> list[tuple[int, int, int]]:
    """Partition, start and end of each task for partitions of 0 to ``ends``."""
    ranges = [OffsetRange(TopicPartition("t", n), 0, end) for n, end in enumerate(ends)]
    parts = split(ranges, min_partitions, max_records)
    return [(part.topic_partition.partition, part.start, part.end) for part in parts]


@pytest.mark.parametrize("wanted", [None, 1, 2])
def test_enough_partitions_are_left_as_they_are(wanted: int | None) -> None:
    assert sizes(4, 6, min_partitions=wanted) == [(0, 0, 4), (1, 0, 6)]


def test_one_partition_is_cut_into_equal_parts_and_the_last_takes_the_rest() -> None:
    assert sizes(5, min_partitions=4) == [(0, 0, 1), (0, 1, 2), (0, 2, 3), (0, 3, 5)]


def test_no_more_parts_are_made_than_there_are_offsets() -> None:
    assert sizes(2, min_partitions=5) == [(0, 0, 1), (0, 1, 2)]


def test_larger_partitions_are_cut_into_more_parts() -> None:
    assert [p for p, _, _ in sizes(10, 20, 30, min_partitions=6)] == [0, 1, 1, 2, 2, 2]


def test_small_partitions_stay_whole_and_take_no_share() -> None:
    assert [p for p, _, _ in sizes(1, 1, 100, min_partitions=6)] == [0, 1, 2, 2, 2, 2]


def test_halves_are_rounded_up() -> None:
    assert [p for p, _, _ in sizes(2, 6, min_partitions=6)] == [0, 0, 1, 1, 1, 1, 1]


def test_no_part_has_more_than_the_most_records() -> None:
    assert sizes(10, 3, max_records=4) == [(0, 0, 3), (0, 3, 6), (0, 6, 10), (1, 0, 3)]
    assert sizes(10, max_records=2**63 - 1) == [(0, 0, 10)]


def test_the_most_records_come_first_and_then_the_least_parts() -> None:
    assert len(sizes(10, 10, min_partitions=3, max_records=5)) == 4
    assert len(sizes(10, 10, min_partitions=8, max_records=5)) == 8


def test_empty_partitions_are_kept_and_do_not_count() -> None:
    assert sizes(0, 10, min_partitions=2) == [(0, 0, 0), (1, 0, 5), (1, 5, 10)]


def test_only_first_part_is_from_earliest_and_last_to_latest() -> None:
    parts = split([OffsetRange(T0, 3, 9, from_earliest=True, to_latest=True)], 3, None)
    assert [(p.from_earliest, p.to_latest) for p in parts] == [(True, False), (False, False), (False, True)]
