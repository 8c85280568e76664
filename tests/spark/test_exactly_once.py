"""Writes exactly once, with real Spark to our brokers and Apache Kafka: what crashes and reruns leave."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from minikafka.base.ids import TopicPartition
from minikafka.clients.fetch.isolation_level import IsolationLevel
from minikafka.net.ports import free_port
from tests.spark.conftest import Kafka, child_environment
from tests.support.processes import kill_family
from tests.support.transactional_clusters import CLUSTERS, transactional_cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(900)

ENDS_S = 400
"""The longest wait for the end of a query, on a machine that has much else to do."""

PROGRAMS = Path(__file__).parent / "programs"


class CommittedKafka(Kafka):
    """A cluster with transactions."""

    def values(self, topic: str, partitions: int = 1) -> list[str]:
        """The committed values, by partition."""
        from minikafka.clients.fetch.range_fetcher import RangeFetcher
        from minikafka.records.columns import decode_pieces

        found: list[str] = []
        for number in range(partitions):
            tp = TopicPartition(topic, number)
            end = self.admin.offsets({tp: -1}, isolation=IsolationLevel.READ_COMMITTED)[tp] or 0
            assert end == self.admin.offsets({tp: -1})[tp], f"a transaction is open on {tp}"
            for data in RangeFetcher(self.client, tp, 0, end, isolation=IsolationLevel.READ_COMMITTED):
                for piece in decode_pieces(data, 0, end):
                    found += [value.decode() for value in piece.value_array().to_pylist()]
        return found

    def staged(self, sink_id: str) -> int:
        """The number of staged records that were not deleted."""
        left = 0
        for number in range(12):
            tp = TopicPartition(f"__minikafka-staging-{sink_id}", number)
            left += (self.admin.offsets({tp: -1})[tp] or 0) - (self.admin.offsets({tp: -2})[tp] or 0)
        return left

    def topics_of_writes(self) -> list[str]:
        """The topics of batch writes."""
        return [name for name in self.admin.list_topics() if name.startswith("__minikafka-write-")]


@pytest.fixture(scope="module", params=CLUSTERS)
def kafka(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CommittedKafka]:
    with transactional_cluster(request.param, tmp_path_factory.mktemp("exactly-once")) as addresses:
        found = CommittedKafka(addresses)
        yield found
        found.client.close()


def options_of(kafka: Kafka, topic: str, **more: str) -> dict[str, str]:
    given = {name.replace("__", "."): value for name, value in more.items()}
    return {
        "kafka.bootstrap.servers": kafka.servers,
        "topic": topic,
        "minikafka.delivery": "exactly-once",
        **given,
    }


class Feed:
    """A source of files, and the query that writes their rows exactly once."""

    def __init__(self, spark: SparkSession, kafka: CommittedKafka, directory: Path, sink_id: str) -> None:
        self.spark, self.kafka, self.sink_id = spark, kafka, sink_id
        self.input, self.checkpoint = directory / "input", directory / "checkpoint"
        self.input.mkdir(parents=True, exist_ok=True)
        self.written: list[str] = []

    def add(self, number: int, count: int = 40) -> None:
        """Add a file: the rows of one batch."""
        rows = [f"{number}-{row}" for row in range(count)]
        (self.input / f"{number}.txt").write_text("\n".join(rows) + "\n")
        self.written += rows

    def rows(self, repartition: int | None = 3) -> DataFrame:
        frame = self.spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(self.input))
        return frame if repartition is None else frame.repartition(repartition)

    def run(self, topic: str, frame: DataFrame | None = None, **more: str) -> None:
        """Write all batches that wait."""
        writer = (self.rows() if frame is None else frame).writeStream.format("minikafka")
        writer = writer.options(**options_of(self.kafka, topic, minikafka__sink__id=self.sink_id, **more))
        writer = writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True)
        query = writer.start()
        try:
            assert query.awaitTermination(ENDS_S)
        finally:
            query.stop()

    def forget_commit(self, number: int) -> None:
        """Leave the checkpoint as a driver that died before Spark noted the commit of a batch."""
        for path in (self.checkpoint / "commits").glob(f"*{number}*"):
            path.unlink()


@pytest.fixture
def feed(spark: SparkSession, kafka: CommittedKafka, tmp_path: Path, request: pytest.FixtureRequest) -> Feed:
    return Feed(spark, kafka, tmp_path, f"sink-{abs(hash(request.node.name)) % 10**9}")


def test_a_batch_write_is_visible_once(spark: SparkSession, kafka: CommittedKafka) -> None:
    topic = kafka.topic(3)
    rows = spark.range(1000).selectExpr("cast(id % 7 as string) key", "cast(id as string) value")
    rows.repartition(4).write.format("minikafka").mode("append").options(**options_of(kafka, topic)).save()
    assert sorted(map(int, kafka.values(topic, 3))) == [*range(1000)]
    assert kafka.topics_of_writes() == []


def test_a_stream_is_written_once(feed: Feed, kafka: CommittedKafka) -> None:
    topic = kafka.topic(2)
    for number in range(3):
        feed.add(number)
    feed.run(topic)
    assert sorted(kafka.values(topic, 2)) == sorted(feed.written)
    assert kafka.staged(feed.sink_id) == 0
    feed.add(3)
    feed.run(topic)
    assert sorted(kafka.values(topic, 2)) == sorted(feed.written)


def test_a_rerun_after_the_commit_writes_nothing(feed: Feed, kafka: CommittedKafka) -> None:
    topic = kafka.topic(2)
    for number in range(2):
        feed.add(number)
    feed.run(topic)
    feed.forget_commit(1)
    feed.run(topic, feed.rows(5))
    assert sorted(kafka.values(topic, 2)) == sorted(feed.written)
    assert kafka.staged(feed.sink_id) == 0


def test_a_batch_write_in_foreach_batch_stands_beside_a_stream(feed: Feed, kafka: CommittedKafka) -> None:
    stream, beside = kafka.topic(2), kafka.topic(2)

    def write(frame: DataFrame, _: int) -> None:
        frame.write.format("minikafka").mode("append").options(**options_of(kafka, beside)).save()

    for number in range(2):
        feed.add(number)
    writer = feed.rows().writeStream.foreachBatch(write).trigger(availableNow=True)
    other = writer.option("checkpointLocation", str(feed.checkpoint.with_name("beside"))).start()
    feed.run(stream)
    assert other.awaitTermination(ENDS_S)
    for topic in (stream, beside):
        assert sorted(kafka.values(topic, 2)) == sorted(feed.written)
    assert kafka.topics_of_writes() == []


class OwnSpark:
    """Runs the query of a feed in a Spark of its own."""

    def __init__(self, feed: Feed, topic: str, directory: Path, *, step: str = "", **given: str) -> None:
        pids = directory / "pids"
        options = options_of(feed.kafka, topic, minikafka__sink__id=feed.sink_id)
        arguments = {
            "input": str(feed.input),
            "checkpoint": str(feed.checkpoint),
            "options": json.dumps(options),
            "master": "local[2,4]",
            **given,
        }
        environment = child_environment()
        if step:
            environment["PYTHONPATH"] = f"{PROGRAMS / 'faults'}{os.pathsep}{environment['PYTHONPATH']}"
            environment |= {"MINIKAFKA_TEST_DIES_AT": step, "MINIKAFKA_TEST_DRIVER": str(pids)}
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAMS / "exactly_once_query.py"), json.dumps(arguments)],
            cwd=directory,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if step:
            jvm = find_jvm(self.process)
            pids.write_text(f"{self.process.pid} {jvm}")

    def ended(self) -> str:
        """Wait for its end, and return its output."""
        return self.process.communicate(timeout=ENDS_S)[0]


def find_jvm(process: subprocess.Popen[str]) -> int:
    """The process of the JVM of a driver, once it runs."""
    deadline = time.monotonic() + ENDS_S
    while time.monotonic() < deadline and process.poll() is None:
        for child in psutil.Process(process.pid).children(recursive=True):
            if "java" in child.name():
                return child.pid
        time.sleep(0.05)
    raise AssertionError(f"the driver has no JVM: {process.communicate()[0]}")


@pytest.mark.slow
@pytest.mark.parametrize(
    "step", ["before copy", "during copy", "between portions", "before end", "after end"]
)
def test_a_driver_killed_in_its_commit_loses_and_doubles_nothing(
    feed: Feed, kafka: CommittedKafka, tmp_path: Path, step: str
) -> None:
    topic = kafka.topic(2)
    feed.add(0)
    killed = OwnSpark(feed, topic, tmp_path, step=step)
    printed = killed.ended()
    assert killed.process.returncode == -signal.SIGKILL, printed
    assert not (feed.checkpoint / "commits" / "0").exists()
    feed.add(1)
    feed.run(topic, feed.rows(5))
    assert sorted(kafka.values(topic, 2)) == sorted(feed.written)
    assert kafka.staged(feed.sink_id) == 0


@pytest.mark.slow
def test_a_task_killed_in_the_middle_is_written_once(
    feed: Feed, kafka: CommittedKafka, tmp_path: Path
) -> None:
    topic = kafka.topic(2)
    feed.add(0)
    feed.add(1)
    assert "done" in OwnSpark(feed, topic, tmp_path, dies=str(tmp_path / "died")).ended()
    assert (tmp_path / "died").exists()
    assert sorted(kafka.values(topic, 2)) == sorted(feed.written)
    assert kafka.staged(feed.sink_id) == 0


@contextlib.contextmanager
def spark_cluster(directory: Path) -> Iterator[str]:
    """A standalone cluster of Spark with two hosts, as Spark runs the twin of a task on another host only."""
    import pyspark

    spark_class = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    package = "org.apache.spark.deploy"
    address = f"spark://127.0.0.1:{free_port()}"
    words = ["--webui-port", "0", "--host"]
    port = address.rpartition(":")[2]
    programs = [[f"{package}.master.Master", "--port", port, *words, "127.0.0.1"]]
    for number in (2, 3):
        size = ["--cores", "2", "--memory", "1g", "--work-dir", str(directory / f"worker-{number}")]
        programs.append([f"{package}.worker.Worker", address, *size, *words, f"127.0.0.{number}"])
    with contextlib.ExitStack() as stack:
        for number, program in enumerate(programs):
            output = stack.enter_context((directory / f"spark-{number}.log").open("w"))
            process = subprocess.Popen(
                [spark_class, *program],
                cwd=directory,
                env=child_environment(),
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            stack.callback(process.wait)
            stack.callback(kill_family, process.pid)
        yield address


@pytest.mark.slow
@pytest.mark.long
def test_a_speculative_twin_of_a_task_writes_nothing_twice(
    feed: Feed, kafka: CommittedKafka, tmp_path: Path
) -> None:
    topic = kafka.topic(2)
    feed.add(0)
    settings = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.minTaskRuntime": "500ms",
        "spark.executor.memory": "512m",
        "spark.local.dir": str(tmp_path),
    }
    slept = tmp_path / "slept"
    given = {"settings": json.dumps(settings), "tasks": "4", "sleeps": str(slept)}
    with spark_cluster(tmp_path) as master:
        assert "done" in OwnSpark(feed, topic, tmp_path, master=master, **given).ended()
    assert slept.exists()
    assert slept.with_name("slept, others not").exists(), "the task had no twin"
    assert sorted(kafka.values(topic, 2)) == sorted(feed.written)
    assert kafka.staged(feed.sink_id) == 0


def test_a_restored_older_checkpoint_stops_the_query(
    feed: Feed, kafka: CommittedKafka, tmp_path: Path
) -> None:
    topic = kafka.topic(1)
    feed.add(0)
    feed.run(topic)
    shutil.copytree(feed.checkpoint, tmp_path / "old")
    for number in (1, 2):
        feed.add(number)
        feed.run(topic)
    shutil.rmtree(feed.checkpoint)
    shutil.copytree(tmp_path / "old", feed.checkpoint)
    with pytest.raises(Exception, match=r"batch 1 cannot be written: batch 2 of .* is committed"):
        feed.run(topic)
    assert sorted(kafka.values(topic)) == sorted(feed.written)


def test_a_batch_that_was_planned_again_stops_the_query(
    feed: Feed, kafka: CommittedKafka, tmp_path: Path
) -> None:
    topic = kafka.topic(1)
    feed.add(0)
    feed.run(topic)
    shutil.copytree(feed.checkpoint, tmp_path / "old")
    feed.add(1)
    feed.run(topic)
    shutil.rmtree(feed.checkpoint)
    shutil.copytree(tmp_path / "old", feed.checkpoint)
    with pytest.raises(Exception, match=r"batch 1 of .* is committed with other offsets"):
        feed.run(topic)
    assert sorted(kafka.values(topic)) == sorted(feed.written)


def test_the_sink_id_of_another_query_is_refused(feed: Feed, kafka: CommittedKafka) -> None:
    topic = kafka.topic(1)
    feed.add(0)
    feed.run(topic)
    feed.checkpoint = feed.checkpoint.with_name("another")
    with pytest.raises(Exception, match="belongs to the query"):
        feed.run(topic)
    assert sorted(kafka.values(topic)) == sorted(feed.written)
