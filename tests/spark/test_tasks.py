"""The tasks of reads: by work, or one for each partition."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING

import pytest

from minikafka.clients.produce import BatchingConfig, BatchingProducer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tests.spark.conftest import Kafka
    from tests.spark.streams import Streams

pytestmark = [pytest.mark.process]

Read = Callable[..., "DataFrame"]
PARTITIONS = 200
CORES = 2


def tasks(frame: DataFrame) -> list[list[tuple[int, int]]]:
    """The partition and offset of each row, by task; without tasks that have no rows."""
    from pyspark.sql.functions import spark_partition_id

    found: dict[int, list[tuple[int, int]]] = {}
    for row in frame.select("partition", "offset", spark_partition_id().alias("task")).collect():
        found.setdefault(row.task, []).append((row.partition, row.offset))
    return [found[task] for task in sorted(found)]


def spread(kafka: Kafka, topic: str, partitions: int, values: list[str]) -> None:
    """Write the values to the partitions in turn."""
    with BatchingProducer(kafka.client, BatchingConfig(acks=-1)) as producer:
        for number, value in enumerate(values):
            producer.send(topic, value.encode(), partition=number % partitions)


@pytest.fixture(scope="module")
def wide(kafka: Kafka) -> str:
    """A topic of 200 partitions with five records each."""
    topic = kafka.topic(PARTITIONS)
    spread(kafka, topic, PARTITIONS, [str(number) for number in range(PARTITIONS * 5)])
    return topic


def test_a_small_read_of_many_partitions_has_a_task_for_each_core(read: Read, wide: str) -> None:
    found = tasks(read(subscribe=wide))
    assert len(found) == CORES
    assert sorted(row for task in found for row in task) == [
        (p, o) for p in range(PARTITIONS) for o in range(5)
    ]
    for task in found:
        for partition in {partition for partition, _ in task}:
            assert [o for p, o in task if p == partition] == [0, 1, 2, 3, 4]


def test_tasks_of_partitions_can_be_asked_for(read: Read, wide: str) -> None:
    found = tasks(read(subscribe=wide, minikafka__tasks="partition"))
    assert [len(task) for task in found] == [5] * PARTITIONS


def test_options_set_the_number_of_tasks(read: Read, wide: str) -> None:
    assert read(subscribe=wide, minikafka__cores="7").rdd.getNumPartitions() == 7
    assert read(subscribe=wide, minPartitions="31").rdd.getNumPartitions() == 31
    assert read(subscribe=wide, minPartitions="400").rdd.getNumPartitions() == 400
    limited = tasks(read(subscribe=wide, maxRecordsPerPartition="25"))
    assert max(len(task) for task in limited) <= 25
    assert sum(len(task) for task in limited) == PARTITIONS * 5


def test_a_frame_that_was_planned_empty_reads_on_all_cores(kafka: Kafka, read: Read) -> None:
    topic = kafka.topic(4)
    frame = read(subscribe=topic)
    assert frame.count() == 0
    spread(kafka, topic, 4, [str(number) for number in range(400)])
    assert [len(task) for task in tasks(frame)] == [200, 200]


def test_a_partition_with_most_of_the_records_is_read_by_all_cores(kafka: Kafka, read: Read) -> None:
    topic, rows = kafka.topic(4), 3_000
    values = ["x" * 10_000] * rows
    kafka.produce(topic, values, partition=1)
    spread(kafka, topic, 4, ["y"] * 40)
    found = tasks(read(subscribe=topic))
    assert max(len(task) for task in found) < 0.6 * rows
    assert [row for task in found for row in task if row[0] == 1] == [(1, o) for o in range(rows + 10)]
    whole = tasks(read(subscribe=topic, minikafka__tasks="partition"))
    assert sorted(map(len, whole)) == [10, 10, 10, rows + 10]


def test_a_small_micro_batch_of_many_partitions_has_few_tasks(kafka: Kafka, streams: Streams) -> None:
    topic, counts = kafka.topic(PARTITIONS), []
    given = {"kafka.bootstrap.servers": kafka.servers, "subscribe": topic, "startingOffsets": "earliest"}
    frame = streams.spark.readStream.format("minikafka").options(**given).load()
    found: list[tuple[int, int]] = []

    def write(batch: DataFrame, _: int) -> None:
        counts.append(batch.rdd.getNumPartitions())
        found.extend((row.partition, row.offset) for row in batch.select("partition", "offset").collect())

    location = str(streams.checkpoint)
    query = frame.writeStream.foreachBatch(write).option("checkpointLocation", location).start()
    try:
        for _ in range(3):
            spread(kafka, topic, PARTITIONS, ["x"] * 2 * PARTITIONS)
            query.processAllAvailable()
    finally:
        query.stop()
    assert max(counts) <= CORES
    assert sorted(found) == [(p, o) for p in range(PARTITIONS) for o in range(6)]


def test_a_batch_that_failed_may_run_again_with_other_tasks(kafka: Kafka, streams: Streams) -> None:
    topic = kafka.topic(20)
    spread(kafka, topic, 20, [str(number) for number in range(100)])
    seen: list[tuple[int, int, list[str]]] = []

    def run(option: str, *, fails: bool) -> None:
        given = {"kafka.bootstrap.servers": kafka.servers, "subscribe": topic, "startingOffsets": "earliest"}
        given["minikafka.tasks"] = option
        frame = streams.spark.readStream.format("minikafka").options(**given).load()

        def write(batch: DataFrame, number: int) -> None:
            values = sorted(row.value.decode() for row in batch.collect())
            seen.append((number, batch.rdd.getNumPartitions(), values))
            if fails:
                raise RuntimeError("the sink is away")

        location = str(streams.checkpoint)
        query = frame.writeStream.foreachBatch(write).option("checkpointLocation", location).start()
        with pytest.raises(Exception, match="the sink is away") if fails else nullcontext():
            query.processAllAvailable()
        query.stop()

    run("work", fails=True)
    spread(kafka, topic, 20, ["later"] * 20)
    run("partition", fails=True)
    run("work", fails=False)
    first = sorted(str(number) for number in range(100))
    assert [(number, count, values) for number, count, values in seen[:3]] == [
        (0, 1, first),
        (0, 20, first),
        (0, 1, first),
    ]
    assert seen[3:] == [(1, 1, ["later"] * 20)]


def test_offsets_that_are_named_make_one_small_task(read: Read, wide: str) -> None:
    starts = json.dumps({wide: {str(number): 1 for number in range(PARTITIONS)}})
    ends = json.dumps({wide: {str(number): 2 for number in range(PARTITIONS)}})
    found = tasks(read(subscribe=wide, startingOffsets=starts, endingOffsets=ends))
    assert len(found) <= CORES
    assert sum(len(task) for task in found) == PARTITIONS
