"""The source over Spark Connect: the client has the package, and registers it with the server."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import pyspark_minikafka
from minikafka.records import kernels
from minikafka.records.kernels import cache as kernel_cache
from minikafka.spark.metrics import MetricsListener
from pyspark_minikafka import cache
from tests.spark.conftest import ROOT, Kafka
from tests.spark.connect_server import client, connect_server
from tests.support.processes import wait_until

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

pytest.importorskip("grpc", reason="the client of Spark Connect is not installed (pyspark[connect])")


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A client's session, with the source registered."""
    with connect_server(tmp_path_factory.mktemp("connect")) as address, client(address) as session:
        pyspark_minikafka.register(session)
        yield session


HIDES_US = """
import os, sys
from importlib.machinery import PathFinder

sys.path[:] = [
    path for path in sys.path if not os.path.isfile(os.path.join(path, "pyspark_minikafka", "__init__.py"))
]

class Hiding:  # what an installation from a clone has beside its path: a directory without modules
    def find_spec(self, name, path=None, target=None):
        if name == "pyspark_minikafka":
            spec = PathFinder.find_spec(name, path)
            if spec is None or spec.origin is None:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hiding())
"""
"""As ``sitecustomize``: a Python that has all that we need, and not us."""


def reader(remote: SparkSession, kafka: Kafka, topic: str, **options: str) -> Any:
    given = {"kafka.bootstrap.servers": kafka.servers, "subscribe": topic, **options}
    return remote.read.format("minikafka").options(**given).load()


def stream(remote: SparkSession, kafka: Kafka, topic: str) -> Any:
    given = {"kafka.bootstrap.servers": kafka.servers, "subscribe": topic, "startingOffsets": "earliest"}
    return remote.readStream.format("minikafka").options(**given).load()


def values(frame: Any) -> list[str]:
    return sorted(row.value for row in frame.selectExpr("cast(value AS string) AS value").collect())


def test_a_batch_is_read(remote: SparkSession, kafka: Kafka) -> None:
    topic = kafka.topic_with(["a", "b"], partitions=2, partition=0)
    kafka.produce(topic, ["c"], partition=1)
    assert values(reader(remote, kafka, topic)) == ["a", "b", "c"]


def test_a_batch_is_written(remote: SparkSession, kafka: Kafka) -> None:
    topic = kafka.topic()
    frame = remote.range(1_000).selectExpr("cast(id AS string) AS key", "cast(id AS string) AS value")
    options = {"kafka.bootstrap.servers": kafka.servers, "topic": topic}
    frame.write.format("minikafka").mode("append").options(**options).save()
    assert kafka.ends(topic, 1) == [1_000]


def test_a_stream_is_read_into_a_table_in_memory(remote: SparkSession, kafka: Kafka) -> None:
    topic = kafka.topic_with(["a", "b"])
    query = stream(remote, kafka, topic).writeStream.format("memory").queryName("remembered")
    query = query.trigger(availableNow=True).start()
    assert query.awaitTermination(90)
    assert values(remote.table("remembered")) == ["a", "b"]


def test_a_function_gets_every_batch_of_a_stream(remote: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic_with(["a", "b"])
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


def test_progress_of_a_stream_is_shown_and_logged(
    remote: SparkSession, kafka: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    topic = kafka.topic_with(["a", "b"])
    options = {"kafka.bootstrap.servers": kafka.servers}
    listener = pyspark_minikafka.log_progress(remote, options, every_s=0.001)
    with caplog.at_level(logging.INFO, logger="minikafka.spark"):
        query = stream(remote, kafka, topic).writeStream.format("noop").queryName("connected").start()
        try:
            wait_until(lambda: topic in caplog.text and query.lastProgress is not None, "a line about it")
        finally:
            query.stop()
            remote.streams.removeListener(listener)
    kafka.produce(topic, ["c"])
    found = pyspark_minikafka.progress(query, options)
    cache.close_all()
    assert [(each.topic, each.start, each.end, each.lag) for each in found.partitions] == [(topic, 0, 2, 1)]
    assert f"query connected: topics {topic}, " in caplog.text


def test_metrics_of_a_stream_reach_a_listener_of_the_client(remote: SparkSession, kafka: Kafka) -> None:
    topic = kafka.topic_with(["a", "b"])
    listener = MetricsListener()
    remote.streams.addListener(listener)
    try:
        given = {"kafka.bootstrap.servers": kafka.servers, "subscribe": topic, "startingOffsets": "earliest"}
        frame = remote.readStream.format("minikafka").options(**given, **listener.reader_options()).load()
        query = frame.writeStream.format("noop").queryName("measured").start()
        try:
            wait_until(
                lambda: (
                    (found := listener.metrics().get("measured")) is not None
                    and found.rows == found.read.rows == 2
                ),
                "the rows of its batch, and of its task",
            )
        finally:
            query.stop()
        (source,) = listener.metrics()["measured"].sources
        assert [(each.topic, each.end, each.offsets) for each in source.partitions] == [(topic, 2, 2)]
    finally:
        remote.streams.removeListener(listener)
        listener.close()


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
    topic = kafka.topic_with(["1", "2", "39"])
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


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(400)
def test_server_without_package_explains_artifacts(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.topic_with(["a", "b"])
    monkeypatch.setenv("XDG_CACHE_HOME", str(users_cache(tmp_path)))
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "sitecustomize.py").write_text(HIDES_US)
    with connect_server(tmp_path, path=[str(tmp_path / "without")]) as address:
        with client(address) as session:
            with pytest.raises(Exception, match="DATA_SOURCE_NOT_FOUND"):
                reader(session, kafka, topic).schema  # noqa: B018
            session.dataSource.register(pyspark_minikafka.DefaultSource)
            with pytest.raises(Exception, match="install minikafka for that Python"):
                reader(session, kafka, topic).schema  # noqa: B018
        # Files that are sent along do not make the name known: Spark looks for sources without them. Once
        # it is registered they are found, by executors too, as long as the native packages are there.
        with client(address) as session:
            session.addArtifacts(packed_sources(tmp_path), pyfile=True)
            with pytest.raises(Exception, match="DATA_SOURCE_NOT_FOUND"):
                reader(session, kafka, topic).schema  # noqa: B018
            session.dataSource.register(pyspark_minikafka.DefaultSource)
            assert values(reader(session, kafka, topic)) == ["a", "b"]


def users_cache(directory: Path) -> Path:
    """A user's cache with the kernels as they are here, so that none has to be compiled."""
    kernels.warm_up()
    state = f"kernels-{kernel_cache._state()}"
    kept = next(place / state for place in kernel_cache.candidates() if (place / state).exists())
    shutil.copytree(kept, directory / "cache" / "minikafka" / "kernels" / state)
    return directory / "cache"


def packed_sources(directory: Path) -> str:
    """Our Python files, and nothing that they need, in an archive."""
    sources = directory / "sources"
    leave_out = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "broker_core" / "minikafka", sources / "minikafka", ignore=leave_out)
    shutil.copytree(ROOT / "spark_source/pyspark_minikafka", sources / "pyspark_minikafka", ignore=leave_out)
    return shutil.make_archive(str(directory / "minikafka_sources"), "zip", sources)
