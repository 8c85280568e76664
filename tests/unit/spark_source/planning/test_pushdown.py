"""Conditions of a query, and what they leave to read."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest

from minikafka.base.ids import TopicPartition
from pyspark_minikafka.options.options import Mode
from pyspark_minikafka.planning.pushdown import EVERYTHING, push_filters
from pyspark_minikafka.planning.ranges import OffsetRange
from tests.support.spark_cluster import FakeCluster, Planning

filters: Any = pytest.importorskip("pyspark.sql.datasource")
if not hasattr(filters, "EqualTo"):
    pytest.skip("Spark before 4.1 has no filters", allow_module_level=True)

TOPIC, PARTITION, OFFSET, TIME = ("topic",), ("partition",), ("offset",), ("timestamp",)
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("bee", 0)
NEW_YEAR = datetime(2013, 1, 1, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("condition", "kept"),
    [
        (filters.EqualTo(TOPIC, "a"), [A0, A1]),
        (filters.Not(filters.EqualTo(TOPIC, "a")), [B0]),
        (filters.In(TOPIC, ("bee", "x")), [B0]),
        (filters.StringStartsWith(TOPIC, "b"), [B0]),
        (filters.StringEndsWith(TOPIC, "e"), [B0]),
        (filters.StringContains(TOPIC, "ee"), [B0]),
        (filters.GreaterThan(PARTITION, 0), [A1]),
        (filters.LessThanOrEqual(PARTITION, 0), [A0, B0]),
        (filters.IsNotNull(PARTITION), [A0, A1, B0]),
        (filters.IsNull(TOPIC), []),
    ],
)
def test_topics_and_partitions_are_decided_here(condition: Any, kept: list[TopicPartition]) -> None:
    pushed, left = push_filters([condition])
    assert left == []
    assert [tp for tp in (A0, A1, B0) if pushed.keeps(tp)] == kept


@pytest.mark.parametrize(
    ("condition", "first", "end"),
    [
        (filters.EqualTo(OFFSET, 7), 7, 8),
        (filters.GreaterThan(OFFSET, 7), 8, None),
        (filters.GreaterThanOrEqual(OFFSET, 7), 7, None),
        (filters.LessThan(OFFSET, 7), 0, 7),
        (filters.LessThanOrEqual(OFFSET, 7), 0, 8),
        (filters.In(OFFSET, (9, 4)), 4, 10),
        (filters.LessThan(OFFSET, -3), 0, 0),
    ],
)
def test_offsets_move_the_ends_and_are_looked_at_again(condition: Any, first: int, end: int | None) -> None:
    pushed, left = push_filters([condition])
    assert left == [condition]
    assert (pushed.first_offset, pushed.end_offset) == (first, end)


def test_a_lower_bound_of_time_moves_the_start_and_an_upper_one_nothing() -> None:
    conditions = [filters.GreaterThan(TIME, NEW_YEAR), filters.LessThan(TIME, NEW_YEAR)]
    pushed, left = push_filters(conditions)
    assert left == conditions
    assert pushed.since_ms == 1_356_998_400_000
    assert pushed.end_offset is None


@pytest.mark.parametrize(
    "condition",
    [
        filters.EqualTo(("value",), b"x"),
        filters.EqualTo(("topic", "x"), "a"),
        filters.EqualTo(TOPIC, None),
        filters.Not(filters.EqualTo(OFFSET, 7)),
        filters.Not(filters.EqualTo(PARTITION, None)),
        filters.EqualTo(PARTITION, True),
        filters.GreaterThan(TIME, datetime(2013, 1, 1)),  # noqa: DTZ001
    ],
)
def test_what_is_not_understood_narrows_nothing(condition: Any) -> None:
    assert push_filters([condition]) == (EVERYTHING, [condition])


def test_all_conditions_hold_together() -> None:
    more = [filters.LessThan(OFFSET, most) for most in (9, 7)]
    found, _ = push_filters([filters.GreaterThan(OFFSET, 3), *more])
    assert (found.first_offset, found.end_offset) == (4, 7)


def plan(*conditions: Any, **given: str) -> list[OffsetRange]:
    cluster = FakeCluster(a=[(2, 20), (0, 5)], bee=[(0, 9)])
    given = {"subscribe": "a,bee", **given}
    return list(Planning(cluster, Mode.BATCH, **given).planner.batch(push_filters(conditions)[0]))


def test_only_what_is_left_is_planned() -> None:
    found = plan(filters.EqualTo(TOPIC, "a"), filters.EqualTo(PARTITION, 1))
    assert found == [OffsetRange(A1, 0, 5, True, True)]
    assert plan(filters.GreaterThan(OFFSET, 5), filters.LessThan(OFFSET, 9)) == [
        OffsetRange(A0, 6, 9, True, False),
        OffsetRange(B0, 6, 9, True, False),
    ]


def test_an_end_that_is_not_reached_yet_may_still_come() -> None:
    (found,) = plan(filters.EqualTo(TOPIC, "bee"), filters.LessThan(OFFSET, 50))
    assert found == OffsetRange(B0, 0, 9, True, True)


def test_records_before_a_time_are_not_fetched() -> None:
    since = datetime.fromtimestamp(0.007, timezone.utc)
    assert [(r.start, r.end) for r in plan(filters.GreaterThanOrEqual(TIME, since))] == [
        (7, 20),
        (5, 5),
        (7, 9),
    ]
