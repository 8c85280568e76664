"""Executors in processes of their own, which have the source from a packed environment alone.

One program on ``local-cluster`` does everything, in an environment that is packed as in the guide and
sent to the executors as an archive; each test looks at a part of what it has seen.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from minikafka.embedded.cluster import Cluster
from tests.spark.conftest import ROOT, Kafka
from tests.support.processes import kill_family

pytestmark = [pytest.mark.slow, pytest.mark.timeout(500)]

PROGRAM = """
import json, os, sys, time
import psutil
import pyspark_minikafka
from pyspark.sql import SparkSession

servers, forgetful, archive = sys.argv[1:]
settings = {
    "spark.archives": archive + "#environment", "spark.executor.memory": "512m", "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2", "spark.local.dir": os.getcwd(),
}
builder = SparkSession.builder.master("local-cluster[2,1,1024]")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
seen = {}

def options(servers, topic, **more):
    return {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest", **more}

def reader(servers, topic):
    return spark.read.format("minikafka").options(**options(servers, topic)).load()

def write(servers, topic, count):
    frame = spark.range(0, count, 1, 4).selectExpr("cast(id AS string) key", "cast(id AS string) value")
    sink = frame.write.format("minikafka").mode("append").option("kafka.bootstrap.servers", servers)
    sink.option("topic", topic).save()

def summary(frame):
    number = "cast(cast(value AS string) AS bigint)"
    return list(frame.selectExpr("count(*)", f"count(DISTINCT {number})", f"sum({number})").collect()[0])

def connections(servers):
    port = int(servers.rpartition(":")[2])
    found = {}
    for process in psutil.Process().children(recursive=True):
        try:
            opened = process.net_connections("tcp")
        except psutil.Error:
            continue
        ours = [one for one in opened if one.status == "ESTABLISHED" and one.raddr and one.raddr.port == port]
        if ours:
            found[process.pid] = len(ours)
    return found

def until_closed(servers):
    deadline = time.monotonic() + 120
    while connections(servers):
        assert time.monotonic() < deadline, connections(servers)
        time.sleep(0.1)

seen["driver"] = pyspark_minikafka.__file__

def where(_):
    import pyspark_minikafka
    yield pyspark_minikafka.__file__

seen["executors"] = spark.sparkContext.range(0, 8, 1, 8).mapPartitions(where).distinct().collect()

write(servers, "cluster-batch", 40_000)
seen["batch"] = summary(reader(servers, "cluster-batch"))

stream = spark.readStream.format("minikafka").options(**options(servers, "cluster-batch")).load()
query = stream.select("value").writeStream.format("minikafka").option("kafka.bootstrap.servers", servers)
query = query.option("topic", "cluster-stream").option("checkpointLocation", os.path.abspath("checkpoint"))
query.trigger(availableNow=True).start().awaitTermination()
seen["stream"] = summary(reader(servers, "cluster-stream"))

write(forgetful, "t", 800)
until_closed(forgetful)
frame = reader(forgetful, "t")
seen["twice"] = [summary(frame), summary(frame)]
seen["connections"] = sorted(connections(forgetful).values())
until_closed(forgetful)
seen["after idling"] = summary(frame)
print(json.dumps(seen))
spark.stop()
"""


def packed_environment(directory: Path) -> Path:
    """``environment.tar.gz`` of ``directory/environment``, where only this project is copied in.

    What it needs is found where it is installed already, as half a gigabyte takes long to copy.
    """
    made = directory / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--copies", "--without-pip", str(made)], check=True)
    site = Path(sysconfig.get_path("purelib", "venv", {"base": str(made)}))
    for package in (ROOT / "broker_core" / "minikafka", ROOT / "spark_source" / "pyspark_minikafka"):
        shutil.copytree(package, site / package.name)
    # Lines of such files are followed, but not the files of that kind that they lead to: an editable
    # installation of this project is not found so.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    # Of .tar and .zip, Spark forgets who may execute what.
    archive = directory / "environment.tar.gz"
    subprocess.run(["tar", "-C", made, "-czf", archive, "."], check=True)
    return archive


def spark_home(directory: Path) -> Path:
    """Spark as it is installed, but executors of ``local-cluster`` work below it: in ``directory`` then."""
    import pyspark

    home = directory / "spark"
    home.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "work":
            (home / entry.name).symlink_to(entry)
    return home


@pytest.fixture(scope="module")
def seen(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the rows that the program has read."""
    directory = tmp_path_factory.mktemp("cluster")
    archive = packed_environment(directory)
    python = "./environment/bin/python"  # the driver's, in its directory, and the executors' in theirs
    dropped = ("PYSPARK_", "PYTHONPATH", "SPARK_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    environment |= {"PYSPARK_PYTHON": python, "SPARK_HOME": str(spark_home(directory))}
    with Cluster(config={"connections.max.idle.ms": "8000"}) as forgetful:
        forgetful.create_topic("t", partitions=8)
        program = subprocess.Popen(
            [python, "-c", PROGRAM, kafka.servers, forgetful.bootstrap_servers, str(archive)],
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            out, err = program.communicate(timeout=400)
        finally:
            kill_family(program.pid)
            program.wait(30)
    # The end is what Spark says when it is torn down; why it was stands before.
    assert program.returncode == 0, err[err.find("Traceback") :][:6_000]
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


def all_numbers_below(count: int) -> list[int]:
    """Rows, different numbers in them, and their sum."""
    return [count, count, count * (count - 1) // 2]


def test_executors_have_the_source_from_the_archive_alone(seen: dict[str, Any]) -> None:
    assert "/environment/lib/" in seen["driver"]
    assert seen["executors"]
    assert all("/app-" in file and "/environment/lib/" in file for file in seen["executors"])


def test_a_batch_is_written_and_read_by_all_executors(seen: dict[str, Any]) -> None:
    assert seen["batch"] == all_numbers_below(40_000)


def test_a_stream_is_read_and_written_by_all_executors(seen: dict[str, Any]) -> None:
    assert seen["stream"] == all_numbers_below(40_000)


def test_a_worker_reads_any_number_of_tasks_over_one_connection(seen: dict[str, Any]) -> None:
    assert seen["twice"] == [all_numbers_below(800)] * 2
    assert set(seen["connections"]) == {1}


def test_a_broker_that_closes_what_is_idle_costs_no_query_an_error(seen: dict[str, Any]) -> None:
    assert seen["after idling"] == all_numbers_below(800)
