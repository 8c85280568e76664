"""The embedded broker under real Spark sessions, each in a process of its own."""

from __future__ import annotations

import os
import stat
import textwrap
from pathlib import Path

import psutil
import pytest

from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import LATEST, Admin
from minikafka.clients.network.cluster import ClusterClient
from minikafka.embedded import local
from tests.support.processes import family_of, kill_family, output_of, python, wait_until

pytestmark = pytest.mark.timeout(400)

PATIENCE_S = 300
"""For one program: a Spark session of its own, on a machine with other tests on it."""

PREAMBLE = """
import os, sys, time
import pyspark_minikafka
from pyspark.sql import SparkSession

def session(master="local[2]", **settings):
    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.log.level", "FATAL")
    for name, value in settings.items():
        builder = builder.config(name.replace("__", "."), value)
    return builder.getOrCreate()

def write(spark, count, topic="numbers", **options):
    frame = spark.range(count).selectExpr("cast(id AS string) AS key", "repeat('x', 100) AS value")
    frame.write.format("minikafka").mode("append").option("topic", topic).options(**options).save()

def count(spark, topic="numbers", **options):
    return spark.read.format("minikafka").option("subscribe", topic).options(**options).load().count()

def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.1)

def say(*words):
    print(*words, flush=True)
"""


def script(source: str) -> list[str]:
    """Arguments of a Python that runs ``source`` after the preamble."""
    return ["-c", PREAMBLE + textwrap.dedent(source)]


def finish(arguments: list[str], cwd: Path, **environment: str) -> str:
    """Run a script to its end; all that was said in ``cwd``."""
    with python(arguments, cwd, **environment) as process:
        assert process.wait(PATIENCE_S) == 0, output_of(cwd)
    return output_of(cwd)


def stopped(data_dir: Path) -> bool:
    return local.running(str(data_dir)) is None


def kept(data_dir: Path, topic: str = "numbers") -> int | None:
    """Return the number of messages in partition 0 of a topic, from a broker started on the directory."""
    here = local.ensure(str(data_dir))
    try:
        with ClusterClient(here.bootstrap_servers, creates_topics=False) as cluster:
            partition = TopicPartition(topic, 0)
            return Admin(cluster).offsets({partition: LATEST})[partition]
    finally:
        local.stop(str(data_dir))


@pytest.mark.smoke
@pytest.mark.slow
def test_without_servers_broker_starts_and_ends_with_program(tmp_path: Path) -> None:
    said = finish(
        script("""
            spark = session()
            write(spark, 1000)
            say("rows", count(spark))
            spark.stop()
        """),
        tmp_path,
    )
    assert "rows 1000" in said
    assert (tmp_path / "minikafka-data" / "broker-0").is_dir()
    wait_until(lambda: stopped(tmp_path / "minikafka-data"), "the end of the broker", 20)
    # What was written is there for the next program, wherever that is started.
    assert kept(tmp_path / "minikafka-data") == 1000


def test_spark_finds_the_source_whatever_python_is_first_on_path(tmp_path: Path) -> None:
    other = tmp_path / "bin" / "python3"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\necho 'the wrong python' >&2\nexit 1\n")
    other.chmod(other.stat().st_mode | stat.S_IXUSR)
    said = finish(
        script("say('columns', *session().read.format('minikafka').option('subscribe', 't').load().columns)"),
        tmp_path,
        PATH=f"{other.parent}{os.pathsep}{os.environ['PATH']}",
    )
    assert "columns key value topic partition offset timestamp timestampType" in said
    assert "the wrong python" not in said


@pytest.mark.slow
@pytest.mark.long
def test_two_sessions_share_one_directory(tmp_path: Path) -> None:
    first = script("""
        spark = session()
        write(spark, 300)
        open("written", "w").close()
        wait_for("read")
        say("first sees", count(spark))
    """)
    second = script("""
        spark = session()
        say("second sees", count(spark))
        write(spark, 200)
        spark.stop()
    """)
    with python(first, tmp_path) as one:
        wait_until(lambda: (tmp_path / "written").exists() or one.poll() is not None, "the first write")
        broker = local.running(str(tmp_path / "minikafka-data"))
        assert "second sees 300" in finish(second, tmp_path)
        assert local.running(str(tmp_path / "minikafka-data")) == broker
        (tmp_path / "read").touch()
        assert one.wait(PATIENCE_S) == 0, output_of(tmp_path)
    assert "first sees 500" in output_of(tmp_path)
    wait_until(lambda: stopped(tmp_path / "minikafka-data"), "the end of the broker", 20)


@pytest.mark.slow
def test_killed_jvm_ends_broker_and_keeps_written_data(tmp_path: Path) -> None:
    writes = script("""
        spark = session()
        write(spark, 500)
        open("written", "w").close()
        time.sleep(600)
    """)
    with python(writes, tmp_path) as program:
        wait_until(lambda: (tmp_path / "written").exists() or program.poll() is not None, "the write")
        broker = local.running(str(tmp_path / "minikafka-data"))
        assert broker is not None, output_of(tmp_path)
        jvms = [process for process in family_of(program.pid) if process.name() == "java"]
        assert jvms
        for jvm in jvms:
            jvm.kill()
        wait_until(lambda: stopped(tmp_path / "minikafka-data"), "the end of the broker", 20)
        wait_until(lambda: not psutil.pid_exists(broker.pid), "the end of its process", 20)
        kill_family(program.pid)
    assert kept(tmp_path / "minikafka-data") == 500


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(PATIENCE_S)
def test_ninety_idle_seconds_change_nothing(tmp_path: Path) -> None:
    said = finish(
        script("""
            spark = session()
            write(spark, 100)
            # Spark ends idle Python workers after a minute; the broker belongs to none of them.
            time.sleep(90)
            say("rows", count(spark))
            write(spark, 100)
            say("rows", count(spark))
        """),
        tmp_path,
    )
    assert "rows 100" in said
    assert "rows 200" in said


@pytest.mark.slow
@pytest.mark.long
def test_executors_in_processes_of_their_own_write_and_read(tmp_path: Path) -> None:
    said = finish(
        script("""
            spark = session("local-cluster[2,1,1024]")
            write(spark.range(1).sparkSession, 20000)
            say("rows", count(spark))
            frame = spark.read.format("minikafka").option("subscribe", "numbers").load()
            say("keys", frame.select("key").distinct().count())
            stream = spark.readStream.format("minikafka").option("subscribe", "numbers")
            stream = stream.option("startingOffsets", "earliest").load()
            query = stream.writeStream.format("minikafka").option("topic", "copy")
            query = query.option("checkpointLocation", "checkpoint").trigger(availableNow=True).start()
            query.awaitTermination()
            say("copied", count(spark, "copy"))
            spark.stop()
        """),
        tmp_path,
        SPARK_WORKER_DIR=str(tmp_path / "work"),
    )
    assert "rows 20000" in said
    assert "keys 20000" in said
    assert "copied 20000" in said
    # The executors' own directories are the workers', not the program's: none of them has started a broker.
    assert [str(path) for path in tmp_path.rglob("minikafka-data")] == [str(tmp_path / "minikafka-data")]
