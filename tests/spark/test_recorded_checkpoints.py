"""Checkpoints that were recorded, of this source and of Spark's own, open for ever."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.conftest import ROOT, Kafka
from tests.spark.streams import Streams

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDED = ROOT / "tests" / "data" / "checkpoints"
EACH = 20
"""Records of both partitions; more than any of the recorded offsets."""


def take(name: str, topic: str, directory: Path) -> None:
    """Copy a recorded checkpoint, for another topic."""
    for source in (path for path in (RECORDED / name).rglob("*") if path.is_file()):
        target = directory / source.relative_to(RECORDED / name)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.read_bytes().replace(b"orders", topic.encode()))


def fill(kafka: Kafka) -> str:
    """A topic with records in both partitions, each with its partition and offset as the value."""
    topic = kafka.topic(2)
    for partition in (0, 1):
        kafka.produce(topic, [f"{partition} {n:02}" for n in range(EACH)], partition=partition)
    return topic


@pytest.mark.parametrize(
    ("name", "first", "start", "end"),
    [
        ("kafka-first-batch", 0, (2, 2), (4, 8)),
        ("kafka-running", 2, (8, 16), None),
        ("minikafka-first-batch", 0, (0, 0), (3, 6)),
        ("minikafka-first-batch-key", 0, (0, 0), (3, 6)),
        ("minikafka-running", 2, (6, 12), None),
    ],
)
def test_a_recorded_checkpoint_opens(
    streams: Streams, kafka: Kafka, name: str, first: int, start: tuple[int, int], end: tuple[int, int] | None
) -> None:
    topic = fill(kafka)
    take(name, topic, streams.checkpoint)
    running = streams.start(
        subscribe=topic, startingOffsets="latest", **{"minikafka.resume.from": str(streams.checkpoint)}
    )
    expected = [f"{p} {n:02}" for p in (0, 1) for n in range(start[p], EACH)]
    assert running.wait_for(len(expected)) == expected
    assert min(running.batches) == first
    if end is not None:
        replayed = [f"{p} {n:02}" for p in (0, 1) for n in range(start[p], end[p])]
        assert sorted(running.batches[0]) == replayed


def test_the_example_goes_on_where_sparks_connector_was(
    spark: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    from examples.from_kafka import after

    topic = fill(kafka)
    take("kafka-running", topic, tmp_path / "checkpoint")
    after.run(spark, kafka.servers, topic, str(tmp_path))
    files = (tmp_path / "orders").glob("part-*")
    orders = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert sorted(order["item"] for order in orders) == [f"0 {n:02}" for n in range(8, EACH)] + [
        f"1 {n:02}" for n in range(16, EACH)
    ]
