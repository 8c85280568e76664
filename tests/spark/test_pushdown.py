"""Conditions of batch queries in real Spark: they decide what is read where its switch is on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyspark
import pytest

from tests.spark.conftest import Kafka

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    Read = Callable[..., DataFrame]

SWITCH = "spark.sql.python.filterPushdown.enabled"
HAS_FILTERS = tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 1)


@pytest.fixture(
    params=[False, pytest.param(True, marks=pytest.mark.skipif(not HAS_FILTERS, reason="Spark 4.1's"))]
)
def pushed(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[bool]:
    spark.conf.set(SWITCH, str(request.param).lower())
    yield request.param
    spark.conf.unset(SWITCH)


@pytest.fixture(scope="module")
def topic(kafka: Kafka) -> str:
    """Three partitions with ten records each, a second apart from the first of January 2013 on."""
    name = kafka.topic(3, config={"retention.ms": "-1"})
    for partition in range(3):
        for offset in range(10):
            ms = 1_356_998_400_000 + offset * 1_000
            kafka.produce(name, [f"{partition}-{offset}"], partition=partition, timestamp_ms=ms)
    return name


@pytest.mark.parametrize(
    ("condition", "rows", "tasks"),
    [
        ("partition = 1", 10, 1),
        ("partition IN (0, 2) AND offset >= 7", 6, 2),
        ("offset < 4 AND partition <> 0", 8, 2),
        ("offset = 3", 3, 3),
        ("topic = 'another'", 0, 1),
        ("topic LIKE 't-%' AND partition = 2", 10, 1),
        ("timestamp >= '2013-01-01 00:00:08'", 6, 3),
        ("timestamp BETWEEN '2013-01-01 00:00:02' AND '2013-01-01 00:00:03'", 6, 3),
        ("partition = 0 OR offset = 9", 12, 3),
        ("cast(value AS string) = '1-5' AND partition = 1", 1, 1),
    ],
)
def test_a_condition_leaves_out_what_it_can_and_the_rows_are_right(
    read: Read, topic: str, pushed: bool, condition: str, rows: int, tasks: int
) -> None:
    frame = read(subscribe=topic, minikafka__pushdown="true", minikafka__tasks="partition").where(condition)
    assert len(frame.collect()) == rows
    assert frame.rdd.getNumPartitions() == (tasks if pushed else 3)


def test_one_query_of_a_dataframe_never_narrows_another(read: Read, topic: str, pushed: bool) -> None:
    frame = read(subscribe=topic)
    counts = [frame.where(where).count() for where in ("offset >= 7", "true", "partition = 1", "true")]
    assert counts == [9, 30, 10, 30]
    assert frame.where("offset < 2").union(frame.where("offset >= 7")).count() == 15


def test_a_query_without_conditions_reads_everything(read: Read, topic: str, pushed: bool) -> None:
    assert read(subscribe=topic).count() == 30
