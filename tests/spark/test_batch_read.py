"""Batch reads with real Spark from a real broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import pytest

from tests.spark.conftest import Kafka

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    Read = Callable[..., DataFrame]


def values(frame: DataFrame) -> list[str]:
    return sorted(bytes(row.value).decode() for row in frame.select("value").collect())


@pytest.mark.smoke
def test_a_row_has_all_that_the_record_has(kafka: Kafka, read: Read) -> None:
    topic = kafka.topic(config={"retention.ms": "-1"})
    moment = datetime(2013, 1, 1, 10, 30, 0, 123_000, tzinfo=timezone.utc)
    ms = int(moment.timestamp() * 1000)
    kafka.produce(topic, ["v0", None], key=b"k", timestamp_ms=ms)
    kafka.produce(topic, ["v2"], timestamp_ms=ms)
    rows = read(subscribe=topic).orderBy("offset").collect()
    assert [
        (row.key, row.value, row.topic, row.partition, row.offset, row.timestampType) for row in rows
    ] == [(b"k", b"v0", topic, 0, 0, 0), (b"k", None, topic, 0, 1, 0), (None, b"v2", topic, 0, 2, 0)]
    stamps = read(subscribe=topic).selectExpr("unix_millis(timestamp) AS ms").distinct().collect()
    assert [row.ms for row in stamps] == [ms]


def test_the_columns_are_those_of_sparks_connector(kafka: Kafka, read: Read) -> None:
    assert read(subscribe=kafka.topic()).schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int>"
    )


def test_an_empty_topic_gives_no_rows(kafka: Kafka, read: Read) -> None:
    assert read(subscribe=kafka.topic(3)).count() == 0


def test_several_topics_a_pattern_and_assigned_partitions(kafka: Kafka, read: Read) -> None:
    one, two = kafka.topic(2, prefix="many"), kafka.topic(prefix="many")
    kafka.produce(one, ["a"], partition=0)
    kafka.produce(one, ["b"], partition=1)
    kafka.produce(two, ["c"])
    assert values(read(subscribe=f"{one}, {two}")) == ["a", "b", "c"]
    assert values(read(subscribePattern=f"{one}|{two[:-3]}.*")) == ["a", "b", "c"]
    assert values(read(assign=json.dumps({one: [1], two: [0]}))) == ["b", "c"]


@pytest.mark.smoke
def test_offsets_bound_what_is_read(kafka: Kafka, read: Read) -> None:
    topic = kafka.topic_with([f"a{n}" for n in range(5)], partitions=2, partition=0)
    kafka.produce(topic, [f"b{n}" for n in range(5)], partition=1)
    frame = read(
        subscribe=topic,
        startingOffsets=json.dumps({topic: {"0": 3, "1": -2}}),
        endingOffsets=json.dumps({topic: {"0": -1, "1": 2}}),
    )
    assert values(frame) == ["a3", "a4", "b0", "b1"]


def test_latest_is_bound_each_time_that_a_dataframe_runs(kafka: Kafka, read: Read) -> None:
    topic = kafka.topic(2)
    frame = read(subscribe=topic)
    kafka.produce(topic, ["after load"])
    assert frame.count() == 1
    kafka.produce(topic, ["after the first run"], partition=1)
    assert frame.count() == 2


def test_times_bound_what_is_read(kafka: Kafka, read: Read) -> None:
    topic = kafka.topic(2, config={"retention.ms": "-1"})
    for number in range(5):
        kafka.produce(topic, [f"a{number}"], partition=0, timestamp_ms=1_000 + number)
        kafka.produce(topic, [f"b{number}"], partition=1, timestamp_ms=2_000 + number)
    assert values(read(subscribe=topic, startingTimestamp="1003", endingTimestamp="2001")) == [
        "a3",
        "a4",
        "b0",
    ]
    each = {"startingOffsetsByTimestamp": json.dumps({topic: {"0": 1_004, "1": 2_004}})}
    assert values(read(subscribe=topic, **each)) == ["a4", "b4"]
    with pytest.raises(Exception, match=rf"no offset matched.*{topic}-0 \(time 1005 ms\)"):
        read(subscribe=topic, startingTimestamp="1005").count()
    late = {"startingTimestamp": "1005", "startingOffsetsByTimestampStrategy": "latest"}
    assert values(read(subscribe=topic, **late)) == ["b0", "b1", "b2", "b3", "b4"]


def test_the_newest_records_are_read(kafka: Kafka, read: Read) -> None:
    topic = kafka.topic(2, config={"retention.ms": "-1"})
    kafka.produce(topic, ["old"], partition=0, timestamp_ms=1_000)
    kafka.produce(topic, ["new"], partition=0)
    kafka.produce(topic, ["old", "old", "new", "new"], partition=1, timestamp_ms=1_000)
    assert values(read(subscribe=topic, minikafka__last__records="3")) == ["new", "new", "new"]
    assert values(read(subscribe=topic, minikafka__last__duration="10m")) == ["new"]


def test_partitions_are_split_into_more_tasks(kafka: Kafka, read: Read) -> None:
    topic = kafka.topic_with([str(n) for n in range(90)], partitions=2, partition=0)
    kafka.produce(topic, ["x"], partition=1)
    for given, tasks in (({}, 2), ({"minPartitions": "4"}, 4), ({"maxRecordsPerPartition": "20"}, 6)):
        frame = read(subscribe=topic, minikafka__tasks="partition", **given)
        assert frame.count() == 91
        assert frame.rdd.getNumPartitions() == tasks


def test_a_dataframe_can_be_used_twice_in_one_query(kafka: Kafka, read: Read) -> None:
    topic = kafka.topic_with(["a", "b"])
    frame = read(subscribe=topic)
    assert values(frame.union(frame)) == ["a", "a", "b", "b"]


def test_only_some_columns_may_be_asked_for(kafka: Kafka, read: Read) -> None:
    topic = kafka.topic_with(["x"] * 10)
    assert read(subscribe=topic).selectExpr("sum(offset) AS s").collect()[0].s == 45


@pytest.mark.smoke
def test_a_read_has_the_columns_that_the_option_selects(kafka: Kafka, read: Read) -> None:
    topic = kafka.topic()
    kafka.produce(topic, ["a", None], key=b"k")
    frame = read(subscribe=topic, minikafka__columns="offset,value")
    assert frame.schema.simpleString() == "struct<offset:bigint,value:binary>"
    assert [tuple(row) for row in frame.orderBy("offset").collect()] == [(0, b"a"), (1, None)]
    assert frame.where("offset = 1").count() == 1
    assert [tuple(row) for row in read(subscribe=topic, minikafka__columns="KEY").collect()] == [(b"k",)] * 2
    assert read(subscribe=topic, minikafka__columns="headers").where("headers IS NULL").count() == 2
    assert read(subscribe=topic, minikafka__columns="topic,partition").distinct().count() == 1


@pytest.mark.smoke
def test_many_rows_arrive_once_each_in_order(kafka: Kafka, read: Read, spark: SparkSession) -> None:
    topic = kafka.topic(3)
    wanted = 200_000
    rows = spark.range(wanted).selectExpr("cast(id AS string) AS key", "cast(id AS string) AS value")
    rows.write.format("minikafka").mode("append").option("topic", topic).option(
        "kafka.bootstrap.servers", kafka.servers
    ).save()
    found = read(subscribe=topic).selectExpr(
        "count(*) AS n",
        "count(DISTINCT value) AS values",
        "sum(cast(cast(value AS string) AS bigint)) AS total",
        "sum(CASE WHEN key = value THEN 0 ELSE 1 END) AS different",
    )
    assert [tuple(row) for row in found.collect()] == [(wanted, wanted, wanted * (wanted - 1) // 2, 0)]
    gaps = read(subscribe=topic).groupBy("partition").agg({"offset": "max", "partition": "count"}).collect()
    assert all(row["max(offset)"] + 1 == row["count(partition)"] for row in gaps)


def test_records_larger_than_a_fetch_are_read(kafka: Kafka, read: Read) -> None:
    topic = kafka.topic_with(["small", "x" * 900_000, "small"])
    frame = read(subscribe=topic, kafka__max__partition__fetch__bytes="1000")
    lengths = frame.selectExpr("length(value) AS n").collect()
    assert sorted(row.n for row in lengths) == [5, 5, 900_000]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "exactly one of the options assign, subscribe and subscribePattern"),
        ({"subscribe": "t", "startingOffsets": "latest"}, "a batch query cannot start at latest"),
        ({"subscribe": "t", "minPartitions": "0"}, "minPartitions='0': must be a whole number"),
        ({"subscribe": "t", "kafka.auto.offset.reset": "latest"}, "kafka.auto.offset.reset='latest'"),
        ({"subscribe": "no-such-topic"}, "no-such-topic does not exist in the cluster"),
    ],
)
def test_a_wrong_query_fails_with_the_reason(read: Read, options: dict[str, str], said: str) -> None:
    with pytest.raises(Exception, match="minikafka") as failure:
        read(fetchOffset__numRetries="0", **options).count()
    assert said in str(failure.value)


def test_a_schema_of_the_users_own_is_refused(spark: SparkSession, kafka: Kafka) -> None:
    topic = kafka.topic()
    reader = spark.read.format("minikafka").schema("value string").option("subscribe", topic)
    with pytest.raises(Exception, match="fixed schema"):
        reader.option("kafka.bootstrap.servers", kafka.servers).load().count()


def test_a_read_creates_no_topic(kafka: Kafka, read: Read) -> None:
    with pytest.raises(Exception, match="never-made does not exist"):
        read(subscribe="never-made", fetchOffset__numRetries="0").count()
    assert "never-made" not in kafka.admin.list_topics()


def test_servers_that_do_not_answer_are_named(read: Read) -> None:
    frame = read(
        subscribe="t",
        kafka__bootstrap__servers="127.0.0.1:1",
        kafka__request__timeout__ms="500",
        fetchOffset__numRetries="0",
    )
    with pytest.raises(Exception, match=r"127\.0\.0\.1:1"):
        frame.count()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"kafka__security__protocol": "SASL_SSL", "kafka__sasl__jaas__config": "tiger"},
            "kafka.sasl.jaas.config='***': expected a control flag",
        ),
        (
            {"startingOfsets": "latest"},
            "startingofsets='latest': unknown option; did you mean startingOffsets?",
        ),
        ({"failOnDataLoss": "x"}, "failOnDataLoss='x': must be true or false"),
    ],
)
def test_a_refusal_is_one_line_without_a_traceback_and_secrets(
    read: Read, options: dict[str, str], said: str
) -> None:
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException) as refused:
        read(subscribe="t", **options)
    first, *_ = str(refused.value).splitlines()
    assert said in first
    assert "Traceback" not in str(refused.value)
    assert "tiger" not in str(refused.value)


def test_a_task_that_fails_says_why_without_a_traceback(kafka: Kafka, read: Read) -> None:
    topic = kafka.topic_with(["a", "b"])
    with pytest.raises(Exception, match="startingOffsets asks for offset 5 of") as failed:
        read(subscribe=topic, startingOffsets=json.dumps({topic: {"0": 5}})).count()
    assert "Traceback" not in str(failed.value)
