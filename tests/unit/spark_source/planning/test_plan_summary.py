"""The line of the log about a planned batch."""

from __future__ import annotations

from minikafka.base.ids import TopicPartition
from pyspark_minikafka.location import Target
from pyspark_minikafka.planning.ranges import OffsetRange
from pyspark_minikafka.planning.tasks import PlanTimes, ReadTask, offsets_left, plan_summary

TIMES = PlanTimes(0.0031, 0.0449)


def task(*numbers: int) -> ReadTask:
    """A task that reads ten records of each of these partitions."""
    ranges = [OffsetRange(TopicPartition("orders", number), 90, 100) for number in numbers]
    return ReadTask(ranges, Target("localhost:9092"), 1_000)


def test_line_names_offsets_bytes_tasks_and_first_ranges() -> None:
    assert plan_summary([task(0, 1), task(2, 3, 4)], 12_345.6, TIMES, 2_000) == (
        "planned 50 offsets, about 12,346 bytes, as tasks: 2, ranges: 5 (orders-0 from 90 to 100, "
        "orders-1 from 90 to 100, orders-2 from 90 to 100 and 2 more); offsets looked up in 0.003 s, "
        "planned in 0.045 s; lag after this batch 2,000"
    )


def test_line_of_a_batch_query_has_no_lag() -> None:
    line = plan_summary([task(0)], 1.0, TIMES, None)
    assert line.endswith(
        "ranges: 1 (orders-0 from 90 to 100); offsets looked up in 0.003 s, planned in 0.045 s"
    )


def test_lag_after_a_batch_counts_known_ends_only() -> None:
    first, second, third = (TopicPartition("orders", number) for number in range(3))
    assert offsets_left({first: 5, second: 9, third: 1}, {first: 8, second: 2}) == 3
