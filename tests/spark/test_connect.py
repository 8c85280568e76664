"""The source over Spark Connect: the client has the package, and registers it with the server."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import pyspark_minikafka
from tests.spark.conftest import Kafka
from tests.spark.connect_server import connect_server

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

pytest.importorskip("grpc", reason="the client of Spark Connect is not installed (pyspark[connect])")


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A client's session. Made directly: ``SparkSession.builder`` allows one kind a process."""
    with connect_server(tmp_path_factory.mktemp("connect")) as address, client(address) as session:
        pyspark_minikafka.register(session)
        yield session


@contextlib.contextmanager
def client(address: str) -> Iterator[SparkSession]:
    """A session of its own. One that is not stopped calls for its server after the end of all tests."""
    from pyspark.sql.connect.session import SparkSession

    session = SparkSession.builder.remote(address).create()
    try:
        yield session
    finally:
        session.stop()


def reader(remote: SparkSession, kafka: Kafka, topic: str, **options: str) -> Any:
    given = {"kafka.bootstrap.servers": kafka.servers, "subscribe": topic, **options}
    return remote.read.format("minikafka").options(**given).load()


def stream(remote: SparkSession, kafka: Kafka, topic: str) -> Any:
    given = {"kafka.bootstrap.servers": kafka.servers, "subscribe": topic, "startingOffsets": "earliest"}
    return remote.readStream.format("minikafka").options(**given).load()


def values(frame: Any) -> list[str]:
    return sorted(row.value for row in frame.selectExpr("cast(value AS string) AS value").collect())


def test_a_batch_is_read(remote: SparkSession, kafka: Kafka) -> None:
    topic = kafka.topic(2)
    kafka.produce(topic, ["a", "b"], partition=0)
    kafka.produce(topic, ["c"], partition=1)
    assert values(reader(remote, kafka, topic)) == ["a", "b", "c"]


def test_a_batch_is_written(remote: SparkSession, kafka: Kafka) -> None:
    topic = kafka.topic()
    frame = remote.range(1_000).selectExpr("cast(id AS string) AS key", "cast(id AS string) AS value")
    options = {"kafka.bootstrap.servers": kafka.servers, "topic": topic}
    frame.write.format("minikafka").mode("append").options(**options).save()
    assert kafka.ends(topic, 1) == [1_000]


def test_a_stream_is_read_into_a_table_in_memory(remote: SparkSession, kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.produce(topic, ["a", "b"])
    query = stream(remote, kafka, topic).writeStream.format("memory").queryName("remembered")
    query = query.trigger(availableNow=True).start()
    assert query.awaitTermination(90)
    assert values(remote.table("remembered")) == ["a", "b"]


def test_a_function_gets_every_batch_of_a_stream(remote: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic()
    kafka.produce(topic, ["a", "b"])
    seen = str(tmp_path / "seen")

    def keep(batch: Any, number: int) -> None:
        # The server runs it, in a Python that does not know this file.
        rows = batch.selectExpr("cast(value AS string) AS value").collect()
        with open(seen, "a") as file:
            file.write(json.dumps([number, sorted(row.value for row in rows)]) + "\n")

    keep.__module__ = "__main__"
    query = stream(remote, kafka, topic).writeStream.foreachBatch(keep)
    query = query.option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert query.trigger(availableNow=True).start().awaitTermination(90)
    assert [json.loads(line) for line in Path(seen).read_text().splitlines()] == [[0, ["a", "b"]]]


def test_a_stream_is_written(remote: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    source, sink = kafka.topic(2), kafka.topic()
    for partition in range(2):
        kafka.produce(source, [f"{partition}-{n}" for n in range(20)], partition=partition)
    query = stream(remote, kafka, source).selectExpr("value").writeStream.format("minikafka")
    query = query.option("kafka.bootstrap.servers", kafka.servers).option("topic", sink)
    query = query.option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert query.trigger(availableNow=True).start().awaitTermination(90)
    written = [f"{partition}-{n}" for partition in range(2) for n in range(20)]
    assert values(reader(remote, kafka, sink)) == sorted(written)


def test_a_topic_is_a_view_for_sql(remote: SparkSession, kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.produce(topic, ["1", "2", "39"])
    remote.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW numbers USING minikafka "
        f"OPTIONS (subscribe '{topic}', `kafka.bootstrap.servers` '{kafka.servers}')"
    )
    total = remote.sql("SELECT sum(cast(cast(value AS string) AS int)) AS total FROM numbers")
    assert total.collect()[0].total == 42


def test_a_wrong_option_is_refused_by_load_with_its_name(remote: SparkSession, kafka: Kafka) -> None:
    with pytest.raises(Exception, match="startingOffsets") as failure:
        reader(remote, kafka, "t", startingOffsets="soon").schema  # noqa: B018
    assert "soon" in str(failure.value)
