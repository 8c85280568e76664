"""The progress of a query, from what each Spark release reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from minikafka.base.ids import TopicPartition
from pyspark_minikafka.monitoring.query_progress import (
    PartitionProgress,
    QueryProgress,
    SourceProgress,
    duration_text,
    query_progress,
    summary,
)

RECORDED = json.loads((Path(__file__).parents[3] / "data" / "spark-progress.json").read_text())
"""Release → the first two batches of a query of the topics orders and clicks and of Spark's source ``rate``:
100 records in each topic, and 40 a batch where limits work. ``-jar``: with the Scala shim.
"""
LIMITED = {"4.0.5-jar", "4.2.1", "4.3.0"}
PYTHON_SOURCE = "org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStream@1"


def reported(*sources: dict[str, Any]) -> QueryProgress:
    """The progress of a batch with ``sources``, each with rows and rates."""
    given = [
        {
            "description": PYTHON_SOURCE,
            "numInputRows": 10,
            "inputRowsPerSecond": 5.0,
            "processedRowsPerSecond": 2.5,
            **source,
        }
        for source in sources
    ]
    return query_progress("id-1", "orders", {"batchId": 3, "timestamp": "T", "sources": given})


def of(*partitions: PartitionProgress) -> QueryProgress:
    return QueryProgress("id-1", "orders", 3, "T", (SourceProgress(10, 5.0, 2.5, partitions),))


@pytest.mark.parametrize("release", RECORDED)
def test_first_batch_begins_where_its_end_says(release: str) -> None:
    found = query_progress("id-1", "orders", RECORDED[release][0])
    end = 40 if release in LIMITED else 100
    assert [(p.topic, p.start, p.end, p.latest, p.lag) for p in found.partitions] == [
        ("orders", 0, end, 100, 100 - end),
        ("clicks", 0, end, 100, 100 - end),
    ]
    assert (found.batch, found.rows, len(found.sources)) == (0, 2 * end, 2)


@pytest.mark.parametrize("release", RECORDED)
def test_next_batch_begins_where_the_last_ended(release: str) -> None:
    found = query_progress("id-1", "orders", RECORDED[release][1])
    start, end = (40, 80) if release in LIMITED else (100, 100)
    assert [(p.start, p.end, p.lag) for p in found.partitions] == [(start, end, 100 - end)] * 2
    assert found.batch == 1


def test_other_sources_are_left_out() -> None:
    positions = {"orders": {"0": 7}}
    kafka = {"description": "KafkaV2[Subscribe[orders]]", "startOffset": positions, "endOffset": positions}
    python = {"startOffset": {"at": 3}, "endOffset": {"at": 4}}
    counter = {"startOffset": 3, "endOffset": 4}
    found = reported(kafka, python, counter, {"endOffset": positions})
    assert [p.topic_partition for p in found.partitions] == [TopicPartition("orders", 0)]
    assert found.rows == 10


def test_offsets_may_be_text_as_of_spark_connect() -> None:
    found = reported({"startOffset": None, "endOffset": '{"a": {"0": 2}, "minikafka:start=a:0:1": {}}'})
    assert [(p.start, p.end) for p in found.partitions] == [(1, 2)]
    assert reported({"startOffset": None, "endOffset": "soon"}).sources == ()


def test_a_partition_that_is_new_has_no_start() -> None:
    found = reported({"startOffset": {"a": {"0": 1}}, "endOffset": {"a": {"0": 2, "1": 5}}})
    assert [(p.partition, p.start, p.end) for p in found.partitions] == [(0, 1, 2), (1, None, 5)]


def test_a_partition_that_is_gone_has_no_lag() -> None:
    end = {"a": {"0": 2, "1": 5}}
    found = reported({"startOffset": end, "endOffset": end, "latestOffset": {"a": {"0": 9}}})
    assert [p.lag for p in found.partitions] == [7, None]
    assert found.lag == 7


def test_lag_of_a_batch_planned_before_a_restart_is_unknown() -> None:
    found = reported({"startOffset": {"a": {"0": 1}}, "endOffset": {"a": {"0": 2}}, "latestOffset": None})
    assert [(p.end, p.lag) for p in found.partitions] == [(2, None)]
    assert "lag unknown" in str(found)


def test_lag_in_a_log_that_went_back_is_unknown() -> None:
    found = of(PartitionProgress("a", 0, 1, 9, 4), PartitionProgress("a", 1, 1, 9, 9))
    assert [p.lag for p in found.partitions] == [None, 0]
    assert str(found).splitlines()[2].split() == ["a", "0", "1", "9", "4", "-", "-"]


def test_the_worst_partition_has_the_largest_lag() -> None:
    behind = [PartitionProgress("a", number, 0, 10, 10 + lag) for number, lag in enumerate((3, 8, 0))]
    worst = of(*behind).worst
    assert worst is not None
    assert worst.partition == 1


def test_without_lag_there_is_no_worst_partition() -> None:
    assert of(PartitionProgress("a", 0, 0, 10, 10)).worst is None


def test_a_query_before_its_first_batch_has_no_partitions() -> None:
    found = query_progress("id-1", None, None)
    assert (found.partitions, found.lag, found.batch) == ((), None, None)
    assert str(found) == "query id-1: no batch yet"


def test_a_query_without_minikafka_says_so() -> None:
    assert str(reported()) == "query orders: batch 3, no minikafka source"


def test_the_table_shows_each_partition_with_its_lag() -> None:
    found = of(
        PartitionProgress("orders", 0, 100, 140, 1_400, 4_200), PartitionProgress("a", 12, None, 7, None)
    )
    assert str(found).splitlines() == [
        "query orders: batch 3, 10 rows, 5.0 rows/s in, 2.5 rows/s processed, lag 1,260 records",
        "TOPIC   PARTITION  START  END  LATEST   LAG  BEHIND",
        "orders          0    100  140    1400  1260   4.2 s",
        "a              12      -    7       -     -       -",
    ]


def test_the_line_of_the_log_names_the_worst_partition() -> None:
    behind = [PartitionProgress("orders", number, 0, 10, 10 + 5 * number) for number in range(3)]
    assert (
        summary(of(*behind), 1_234.4)
        == "query orders: topics orders, 1,234 rows/s, lag 15 records, most in orders-2: 10"
    )
    assert summary(of(behind[0]), 0.0) == "query orders: topics orders, 0 rows/s, lag 0 records"


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0.0 s"),
        (4_210, "4.2 s"),
        (119_940, "119.9 s"),
        (180_000, "3 min"),
        (7_200_000, "2 h"),
        (172_800_000, "2 d"),
    ],
)
def test_a_duration_is_short_in_any_unit(milliseconds: int, text: str) -> None:
    assert duration_text(milliseconds) == text
